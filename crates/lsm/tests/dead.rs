//! What deletes leave behind does not slow down who reads there: dead spans [A25, C7]. The races of learners and writers, each with the
//! guard that it needs, are schedules under the simulator; what is passed over is counted.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;

use crate::support::{ALL, Durable, env, env_of, flush, key, keys, put, settle, upkeep};
use base::{CommitTs, GcView, Lsn};
use index::{Batch, Direction, EntryBatch, Index, IndexEnv, Op, ReadAt, Reservation, Upkeep};
use store::Run;
use trefoil_lsm::Lsm;
use vfs::sim::{Config, Handle, Simulation};

/// Nobody collects anything: an old snapshot is open.
fn pinned() -> Upkeep<'static> {
    Upkeep {
        view: GcView::new(CommitTs(1 << 40), vec![CommitTs(16)]),
        applied: Lsn(1 << 40),
        log: &Durable,
        tight: false,
    }
}

fn settle_pinned(index: &Lsm) {
    while index.maintain(&pinned()).unwrap().more {}
}

fn apply(index: &Lsm, ts: u64, batch: &Batch) {
    let Reservation::Direct(room) = index.reserve(batch).unwrap() else { panic!("small") };
    index.apply(batch, room, CommitTs(ts), &GcView::keep_all());
}

fn delete(index: &Lsm, ts: u64, rows: std::ops::Range<u32>) {
    let rows: Vec<_> = rows.map(key).collect();
    apply(index, ts, &rows.iter().map(|key| (key.as_slice(), Op::Delete)).collect());
}

/// The first key in a direction, as a cursor that is asked for a few finds it, and how many entries were passed over for it.
fn first(index: &Lsm, at: ReadAt, direction: Direction) -> (Option<u32>, u64) {
    let before = index.stats().passed;
    let mut cursor = index.cursor(at, ALL, direction);
    let mut out = EntryBatch::new();
    let mut more = true;
    while more && out.is_empty() {
        more = cursor.fill(&mut out, 4).unwrap();
    }
    drop(cursor);
    let first = (!out.is_empty()).then(|| u32::from_be_bytes(out.key(0).try_into().unwrap()));
    (first, index.stats().passed - before)
}

const AT_REST: ReadAt = ReadAt::Snapshot(CommitTs(1 << 39));
const ROWS: u32 = 60_000;
const LEFT: u32 = 600;
/// Entries that the first reader behind a mass delete may pass over: a few calls of a cursor.
const FEW: u64 = 2500;

/// Rows at 16, most of them deleted from 1024 on, in commits of some thousand or as one run; who deletes clears away.
fn deserted(env: &IndexEnv, in_one: bool) -> Arc<Lsm> {
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 16, 0..ROWS, |n| vec![n as u8; 60]);
    flush(&index);
    settle_pinned(&index);
    if in_one {
        index.attach(Run::from_sorted((0..ROWS - LEFT).map(|n| (key(n), None::<&str>))), CommitTs(1024));
        index.clear_away(&pinned(), CommitTs(1024), u64::MAX).unwrap();
    } else {
        for from in (0..ROWS - LEFT).step_by(3000) {
            delete(&index, 1024 + u64::from(from), from..(from + 3000).min(ROWS - LEFT));
            index.clear_away(&pinned(), CommitTs(1024 + u64::from(from)), 1 << 18).unwrap();
        }
    }
    index
}

/// First and later reads of the first key behind a mass delete, an old snapshot open, in memory and once it is in runs, and after a reopening.
/// Guards: `LsmCursor::hop`, `Core::clear_away`, `State::dead`.
#[test]
fn c7_the_first_read_behind_a_mass_delete_passes_over_little() {
    for in_one in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path(), 16 << 10, 64 << 20);
        let index = deserted(&env, in_one);
        let check = |index: &Lsm, when: &str| {
            for _ in 0..3 {
                for at in [AT_REST, ReadAt::Newest] {
                    let (found, passed) = first(index, at, Direction::Forward);
                    assert_eq!(found, Some(ROWS - LEFT), "{when}");
                    assert!(passed <= FEW, "{passed} {when}, in one: {in_one}");
                }
            }
            assert_eq!(first(index, ReadAt::Snapshot(CommitTs(16)), Direction::Forward).0, Some(0), "{when}");
            assert_eq!(keys(index, AT_REST, Direction::Forward).len(), LEFT as usize, "{when}");
            let down = index.stats().passed;
            assert_eq!(keys(index, AT_REST, Direction::Backward).len(), LEFT as usize, "{when}");
            assert!(index.stats().passed - down <= FEW, "{when}, in one: {in_one}");
        };
        check(&index, "at once");
        flush(&index);
        settle_pinned(&index);
        check(&index, "in runs");
        let state = index.checkpoint(&pinned()).unwrap();
        let saved = env.space.save();
        env.space.checkpoint_durable();
        drop((index, env));
        let env = env_of(dir.path(), 16 << 10, 64 << 20, Some(&saved));
        let index = Lsm::open(env, Some(&state.bytes)).unwrap();
        let loads = index.stats().loads;
        check(&index, "after a reopening");
        let loads = index.stats().loads - loads;
        assert!(index.verify().unwrap().problems.is_empty());
        // The old snapshot reads all of it once, in `first` and not further: a few blocks, and what is left.
        assert!(loads < 60, "{loads} blocks were read");
    }
}

/// Nobody has said that much was deleted: the first reader passes over it, and the next one does not. Guard: `LsmCursor::note_passed`.
#[test]
fn a_reader_learns_for_the_next_one() {
    for direction in [Direction::Forward, Direction::Backward] {
        let dir = tempfile::tempdir().unwrap();
        let index = Lsm::open(env(dir.path(), 16 << 10, 64 << 20), None).unwrap();
        put(&index, 16, 0..ROWS, |n| vec![n as u8; 60]);
        flush(&index);
        let gone = if direction == Direction::Forward { 0..ROWS - LEFT } else { LEFT..ROWS };
        // A few at a time, as a queue loses them: too few for a hint.
        for n in gone.clone() {
            delete(&index, 1024 + u64::from(n), n..n + 1);
        }
        let expected = if direction == Direction::Forward { ROWS - LEFT } else { LEFT - 1 };
        let (found, passed) = first(&index, AT_REST, direction);
        assert!(found == Some(expected) && passed > u64::from(ROWS), "{found:?} {passed}");
        for _ in 0..3 {
            let (found, passed) = first(&index, AT_REST, direction);
            assert!(found == Some(expected) && passed <= FEW, "{direction:?}: {found:?} {passed}");
        }
        let other = if direction == Direction::Forward { Direction::Backward } else { Direction::Forward };
        assert_eq!(keys(&index, AT_REST, other).len(), LEFT as usize);
        assert!(index.verify().unwrap().problems.is_empty());
    }
}

/// Rows are put back into the span, one here and one there: each of them is found, and the rest of the span is hopped over all the same.
#[test]
fn what_is_put_back_is_found_and_costs_little() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 16 << 10, 64 << 20);
    let index = deserted(&env, false);
    let mut back = Vec::new();
    for (i, n) in (0..ROWS - LEFT).rev().step_by(1777).enumerate() {
        put(&index, 1 << 20 | (i as u64 * 16), [n].into_iter(), |_| b"again".to_vec());
        back.push(n);
        for at in [AT_REST, ReadAt::Newest] {
            let (found, passed) = first(&index, at, Direction::Forward);
            assert!(found == Some(n) && passed <= FEW, "{found:?} for {n}, {passed}");
        }
    }
    back.reverse();
    back.extend(ROWS - LEFT..ROWS);
    assert_eq!(keys(&index, AT_REST, Direction::Forward), back);
    let before = index.stats().passed;
    assert_eq!(keys(&index, AT_REST, Direction::Forward), back);
    let passed = index.stats().passed - before;
    assert!(passed < u64::from(ROWS) / 2, "{passed}");
    assert!(index.verify().unwrap().problems.is_empty());
}

/// All is deleted, and rows are appended behind it: the span of its deletes ends with the last of them, so that none of the rows cuts it.
/// Guards, either of them: what is behind them is a span of its own, in `DeadSpans::learn`; `share_below` of a span without an end.
#[test]
fn rows_appended_behind_a_desert_leave_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let index = deserted(&env(dir.path(), 16 << 10, 64 << 20), false);
    delete(&index, 1 << 20, ROWS - LEFT..ROWS);
    index.clear_away(&pinned(), CommitTs(1 << 20), 1 << 18).unwrap();
    assert_eq!(first(&index, AT_REST, Direction::Forward).0, None);
    let spans = index.stats().dead_spans;
    for n in 0..3000 {
        put(&index, (1 << 20) + 16 * u64::from(n + 1), [ROWS + 10 + n].into_iter(), |_| b"new".to_vec());
    }
    assert!(index.stats().dead_spans <= spans);
    let (found, passed) = first(&index, AT_REST, Direction::Forward);
    assert!(found == Some(ROWS + 10) && passed <= FEW, "{found:?} {passed}");
    let (before, down) = (index.stats().passed, keys(&index, AT_REST, Direction::Backward));
    assert!(down.len() == 3000 && index.stats().passed - before <= FEW, "{}", index.stats().passed - before);
    assert!(index.verify().unwrap().problems.is_empty());
}

/// Deletes that lie scattered among rows are looked at, and it is seen soon that nothing is to be learned. Guards: `LIVE_MAX`; the first call of a
/// look asks for few.
#[test]
fn scattered_deletes_are_given_up_soon() {
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 16 << 10, 64 << 20), None).unwrap();
    put(&index, 16, 0..ROWS, |n| vec![n as u8; 60]);
    flush(&index);
    let some: Vec<_> = (0..ROWS).step_by(50).map(key).collect();
    apply(&index, 1024, &some.iter().map(|key| (key.as_slice(), Op::Delete)).collect());
    let looked = index.clear_away(&pinned(), CommitTs(1024), 1 << 18).unwrap();
    assert!(looked <= 200, "{looked}");
    assert_eq!(index.stats().dead_spans, 0);
}

/// A commit of a few deletes looks at as little as that is, however much others have deleted among them and left: that is upkeep's. Guards: `take_hint_of`
/// in `Core::clear_away`; its bound by the commit's own deletes; what a piece has looked at in `Core::explore_piece`.
#[test]
fn a_commit_looks_only_after_what_it_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 16 << 10, 64 << 20), None).unwrap();
    put(&index, 16, 0..ROWS, |n| vec![n as u8; 60]);
    flush(&index);
    settle_pinned(&index);
    // Most rows, and whoever deleted them did not look.
    let gone: Vec<_> = (0..ROWS - LEFT).filter(|n| n % 800 != 0).map(key).collect();
    for (i, some) in gone.chunks(3000).enumerate() {
        apply(&index, 1024 + 16 * i as u64, &some.iter().map(|key| (key.as_slice(), Op::Delete)).collect());
    }
    let own: Vec<_> = (0..ROWS - LEFT).step_by(800).map(key).collect();
    assert!(own.len() > 64);
    apply(&index, 1 << 20, &own.iter().map(|key| (key.as_slice(), Op::Delete)).collect());
    let looked = index.clear_away(&pinned(), CommitTs(1 << 20), 1 << 18).unwrap();
    assert!((1..=1000).contains(&looked), "{looked} for {} deletes", own.len());
    assert_eq!(index.clear_away(&pinned(), CommitTs(1), 1 << 18).unwrap(), 0, "nobody's");
    settle_pinned(&index);
    let (found, passed) = first(&index, AT_REST, Direction::Forward);
    assert!(found == Some(ROWS - LEFT) && passed <= FEW, "{found:?} {passed}");
}

/// Who looks for what is dead reads keys, not large values: neither those that were deleted nor those behind them. Guard: `keys_only` in
/// `Core::look`, at each kind of source.
#[test]
fn a_look_reads_no_large_value() {
    const VALUE_BYTES: usize = 200 << 10;
    for in_one in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path(), 16 << 10, 64 << 20);
        let index = Lsm::open(env.clone(), None).unwrap();
        for n in 0..150 {
            put(&index, 16, [n].into_iter(), |n| vec![n as u8; VALUE_BYTES]);
            flush(&index);
        }
        settle_pinned(&index);
        let before = env.space.stats().read_bytes;
        if in_one {
            index.attach(Run::from_sorted((0..100).map(|n| (key(n), None::<&str>))), CommitTs(1024));
        } else {
            delete(&index, 1024, 0..100);
        }
        assert!(index.clear_away(&pinned(), CommitTs(1024), 1 << 18).unwrap() >= 100);
        assert!(index.stats().dead_spans > 0);
        let read = env.space.stats().read_bytes - before;
        assert!(read < VALUE_BYTES as u64, "{read} bytes were read");
        assert_eq!(first(&index, AT_REST, Direction::Forward).0, Some(100));
    }
}

/// Merges have dropped all that lay in a span: it goes, and one where something still lies stays. Guard: `Core::forget_hollow`.
#[test]
fn spans_of_nothing_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let index = deserted(&env(dir.path(), 16 << 10, 64 << 20), false);
    flush(&index);
    settle_pinned(&index);
    // Merges, of which an old snapshot keeps them from dropping anything.
    for n in 0..8u32 {
        put(&index, (1 << 20) + u64::from(n), ROWS - LEFT..ROWS, |n| vec![n as u8; 60]);
        flush(&index);
        settle_pinned(&index);
    }
    let merged: u64 = index.stats().levels.iter().map(|level| level.merged_bytes).sum();
    assert!(merged > 0 && index.stats().dead_spans > 0, "{merged} bytes merged, {}", index.draw());
    let (found, passed) = first(&index, AT_REST, Direction::Forward);
    assert!(found == Some(ROWS - LEFT) && passed <= FEW, "{found:?} {passed}");
    // It is closed.
    settle(&index);
    assert_eq!((index.stats().dead_versions, index.stats().dead_spans), (0, 0), "{}", index.draw());
    assert_eq!(first(&index, AT_REST, Direction::Forward), (Some(ROWS - LEFT), 0));
}

/// Deletes come as fast as upkeep looks at them; it flushes all the same. Guard: `has_looked` in `Core::maintain`.
#[test]
fn hints_do_not_hold_up_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 16 << 10, 64 << 20), None).unwrap();
    put(&index, 16, 0..ROWS, |n| vec![n as u8; 400]);
    let before = index.stats().traffic.segment_bytes;
    for n in 0..600u32 {
        delete(&index, 1024 + u64::from(n) * 16, n * 100..n * 100 + 80);
        index.maintain(&pinned()).unwrap();
    }
    assert!(index.stats().traffic.segment_bytes > before);
}

/// A key of which nothing is alive is deleted again and again, as in a queue whose front moves: what was learned stays of use, and of many
/// spans few are kept.
#[test]
fn a_queue_is_read_at_its_front() {
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 16 << 10, 64 << 20), None).unwrap();
    let mut most = 0;
    for n in 0..20_000u32 {
        put(&index, 16 + u64::from(n) * 32, [n + 50].into_iter(), |_| vec![7; 30]);
        delete(&index, 32 + u64::from(n) * 32, n..n + 1);
        if n % 10 == 9 {
            let (found, passed) = first(&index, AT_REST, Direction::Forward);
            assert_eq!(found, Some(if n < 50 { 50 } else { n + 1 }));
            most = most.max(passed);
        }
    }
    assert!(most <= 2 * FEW, "{most}");
    assert!(index.stats().dead_spans < 100, "{}", index.stats().dead_spans);
}

fn simulated(body: impl FnOnce(&Handle, Arc<Lsm>) + Send + 'static) {
    Simulation::new(1, Config::default()).run(|sim| {
        let dir = tempfile::tempdir().unwrap();
        let index = Lsm::open(env(dir.path(), 1024, 64 << 20), None).unwrap();
        put(&index, 16, 0..300, |_| b"row".to_vec());
        delete(&index, 1024, 0..200);
        body(sim, index);
    });
}

fn in_thread(index: &Arc<Lsm>, body: impl FnOnce(&Lsm) + Send + 'static) -> vfs::thread::JoinHandle<()> {
    let index = index.clone();
    vfs::thread::spawn("other", move || body(&index)).unwrap()
}

fn assert_finds(index: &Lsm, back: &[u32]) {
    let expected: Vec<u32> = back.iter().copied().chain(200..300).collect();
    for at in [AT_REST, ReadAt::Newest] {
        assert_eq!(keys(index, at, Direction::Forward), expected);
        let down: Vec<u32> = keys(index, at, Direction::Backward).into_iter().rev().collect();
        assert_eq!(down, expected);
    }
    assert!(index.verify().unwrap().problems.is_empty());
    assert!(index.stats().dead_spans > 0, "something was learned");
}

/// Every hint that commits of these tests have left.
fn learn(index: &Lsm) {
    for ts in [512, 1024, 1040, 1056] {
        while index.clear_away(&upkeep(), CommitTs(ts), 1 << 18).unwrap() > 0 {}
    }
}

/// A put comes between what a learner has read and what he says. Guard: the watch in `DeadSpans::learn`.
#[test]
fn a_put_beside_a_learner_is_not_hidden() {
    simulated(|sim, index| {
        let gate = sim.hold("lsm.dead_seen");
        let learner = in_thread(&index, learn);
        gate.wait_reached();
        put(&index, 2048, [77].into_iter(), |_| b"again".to_vec());
        gate.open();
        learner.join().unwrap();
        assert_finds(&index, &[77]);
    });
}

/// A put is in the memtable, and has told nobody; a learner goes through all of it. And one that is about to be: the learner is done before it is
/// there. Guard: spans hear of a put behind it, and are cut (`note_puts`).
#[test]
fn a_put_under_way_is_not_hidden() {
    for point in ["lsm.applying", "lsm.applied"] {
        simulated(move |sim, index| {
            let gate = sim.hold(point);
            let writer = in_thread(&index, |index| put(index, 2048, [77].into_iter(), |_| b"again".to_vec()));
            gate.wait_reached();
            learn(&index);
            gate.open();
            writer.join().unwrap();
            assert_finds(&index, &[77]);
        });
    }
}

/// A reader learns as of the newest, not as of his snapshot: a row that was put above that is another one's. Guard: `at` in `explore_piece`.
#[test]
fn a_reader_of_before_hides_nothing_from_later_ones() {
    simulated(|_, index| {
        put(&index, 2048, [77].into_iter(), |_| b"again".to_vec());
        flush(&index);
        assert_eq!(keys(&index, ReadAt::Snapshot(CommitTs(1040)), Direction::Forward), (200..300).collect::<Vec<_>>());
        assert_finds(&index, &[77]);
    });
}

/// Who is older than the deletes sees what they deleted. Guard: `from` in `DeadSpans::behind` and `just_below`.
#[test]
fn an_older_reader_does_not_hop() {
    simulated(|_, index| {
        learn(&index);
        assert!(index.stats().dead_spans > 0);
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(keys(&index, ReadAt::Snapshot(CommitTs(1023)), direction).len(), 300);
        }
    });
}

/// A run with puts is attached late, with a timestamp below that of the deletes beside it, as a build of an index does. Guard: `note_attached`.
#[test]
fn what_is_attached_late_is_not_hidden() {
    simulated(|sim, index| {
        delete(&index, 1040, 400..450);
        delete(&index, 1040, 451..500);
        learn(&index);
        index.attach(Run::from_sorted([(key(450), Some("late"))]), CommitTs(8));
        assert_eq!(keys(&index, AT_REST, Direction::Forward), (200..300).chain([450]).collect::<Vec<_>>());
        assert_eq!(keys(&index, AT_REST, Direction::Backward)[0], 450);
        settle(&index);
        assert_eq!(keys(&index, AT_REST, Direction::Backward)[0], 450);
        // Beside a learner.
        put(&index, 1050, (600..650).chain(651..700), |_| b"row".to_vec());
        delete(&index, 1056, 600..650);
        delete(&index, 1056, 651..700);
        let gate = sim.hold("lsm.dead_seen");
        let learner = in_thread(&index, learn);
        gate.wait_reached();
        index.attach(Run::from_sorted([(key(650), Some("late"))]), CommitTs(8));
        gate.open();
        learner.join().unwrap();
        assert_eq!(keys(&index, AT_REST, Direction::Backward)[0], 650);
    });
}

/// What a checkpoint says to be dead is so without what the log may lose: a span whose deletes lie above F stays out of it. Guard: `retain` of
/// spans in `Core::checkpoint`.
#[test]
fn a_checkpoint_says_nothing_that_hangs_on_a_delete_above_f() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 1024, 64 << 20);
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 16, 0..300, |_| b"row".to_vec());
    delete(&index, 512, 0..100);
    learn(&index);
    flush(&index);
    // Runs in memory are no part of a state: what lies above the first of them is the log's.
    index.attach(Run::from_sorted((100..200).map(|n| (key(n), None::<&str>))), CommitTs(1024));
    learn(&index);
    assert_eq!(first(&index, AT_REST, Direction::Forward).0, Some(200));
    let state = index.checkpoint(&upkeep()).unwrap();
    let saved = env.space.save();
    env.space.checkpoint_durable();
    assert!(state.skip < Lsn(1024));
    drop((index, env));
    // The log ends before the second commit.
    let env = env_of(dir.path(), 1024, 64 << 20, Some(&saved));
    let index = Lsm::open(env, Some(&state.bytes)).unwrap();
    // The first commit's, and what is between its last delete and the next row.
    assert_eq!(index.stats().dead_spans, 2);
    assert_eq!(keys(&index, AT_REST, Direction::Forward), (100..300).collect::<Vec<_>>());
    assert!(index.verify().unwrap().problems.is_empty());
}
