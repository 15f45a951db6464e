//! The data file through its public face: what is written comes back, what is freed comes back by the rules, what
//! was changed on disk is found out.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::faulty;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{EXTENT, INDEX, Scratch, noise, open, options, real};
use base::{Fault, IndexId, Poison};
use trefoil_store::space::DATA_FILE;
use trefoil_store::{
    Block, BlockKind, BlockRef, Budget, Class, Compression, NewBlock, RunDepth, Space, SpaceOptions, UpdateGroup,
};
use vfs::{OpenHow, RealVfs, Vfs};

fn mixed(count: u64) -> Vec<NewBlock> {
    let mut blocks: Vec<NewBlock> = (0..count).map(|i| noise(i, (i as usize * 997) % 9000)).collect();
    for (i, block) in blocks.iter_mut().enumerate() {
        block.compression = [Compression::None, Compression::Lz4, Compression::Zstd][i % 3];
        block.group = [UpdateGroup::Hot, UpdateGroup::Warm, UpdateGroup::Cold][i % 5 % 3];
        if i % 4 == 0 {
            block.payload.fill(i as u8);
        }
    }
    blocks
}

fn check(space: &Space, blocks: &[NewBlock], written: &[Arc<Block>]) {
    let mut out = Vec::new();
    for (block, written) in blocks.iter().zip(written) {
        space.read(written.at(), BlockKind::Leaf, INDEX, &mut out).unwrap();
        assert_eq!(out, block.payload);
    }
}

/// Publishes the blocks and goes through a checkpoint; the saved state.
fn checkpoint(space: &Space, publish: &[Arc<Block>]) -> Vec<u8> {
    publish.iter().for_each(|b| {
        b.publish();
    });
    space.sync().unwrap();
    let saved = space.save();
    space.checkpoint_durable();
    saved
}

/// Guard: runs of one index have extents of their own at each depth. In those that all share, what one index keeps holds what others gave up.
#[test]
fn what_one_index_keeps_does_not_hold_the_extents_of_another() {
    let dir = Scratch::new("groups");
    let space = Space::open(real(), dir.path(), options(), None, Poison::new()).unwrap();
    let ways = [(1, RunDepth::Top), (2, RunDepth::Top), (1, RunDepth::Middle), (1, RunDepth::Bottom)];
    let mut kept: Vec<Vec<Arc<Block>>> = vec![Vec::new(); ways.len()];
    for round in 0..EXTENT * 4 / 8192 {
        for (way, (index, depth)) in ways.iter().enumerate() {
            let group = UpdateGroup::of_runs(IndexId(*index), *depth);
            let block = NewBlock { group, ..noise(round * 4 + way as u64, 8000) };
            kept[way].extend(space.write(vec![block]).unwrap());
        }
    }
    checkpoint(&space, &kept.concat());
    for way in (1..ways.len()).rev() {
        kept.remove(way).iter().for_each(|block| {
            block.unpublish();
        });
        checkpoint(&space, &[]);
        let (stats, gone) = (space.stats(), (ways.len() - way) as u64);
        // A little of its four extents is padding; one of them may be in the middle of being filled.
        assert!(stats.dead_bytes < (gone + 1) * EXTENT, "{way}: {stats:?}");
        assert!(stats.free_bytes + stats.pending_bytes >= gone * 3 * EXTENT, "{way}: {stats:?}");
    }
}

#[test]
fn blocks_come_back() {
    let dir = Scratch::new("blocks");
    for direct in [false, true] {
        let dir = dir.path().join(direct.to_string());
        RealVfs.create_dir_all(&dir).unwrap();
        let options = SpaceOptions { direct, ..options() };
        let space = Space::open(real(), &dir, options, None, Poison::new()).unwrap();
        let blocks = mixed(60);
        let written = space.write(blocks.clone()).unwrap();
        check(&space, &blocks, &written);
        let stored: u64 = written.iter().map(|b| b.stored_bytes()).sum();
        let stats = space.stats();
        assert_eq!((stats.held_bytes, stats.live_bytes, stats.direct && !direct), (stored, 0, false));
        let sum = stats.held_bytes + stats.dead_bytes + stats.open_bytes + stats.free_bytes + stats.pending_bytes;
        assert_eq!(sum + 4096, stats.file_bytes, "{stats:?}");
        assert!(space.write(Vec::new()).unwrap().is_empty());
        let too_long = vec![noise(1, space.payload_bytes_max() + 1)];
        assert!(matches!(space.write(too_long), Err(Fault::Limit { .. })));
    }
}

#[test]
fn a_call_is_few_writes() {
    let dir = Scratch::new("few-writes");
    let vfs = faulty::FaultyVfs::new(1 << 40);
    let space = Space::open(Arc::new(vfs.clone()), dir.path(), options(), None, Poison::new()).unwrap();
    let before = vfs.0.writes.load(Ordering::SeqCst);
    let _blocks = space.write((0..20).map(|i| noise(i, 2000)).collect()).unwrap();
    assert_eq!(vfs.0.writes.load(Ordering::SeqCst) - before, 1);
}

#[test]
fn writes_of_several_threads_are_under_way_at_once() {
    const THREADS: u64 = 4;
    let dir = Scratch::new("parallel");
    let vfs = faulty::FaultyVfs::new(1 << 40);
    let space = Space::open(Arc::new(vfs.clone()), dir.path(), options(), None, Poison::new()).unwrap();
    vfs.0.writes_meet.store(THREADS, Ordering::SeqCst);
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let space = space.clone();
            let body = move || {
                let blocks: Vec<_> = (0..5).map(|i| noise(n * 10 + i, 3000)).collect();
                let written = space.write(blocks.clone()).unwrap();
                check(&space, &blocks, &written);
                written
            };
            vfs::thread::spawn("writer", body).unwrap()
        })
        .collect();
    let mut all: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).map(|b| b.at()).collect();
    all.sort_by_key(|at| at.offset);
    assert!(all.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "no two blocks overlap");
}

#[test]
fn p9_what_the_manifest_does_not_reach_is_free_at_open() {
    let dir = Scratch::new("p9");
    let blocks = mixed(40);
    let (saved, published, lost) = {
        let space = open(dir.path(), None);
        let published = space.write(blocks.clone()).unwrap();
        // Some that no parent names yet are written before the manifest, some after.
        let mut lost = space.write(mixed(200)).unwrap();
        let saved = checkpoint(&space, &published);
        lost.extend(space.write(mixed(200)).unwrap());
        let published: Vec<BlockRef> = published.iter().map(|b| b.at()).collect();
        let lost: Vec<BlockRef> = lost.iter().map(|b| b.at()).collect();
        space.close();
        (saved, published, lost)
    };
    let space = open(dir.path(), Some(&saved));
    let live: u64 = published.iter().map(|at| u64::from(at.stored_bytes)).sum();
    assert_eq!((space.stats().held_bytes, space.stats().live_bytes), (live, live), "as saved, adopted or not");
    let adopted: Vec<_> = published.iter().map(|at| space.adopt(*at)).collect();
    assert!(adopted.iter().all(|b| b.is_published()));
    assert_eq!(space.stats().held_bytes, live, "adopting changes nothing");
    // New blocks go where nothing is named, and the first places taken are the lost ones.
    let extents: Vec<_> = published.iter().map(|at| space.extent_of(*at)).collect();
    let new = space.write(mixed(200)).unwrap();
    assert!(new.iter().all(|b| !extents.contains(&space.extent_of(b.at()))), "sealed extents are not appended to");
    assert!(new.iter().any(|b| lost.iter().any(|at| at.offset < b.at().end() && b.at().offset < at.end())));
    check(&space, &blocks, &adopted);
    checkpoint(&space, &[]);
    assert_eq!(space.stats().live_bytes, live, "the same blocks are published");
}

#[test]
fn p9_dropping_an_adopted_block_gives_its_extent_back_after_a_checkpoint() {
    let dir = Scratch::new("p9-drop");
    let saved = {
        let space = open(dir.path(), None);
        let blocks = space.write(mixed(40)).unwrap();
        let saved = checkpoint(&space, &blocks);
        let at: Vec<_> = blocks.iter().map(|b| b.at()).collect();
        space.close();
        (saved, at)
    };
    let space = open(dir.path(), Some(&saved.0));
    let adopted: Vec<_> = saved.1.iter().map(|at| space.adopt(*at)).collect();
    adopted.iter().for_each(|b| {
        b.unpublish();
    });
    drop(adopted);
    let stats = space.stats();
    assert_eq!((stats.held_bytes, stats.live_bytes > 0, stats.pending_bytes > 0), (0, true, true));
    let saved = checkpoint(&space, &[]);
    let stats = space.stats();
    assert_eq!((stats.live_bytes, stats.pending_bytes), (0, 0));
    space.give_back(true, || true).unwrap();
    drop(space);
    let space = open(dir.path(), Some(&saved));
    assert!(space.stats().file_bytes < 10 * EXTENT);
}

#[test]
fn after_close_drops_free_nothing() {
    let dir = Scratch::new("close");
    let space = open(dir.path(), None);
    let blocks = space.write(mixed(10)).unwrap();
    let held = space.stats().held_bytes;
    space.close();
    drop(blocks);
    assert_eq!(space.stats().held_bytes, held);
}

#[test]
fn extents_less_than_half_live_are_candidates() {
    let dir = Scratch::new("cleaning");
    let space = open(dir.path(), None);
    let mut blocks: Vec<_> = (0..60).flat_map(|i| space.write(vec![noise(i, 8000)]).unwrap()).collect();
    assert!(space.cleaning_candidates(u64::MAX, |_| true).is_empty());
    let emptiest = space.extent_of(blocks[0].at());
    let second = space.extent_of(blocks[15].at());
    assert_ne!(emptiest, second);
    let (mut of_emptiest, mut of_second) = (0, 0);
    blocks.retain(|b| {
        let extent = space.extent_of(b.at());
        of_emptiest += usize::from(extent == emptiest);
        of_second += usize::from(extent == second);
        (extent != emptiest || of_emptiest <= 1) && (extent != second || of_second <= 2)
    });
    let mut both = [emptiest, second];
    both.sort_unstable();
    assert_eq!(space.cleaning_candidates(u64::MAX, |_| true), both);
    assert_eq!(space.cleaning_candidates(u64::MAX, |extent| extent != emptiest), [second]);
    // As many as hold so much: the second one holds more than the first.
    assert_eq!(space.cleaning_candidates(EXTENT / 4, |_| true), [emptiest]);
    assert!(space.cleaning_candidates(0, |_| true).is_empty());
    // What every index has been through is no debt any more: what is left there does not move.
    let left: u64 =
        blocks.iter().filter(|b| both.contains(&space.extent_of(b.at()))).map(|b| u64::from(b.at().stored_bytes)).sum();
    space.expect_cleaners(2);
    let debt = space.cleaning_debt();
    assert_eq!((debt.to_move, debt.dead, debt.moved), (left, 2 * EXTENT - left, 0));
    space.note_passed(&both);
    assert_eq!(space.cleaning_debt(), debt);
    space.note_passed(&[second]);
    assert!(space.cleaning_debt().to_move < left && space.stats().cleaning_bytes > 0);
    space.note_passed(&[emptiest]);
    assert_eq!((space.cleaning_debt().to_move, space.stats().cleaning_bytes), (0, 0));
}

fn file(dir: &Path, write: bool) -> Arc<dyn vfs::File> {
    RealVfs.open(&dir.join(DATA_FILE), OpenHow { write, ..OpenHow::default() }).unwrap()
}

fn corruption(result: Result<(), Fault>) -> base::Corruption {
    match result {
        Err(Fault::Corrupt(c)) => *c,
        other => panic!("corruption expected, got {other:?}"),
    }
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    let dir = Scratch::new("flips");
    let space = open(dir.path(), None);
    let blocks = space.write(vec![noise(1, 300), noise(2, 200)]).unwrap();
    let at = blocks[1].at();
    let file = file(dir.path(), true);
    let mut good = vec![0; at.stored_bytes as usize];
    file.read_at(&mut good, at.offset).unwrap();
    let mut out = Vec::new();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        file.write_at(&bad, at.offset).unwrap();
        match space.read(at, BlockKind::Leaf, INDEX, &mut out) {
            Err(Fault::Corrupt(c)) => {
                assert!(c.file.ends_with(DATA_FILE) && c.offset == Some(at.offset) && c.index == Some(INDEX), "{c}");
            }
            // The version byte may claim a newer format, the scheme byte encryption.
            Err(Fault::Format { .. }) if bit / 8 == 2 => {}
            Err(Fault::Unsupported(_)) if bit / 8 == 5 => {}
            other => panic!("bit {bit}: {other:?}"),
        }
    }
    file.write_at(&good, at.offset).unwrap();
    space.read(at, BlockKind::Leaf, INDEX, &mut out).unwrap();
}

#[test]
fn a_block_in_the_wrong_place_or_of_another_time_is_found() {
    let dir = Scratch::new("misdirected");
    let space = open(dir.path(), None);
    let blocks = space.write(vec![noise(1, 300), noise(2, 300)]).unwrap();
    let (a, b) = (blocks[0].at(), blocks[1].at());
    let file = file(dir.path(), true);
    let mut bytes = vec![0; a.stored_bytes as usize];
    file.read_at(&mut bytes, a.offset).unwrap();
    file.write_at(&bytes, b.offset).unwrap();
    let mut out = Vec::new();
    let c = corruption(space.read(b, BlockKind::Leaf, INDEX, &mut out));
    assert_eq!(c.what, "block checksum", "misdirected: its address is another");
    // Stale: a whole block that was right for this address once, under another parent.
    let stale = BlockRef { crc: a.crc ^ 1, ..a };
    let c = corruption(space.read(stale, BlockKind::Leaf, INDEX, &mut out));
    assert_eq!(c.what, "block checksum named by its parent");
    let c = corruption(space.read(a, BlockKind::Inner, INDEX, &mut out));
    assert_eq!(c.what, "block kind");
    let c = corruption(space.read(a, BlockKind::Leaf, IndexId(8), &mut out));
    assert_eq!(c.what, "block owner");
}

#[test]
fn addresses_that_were_never_handed_out_are_refused() {
    let dir = Scratch::new("addresses");
    let space = open(dir.path(), None);
    let at = space.write(vec![noise(1, 300)]).unwrap()[0].at();
    let mut out = Vec::new();
    for bad in [
        BlockRef { offset: 0, ..at },
        BlockRef { offset: u64::MAX, ..at },
        BlockRef { offset: u64::MAX - EXTENT + 1, stored_bytes: EXTENT as u32, ..at },
        BlockRef { offset: at.offset + EXTENT - 1, ..at },
        BlockRef { offset: 1000 * EXTENT, ..at },
        BlockRef { stored_bytes: 0, ..at },
        BlockRef { stored_bytes: u32::MAX, ..at },
        BlockRef { stored_bytes: at.stored_bytes + 1, ..at },
        BlockRef { stored_bytes: at.stored_bytes - 1, ..at },
    ] {
        corruption(space.read(bad, BlockKind::Leaf, INDEX, &mut out));
        drop(space.adopt(BlockRef { offset: 1000 * EXTENT, ..at }));
    }
}

fn open_error(dir: &Path, saved: Option<&[u8]>) -> Fault {
    Space::open(real(), dir, options(), saved, Poison::new()).expect_err("opening is refused")
}

#[test]
fn what_is_not_this_databases_file_is_refused() {
    let dir = Scratch::new("refuse");
    let saved = {
        let space = open(dir.path(), None);
        let blocks = space.write(mixed(100)).unwrap();
        let saved = checkpoint(&space, &blocks);
        space.close();
        saved
    };
    // The manifest is missing: nothing is created over it.
    assert!(open_error(dir.path(), None).to_string().contains("no manifest"));
    // The saved state is damaged, or of a newer format.
    for i in 0..saved.len() {
        let mut bad = saved.clone();
        bad[i] ^= 0x10;
        assert!(matches!(open_error(dir.path(), Some(&bad)), Fault::Corrupt(_) | Fault::Format { .. }));
        assert!(matches!(open_error(dir.path(), Some(&saved[..i])), Fault::Corrupt(_)));
    }
    // The file is another database's.
    let other = Scratch::new("refuse-other");
    drop(open(other.path(), None));
    assert!(open_error(other.path(), Some(&saved)).to_string().contains("database id"));
    // The file is cut, damaged, of a newer format, something else, gone.
    let file = file(dir.path(), true);
    let len = file.len().unwrap();
    let mut header = vec![0; 4096];
    file.read_at(&mut header, 0).unwrap();
    for (at, expected) in [(0, "data file"), (8, "checksum"), (20, "checksum"), (4000, "checksum")] {
        let mut bad = header.clone();
        bad[at] = bad[at].wrapping_add(1);
        file.write_at(&bad, 0).unwrap();
        let fault = open_error(dir.path(), Some(&saved)).to_string();
        assert!(fault.contains(expected), "{fault}");
    }
    let mut newer = header.clone();
    newer[8] += 1;
    let crc = base::checksum::crc32c(&newer[..4092]);
    newer[4092..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&newer, 0).unwrap();
    assert!(matches!(open_error(dir.path(), Some(&saved)), Fault::Format { found: 2, supported: 1, .. }));
    file.write_at(&header, 0).unwrap();
    drop(open(dir.path(), Some(&saved)));
    file.set_len(2 * EXTENT).unwrap();
    assert!(open_error(dir.path(), Some(&saved)).to_string().contains("length"));
    file.set_len(100).unwrap();
    assert!(open_error(dir.path(), Some(&saved)).to_string().contains("header"));
    assert!(len > 2 * EXTENT);
    RealVfs.remove(&dir.path().join(DATA_FILE)).unwrap();
    assert!(open_error(dir.path(), Some(&saved)).to_string().contains("no file"));
    let bad = SpaceOptions { extent_bytes: 3 << 20, ..options() };
    assert!(matches!(Space::open(real(), dir.path(), bad, None, Poison::new()), Err(Fault::Limit { .. })));
}

#[test]
fn a_block_in_memory_is_charged_while_somebody_holds_it() {
    let dir = Scratch::new("charge");
    let budget = Budget::new(1 << 20);
    let options = SpaceOptions { budget: Some(budget.clone()), ..options() };
    let space = Space::open(real(), dir.path(), options, None, Poison::new()).unwrap();
    let written = space.write(mixed(10)).unwrap();
    let one = budget.used(Class::Inner) / 10;
    assert!(one >= size_of::<Block>() as u64, "{one} bytes for a block");
    let beside = space.write(mixed(3)).unwrap();
    written[0].set_beside(beside.clone());
    drop(beside);
    assert_eq!(budget.used(Class::Inner), 13 * one, "what a block holds stays");
    let known = |block: &Block| block.beside().map(<[_]>::len);
    assert_eq!((known(&written[0]), known(&written[1])), (Some(3), None));
    drop(written);
    assert_eq!(budget.total(), 0);
}
