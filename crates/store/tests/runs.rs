//! Run files: what goes in comes out, and what was changed on disk is found out.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use crate::common::{self, Scratch, real};
use base::bytes::Reader;
use trefoil_store::{Compression, Run, RunMeta, RunWriter, run};
use vfs::{OpenHow, RealVfs, Vfs};

fn key(i: u64) -> Vec<u8> {
    format!("key-{:08}", i * 3).into_bytes()
}

fn value(i: u64) -> Option<Vec<u8>> {
    match i % 7 {
        0 => None,
        1 => Some(Vec::new()),
        n => Some(vec![(i % 251) as u8; (n * 11) as usize]),
    }
}

fn write(dir: &std::path::Path, id: u64, entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> RunMeta {
    let mut writer = RunWriter::create(real(), dir, id, Compression::Lz4).unwrap();
    for (key, value) in entries {
        writer.add(key, value.as_deref()).unwrap();
    }
    writer.finish().unwrap()
}

/// Every way of reading, against the map.
fn check(run: &Run, entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>, probes: &[Vec<u8>]) {
    let mut cursor = run.cursor();
    let mut found = cursor.seek_first().unwrap();
    for (key, value) in entries {
        assert!(found);
        assert_eq!((cursor.key(), cursor.value().unwrap().as_deref()), (key.as_slice(), value.as_deref()));
        assert_eq!(cursor.is_delete(), value.is_none());
        found = cursor.next().unwrap();
    }
    assert!(!found && !cursor.is_valid() && !cursor.next().unwrap() && !cursor.prev().unwrap());
    let mut found = cursor.seek_last().unwrap();
    for (key, value) in entries.iter().rev() {
        assert!(found);
        assert_eq!((cursor.key(), cursor.value().unwrap().as_deref()), (key.as_slice(), value.as_deref()));
        found = cursor.prev().unwrap();
    }
    assert!(!found);
    for probe in probes {
        assert_eq!(run.get(probe).unwrap().as_ref(), entries.get(probe), "{probe:?}");
        let above = entries.range(probe.clone()..).next();
        assert_eq!(cursor.seek(probe).unwrap(), above.is_some());
        assert_eq!(cursor.is_valid().then(|| cursor.key()), above.map(|(k, _)| k.as_slice()));
        let below = entries.range(..probe.clone()).next_back();
        assert_eq!(cursor.seek_before(probe).unwrap(), below.is_some());
        assert_eq!(cursor.is_valid().then(|| cursor.key()), below.map(|(k, _)| k.as_slice()));
        if below.is_some() {
            assert_eq!(cursor.next().unwrap(), above.is_some());
            assert_eq!(cursor.is_valid().then(|| cursor.key()), above.map(|(k, _)| k.as_slice()));
        }
    }
}

#[test]
fn memory_and_file_agree_with_a_map() {
    let dir = Scratch::new("run-map");
    for count in [0u64, 1, 2, 17, 500, 60_000] {
        let entries: BTreeMap<_, _> = (0..count).map(|i| (key(i), value(i))).collect();
        let probes: Vec<Vec<u8>> = (0..count * 3 + 2)
            .step_by(1 + count as usize / 40)
            .map(|i| format!("key-{i:08}").into_bytes())
            .chain([b"".to_vec(), b"zz".to_vec()])
            .collect();
        let meta = write(dir.path(), count, &entries);
        assert_eq!(meta.entries, count);
        check(&Run::open(&RealVfs, dir.path(), &meta).unwrap(), &entries, &probes);
        check(&Run::from_sorted(entries.iter().map(|(k, v)| (k, v.as_ref()))), &entries, &probes);
    }
}

#[test]
fn large_values_get_blocks_of_their_own() {
    let dir = Scratch::new("run-large");
    let sizes = [0usize, 4095, 4096, 4097, 70_000, 1 << 20, (1 << 20) + 1, (3 << 20) + 17];
    let entries: BTreeMap<_, _> =
        sizes.iter().map(|n| (format!("{n:08}").into_bytes(), Some(common::noise(*n as u64, *n).payload))).collect();
    let meta = write(dir.path(), 1, &entries);
    assert!(meta.bytes > sizes.iter().sum::<usize>() as u64);
    let run = Run::open(&RealVfs, dir.path(), &meta).unwrap();
    check(&run, &entries, &entries.keys().cloned().collect::<Vec<_>>());
}

#[test]
fn long_keys_make_a_high_tree() {
    let dir = Scratch::new("run-high");
    // A few entries a block, so many blocks.
    let entries: BTreeMap<_, _> = (0..4000u64)
        .map(|i| {
            let mut key = common::noise(i, 3000).payload;
            key[..8].copy_from_slice(&i.to_be_bytes());
            (key, value(i))
        })
        .collect();
    let meta = write(dir.path(), 1, &entries);
    assert_eq!(meta.height, 2);
    let probes: Vec<_> = entries.keys().step_by(37).cloned().collect();
    check(&Run::open(&RealVfs, dir.path(), &meta).unwrap(), &entries, &probes);
}

#[test]
fn the_record_of_a_run_comes_back() {
    let dir = Scratch::new("run-meta");
    let meta = write(dir.path(), u64::MAX - 3, &(0..99).map(|i| (key(i), value(i))).collect());
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    assert_eq!(RunMeta::decode(&mut base::bytes::Reader::new(&bytes)), Some(meta.clone()));
    for n in 0..bytes.len() {
        assert_eq!(RunMeta::decode(&mut base::bytes::Reader::new(&bytes[..n])), None);
    }
    let run = Run::open(&RealVfs, dir.path(), &meta).unwrap();
    assert_eq!((run.meta(), run.len(), run.bytes()), (Some(&meta), 99, meta.bytes));
    assert_eq!(run.key_range(), Some((key(0).as_slice(), key(98).as_slice())));
}

type Entry = (Vec<u8>, Option<Vec<u8>>);

/// Everything a run holds.
fn read_all(dir: &std::path::Path, meta: &RunMeta) -> base::Result<Vec<Entry>> {
    let run = Run::open(&RealVfs, dir, meta)?;
    let mut cursor = run.cursor();
    let mut found = cursor.seek_first()?;
    let mut all = Vec::new();
    while found {
        all.push((cursor.key().to_vec(), cursor.value()?.map(|v| v.into_owned())));
        found = cursor.next()?;
    }
    Ok(all)
}

fn path(dir: &std::path::Path, id: u64) -> std::path::PathBuf {
    dir.join(format!("run-{id:016x}"))
}

#[test]
fn every_damage_is_found_or_beside_the_run() {
    let dir = Scratch::new("run-damage");
    let mut entries: BTreeMap<_, _> = (0..3000).map(|i| (key(i), value(i))).collect();
    entries.insert(b"large".to_vec(), Some(common::noise(5, 6000).payload));
    let meta = write(dir.path(), 1, &entries);
    let whole = read_all(dir.path(), &meta).unwrap();
    assert_eq!(whole, entries.into_iter().collect::<Vec<_>>());
    let file = RealVfs.open(&path(dir.path(), 1), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let mut good = vec![0; meta.bytes as usize];
    file.read_at(&mut good, 0).unwrap();
    let mut harmless = 0;
    for at in (0..good.len()).step_by(37) {
        file.write_at(&[good[at] ^ 0x40], at as u64).unwrap();
        match read_all(dir.path(), &meta) {
            Ok(all) => {
                assert!(all == whole, "damage at {at} changes the answer");
                harmless += 1;
            }
            Err(base::Fault::Corrupt(c)) => assert!(c.file.ends_with("run-0000000000000001"), "{c}"),
            Err(base::Fault::Format { .. } | base::Fault::Unsupported(_)) => {}
            Err(other) => panic!("at {at}: {other}"),
        }
        file.write_at(&good[at..=at], at as u64).unwrap();
    }
    // Only the padding before the footer is nobody's.
    assert!(harmless * 37 <= 4096 + 37, "{harmless}");
    file.set_len(meta.bytes - 4096).unwrap();
    assert!(read_all(dir.path(), &meta).unwrap_err().to_string().contains("length"));
    file.set_len(meta.bytes + 4096).unwrap();
    assert!(read_all(dir.path(), &meta).unwrap_err().to_string().contains("length"));
}

#[test]
fn another_runs_file_is_found_out() {
    let dir = Scratch::new("run-other");
    let entries: BTreeMap<_, _> = (0..100).map(|i| (key(i), value(i))).collect();
    let (first, second) = (write(dir.path(), 1, &entries), write(dir.path(), 2, &entries));
    assert_eq!(first.bytes, second.bytes);
    RealVfs.rename(&path(dir.path(), 2), &path(dir.path(), 1)).unwrap();
    assert!(read_all(dir.path(), &first).unwrap_err().to_string().contains("footer"));
    assert!(read_all(dir.path(), &second).unwrap_err().to_string().contains("run file"));
}

/// The lowest and highest key stand in the description alone, not in the file.
#[test]
fn the_description_of_a_run_is_held_against_it() {
    let dir = Scratch::new("run_description");
    let entries: BTreeMap<_, _> = (0..3000).map(|i| (key(i), value(i))).collect();
    let meta = write(dir.path(), 1, &entries);
    let verify = |meta: &RunMeta| Run::open(&RealVfs, dir.path(), meta).unwrap().verify();
    assert_eq!(verify(&meta).unwrap(), 3000);
    for wrong in [RunMeta { min_key: key(1), ..meta.clone() }, RunMeta { max_key: key(5000), ..meta.clone() }] {
        let said = verify(&wrong).unwrap_err().to_string();
        assert!(said.contains("entries of a run") && said.contains("3000 entries from"), "{said}");
    }
}

/// Records that name many runs have a limit: of keys longer than 3 KiB bounds are stored.
#[test]
fn long_keys_are_cut_in_a_stored_description() {
    let dir = Scratch::new("run_long_keys");
    let long = |first: u8, last: u8| [vec![first; 40_000], vec![last]].concat();
    for keys in [[long(b'a', 0), long(b'b', 0), long(b'b', 1)], [long(b'a', 0), long(b'a', 1), vec![0xff; 3000]]] {
        let entries: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), Some(vec![1]))).collect();
        let mut stored = Vec::new();
        let meta = write(dir.path(), 1, &entries);
        meta.encode(&mut stored);
        assert!(stored.len() < 2 * 3072 + 100, "{} bytes", stored.len());
        let read = RunMeta::decode(&mut Reader::new(&stored)).unwrap();
        assert!(read.min_key <= meta.min_key && read.max_key >= meta.max_key && read.id == meta.id);
        let mut again = Vec::new();
        read.encode(&mut again);
        assert_eq!(again, stored);
        let run = Run::open(&RealVfs, dir.path(), &read).unwrap();
        assert_eq!(run.verify().unwrap(), 3);
        keys.iter().for_each(|key| assert_eq!(run.get(key).unwrap(), Some(Some(vec![1]))));
        let wrong = RunMeta { max_key: vec![0xff; 10], ..read };
        assert!(Run::open(&RealVfs, dir.path(), &wrong).unwrap().verify().is_err());
    }
}

#[test]
fn runs_are_listed_and_removed_and_unfinished_ones_leave_nothing() {
    let dir = Scratch::new("run-list");
    let entries: BTreeMap<_, _> = (0..5).map(|i| (key(i), value(i))).collect();
    for id in [7, 0x1234_5678_9abc, 3] {
        write(dir.path(), id, &entries);
    }
    RealVfs.open(&dir.path().join("run-not"), OpenHow { write: true, create: true, ..OpenHow::default() }).unwrap();
    let mut writer = RunWriter::create(real(), dir.path(), 9, Compression::None).unwrap();
    writer.add(b"a", None).unwrap();
    assert_eq!(run::list(&RealVfs, dir.path()).unwrap(), [3, 7, 9, 0x1234_5678_9abc]);
    drop(writer);
    run::remove(&RealVfs, dir.path(), 7).unwrap();
    run::remove(&RealVfs, dir.path(), 7).unwrap();
    assert_eq!(run::list(&RealVfs, dir.path()).unwrap(), [3, 0x1234_5678_9abc]);
    // A file that a crash left under the number of a new run is written over.
    let meta = write(dir.path(), 3, &(0..50_000).map(|i| (key(i), value(i))).collect());
    let shorter = write(dir.path(), 3, &entries);
    assert!(shorter.bytes < meta.bytes);
    assert_eq!(read_all(dir.path(), &shorter).unwrap().len(), 5);
}

#[test]
fn a_run_in_memory_holds_its_charge() {
    use trefoil_store::{Budget, Class};
    let budget = Budget::new(1000);
    let run = Run::from_sorted([(b"k", Some(b"v"))]);
    let run = run.with_charge(budget.charge(Class::Runs, 500));
    let clone = run.clone();
    drop(run);
    assert_eq!((budget.used(Class::Runs), clone.get(b"k").unwrap()), (500, Some(Some(b"v".to_vec()))));
    drop(clone);
    assert_eq!(budget.total(), 0);
}

#[test]
#[should_panic(expected = "ascend")]
fn keys_of_a_run_ascend() {
    let _ = Run::from_sorted([(b"b", Some(b"1")), (b"a", None)]);
}
