//! The data file through power cuts and kills, in the simulator: threads write and drop blocks, checkpoints name
//! them in a manifest; whatever manifest is found after the cut, every block it names is whole.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{INDEX, noise};
use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, IndexId, Poison, Result};
use trefoil_store::{
    Block, BlockKind, BlockRef, Compression, Run, RunDepth, RunMeta, RunWriter, Space, SpaceOptions, UpdateGroup,
};
use vfs::random::Rng;

use vfs::sim::{Config, DiskConfig, Handle, SimDisk, explore};
use vfs::sync::Mutex;
use vfs::{OpenHow, Vfs};

const DIR: &str = "/db";

/// A block and what is in it.
#[derive(Clone)]
struct Held {
    block: Arc<Block>,
    seed: u64,
    bytes: usize,
}

#[derive(Default)]
struct Named {
    fresh: Vec<Held>,
    published: Vec<Held>,
    /// Replaced since the last checkpoint; the manifest still names them.
    retired: Vec<Held>,
}

struct Db {
    disk: SimDisk,
    space: Space,
    named: Mutex<Named>,
    next_seed: AtomicU64,
    /// Number of the newest manifest known durable.
    durable: AtomicU64,
}

fn options(rng: &mut Rng) -> SpaceOptions {
    SpaceOptions {
        extent_bytes: 32 << 10,
        direct: rng.chance(0.7),
        reserve_bytes: 64 << 10,
        max_bytes: None,
        budget: None,
    }
}

impl Db {
    /// Creates the database, or opens it from the manifest found and checks every block it names.
    fn open(disk: &SimDisk, rng: &mut Rng, at_least: u64) -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let found = read_manifest(disk);
        let number = found.as_ref().map_or(0, |m| m.number);
        assert!(number >= at_least, "manifest {at_least} was durable, {number} is found");
        let saved = found.as_ref().map(|m| m.saved.as_slice());
        let space = Space::open(vfs, Path::new(DIR), options(rng), saved, Poison::new()).unwrap();
        let mut named = Named::default();
        for (at, seed, bytes) in found.into_iter().flat_map(|m| m.blocks) {
            let block = space.adopt(at);
            let held = Held { block, seed, bytes };
            check(&space, &held).unwrap();
            named.published.push(held);
        }
        let live: u64 = named.published.iter().map(|h| h.block.stored_bytes()).sum();
        let stats = space.stats();
        assert_eq!((stats.held_bytes, stats.live_bytes), (live, live), "the counts are what the manifest reaches");
        let db = Self {
            disk: disk.clone(),
            space,
            named: Mutex::new(named),
            next_seed: AtomicU64::new(rng.u64() >> 8),
            durable: AtomicU64::new(number),
        };
        if number == 0 {
            // Before the first block.
            let saved = db.space.save();
            let _ = db.write_manifest(1, saved, &[]);
        }
        db
    }

    fn write(&self, rng: &mut Rng) -> Result<()> {
        let mut seeds = Vec::new();
        let blocks = (0..1 + rng.below(6))
            .map(|_| {
                let seed = self.next_seed.fetch_add(1, Ordering::SeqCst);
                let bytes = rng.below(9000) as usize;
                seeds.push((seed, bytes));
                let mut block = noise(seed, bytes);
                let runs =
                    UpdateGroup::of_runs(IndexId(rng.below(3) as u32), [RunDepth::Top, RunDepth::Bottom][rng.index(2)]);
                block.group = [UpdateGroup::Hot, UpdateGroup::Warm, UpdateGroup::Cold, runs][rng.index(4)];
                block
            })
            .collect();
        match self.space.write(blocks) {
            Ok(written) => {
                let held = written.into_iter().zip(seeds).map(|(block, (seed, bytes))| Held { block, seed, bytes });
                self.named.lock().fresh.extend(held);
                Ok(())
            }
            Err(Fault::NoSpace { .. }) => {
                for _ in 0..20 {
                    self.drop_one(rng);
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    fn drop_one(&self, rng: &mut Rng) {
        let mut named = self.named.lock();
        let dropped = if rng.chance(0.5) && !named.fresh.is_empty() {
            let i = rng.index(named.fresh.len());
            Some(named.fresh.swap_remove(i))
        } else if !named.published.is_empty() {
            let i = rng.index(named.published.len());
            let held = named.published.swap_remove(i);
            if rng.chance(0.3) && Arc::strong_count(&held.block) == 1 {
                // As DROP does: at once, although the manifest names it. Nobody reads it: it would live on, and count, unnamed.
                Some(held)
            } else {
                named.retired.push(held);
                None
            }
        } else {
            None
        };
        // Not between: no checkpoint may come that still counts what it does not name.
        drop(dropped);
        drop(named);
    }

    fn read_one(&self, rng: &mut Rng) -> Result<()> {
        let held = {
            let named = self.named.lock();
            let all = named.fresh.len() + named.published.len();
            if all == 0 {
                return Ok(());
            }
            let i = rng.index(all);
            named.fresh.get(i).unwrap_or_else(|| &named.published[i - named.fresh.len()]).clone()
        };
        check(&self.space, &held)
    }

    fn checkpoint(&self, rng: &mut Rng) -> Result<()> {
        let (saved, blocks, retired) = {
            let mut named = self.named.lock();
            let fresh = std::mem::take(&mut named.fresh);
            fresh.iter().for_each(|h| {
                h.block.publish();
            });
            named.published.extend(fresh);
            let retired = std::mem::take(&mut named.retired);
            retired.iter().for_each(|h| {
                h.block.unpublish();
            });
            let blocks: Vec<_> = named.published.iter().map(|h| (h.block.at(), h.seed, h.bytes)).collect();
            (self.space.save(), blocks, retired)
        };
        drop(retired);
        self.space.sync()?;
        let number = self.durable.load(Ordering::SeqCst) + 1;
        if !self.write_manifest(number, saved, &blocks)? {
            return Ok(());
        }
        self.space.checkpoint_durable();
        if rng.chance(0.3) {
            self.space.give_back(true, || true)?;
        }
        Ok(())
    }

    /// As a backup does: pins, then reads what the newest manifest names.
    fn read_pinned(&self) -> Result<()> {
        vfs::thread::sleep(Duration::from_millis(2));
        let _pin = self.space.pin();
        let Some(manifest) = read_manifest(&self.disk) else { return Ok(()) };
        for (at, seed, bytes) in manifest.blocks {
            let mut out = Vec::new();
            vfs::thread::sleep(Duration::from_micros(100));
            self.space.read(at, BlockKind::Leaf, INDEX, &mut out)?;
            assert!(out == noise(seed, bytes).payload, "another block's bytes at {at:?}");
        }
        Ok(())
    }

    /// False if the disk is too full for it.
    fn write_manifest(&self, number: u64, saved: Vec<u8>, blocks: &[(BlockRef, u64, usize)]) -> Result<bool> {
        match write_manifest(&self.disk, number, &saved, blocks) {
            Ok(()) => {
                self.durable.store(number, Ordering::SeqCst);
                Ok(true)
            }
            Err(e) if e.kind() == std::io::ErrorKind::StorageFull => Ok(false),
            Err(e) => Err(Fault::io("write", "MANIFEST", &e)),
        }
    }
}

fn check(space: &Space, held: &Held) -> Result<()> {
    let mut out = Vec::new();
    space.read(held.block.at(), BlockKind::Leaf, INDEX, &mut out)?;
    assert!(out == noise(held.seed, held.bytes).payload, "another block's bytes at {:?}", held.block.at());
    Ok(())
}

struct Manifest {
    number: u64,
    saved: Vec<u8>,
    blocks: Vec<(BlockRef, u64, usize)>,
}

fn write_manifest(disk: &SimDisk, number: u64, saved: &[u8], blocks: &[(BlockRef, u64, usize)]) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, number);
    put_bytes(&mut bytes, saved);
    for (at, seed, len) in blocks {
        at.encode(&mut bytes);
        put_varint(&mut bytes, *seed);
        put_varint(&mut bytes, *len as u64);
    }
    let dir = Path::new(DIR);
    let how = OpenHow { write: true, create: true, create_new: false, direct: false };
    let file = disk.open(&dir.join("MANIFEST.tmp"), how)?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(&dir.join("MANIFEST.tmp"), &dir.join("MANIFEST"))?;
    disk.sync_dir(dir)
}

fn read_manifest(disk: &SimDisk) -> Option<Manifest> {
    let bytes = disk.contents(&Path::new(DIR).join("MANIFEST")).ok()?;
    let mut r = Reader::new(&bytes);
    let number = r.varint().unwrap();
    let saved = r.bytes().unwrap().to_vec();
    let mut blocks = Vec::new();
    while let Some(at) = BlockRef::decode(&mut r) {
        blocks.push((at, r.varint().unwrap(), r.length().unwrap()));
    }
    Some(Manifest { number, saved, blocks })
}

/// One life: threads work until the cut. Returns the number of the newest manifest known durable.
fn live(sim: &Handle, disk: &SimDisk, at_least: u64) -> u64 {
    let mut rng = sim.rng();
    let db = Arc::new(Db::open(disk, &mut rng, at_least));
    let mut threads = Vec::new();
    for n in 0..4 {
        let (db, mut rng) = (db.clone(), sim.rng());
        let body = move || {
            let work = |rng: &mut Rng| match (n, rng.below(10)) {
                (0, _) => db.checkpoint(rng),
                (1, _) => db.read_pinned(),
                (_, 0..4) => db.write(rng),
                (_, 4..7) => db.read_one(rng),
                _ => {
                    db.drop_one(rng);
                    Ok(())
                }
            };
            while !db.disk.is_off() {
                if let Err(fault) = work(&mut rng) {
                    assert!(db.disk.is_off() || matches!(fault, Fault::Poisoned(_)), "{fault}");
                    return;
                }
            }
        };
        threads.push(vfs::thread::spawn("worker", body).unwrap());
    }
    vfs::thread::sleep(Duration::from_micros(rng.below(30_000)));
    if rng.chance(0.8) {
        disk.power_cut(rng.u64())
    } else {
        disk.process_kill()
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    db.durable.load(Ordering::SeqCst)
}

#[test]
fn what_a_durable_manifest_names_survives_every_cut() {
    let config = Config { quiet: true, ..Config::default() };
    let checkpoints = Arc::new(AtomicU64::new(0));
    let counted = checkpoints.clone();
    explore(0..40, &config, move |sim| {
        let mut rng = sim.rng();
        let capacity_bytes = if rng.chance(0.3) { 1 << 20 } else { u64::MAX };
        let mut disk =
            SimDisk::new(DiskConfig { capacity_bytes, direct: rng.chance(0.5), ..DiskConfig::seed(sim.seed()) });
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let mut durable = 0;
        for _ in 0..4 {
            durable = live(sim, &disk, durable);
            disk = disk.reboot();
        }
        let last = Db::open(&disk, &mut rng, durable);
        counted.fetch_add(durable, Ordering::SeqCst);
        drop(last);
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(checkpoints.load(Ordering::SeqCst) > 200, "{checkpoints:?}");
}

#[test]
fn a_finished_run_survives_and_an_unfinished_one_is_not_taken_for_one() {
    let entries: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..3000u32)
        .map(|i| (i.to_be_bytes().to_vec(), (i % 5 > 0).then(|| noise(u64::from(i), (i % 90) as usize).payload)))
        .collect();
    let whole = |disk: &SimDisk, meta: &RunMeta| {
        let run = Run::open(disk, Path::new(DIR), meta)?;
        let mut cursor = run.cursor();
        let mut found = cursor.seek_first()?;
        for (key, value) in &entries {
            assert!(found && cursor.key() == key && cursor.value()?.as_deref() == value.as_deref());
            found = cursor.next()?;
        }
        assert!(!found);
        base::Result::Ok(())
    };
    let write = |disk: &SimDisk| {
        let mut writer = RunWriter::create(Arc::new(disk.clone()), Path::new(DIR), 1, Compression::Lz4)?;
        for (key, value) in &entries {
            writer.add(key, value.as_deref())?;
        }
        writer.finish()
    };
    let fresh = |seed| {
        let disk = SimDisk::new(DiskConfig::seed(seed));
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk
    };
    let counted = fresh(0);
    let meta = write(&counted).unwrap();
    whole(&counted, &meta).unwrap();
    let operations = counted.faults().counts().total();
    let mut refused = 0;
    for seed in 0..operations * 2 {
        let disk = fresh(seed);
        let rule = vfs::fault::Rule::new(vfs::fault::Action::PowerCut(seed)).nth(seed % operations);
        disk.faults().add(rule);
        let finished = write(&disk);
        if !disk.is_off() {
            disk.power_cut(seed);
        }
        let found = disk.reboot();
        match (finished, whole(&found, &meta)) {
            (Ok(_), read) => read.expect("it was durable"),
            (Err(_), Err(Fault::Corrupt(_))) => refused += 1,
            (Err(_), Ok(())) => {}
            (Err(_), Err(other)) => panic!("{other}"),
        }
    }
    assert!(refused > 0);
}
