//! Commits that a server orders (rule A23): ready, ordered, finished, each step with what may come between.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{Database, Durability, Error, Index, IndexOptions, Isolation, Options};
use vfs::fault::{Action, Class, Rule};

fn prepare(db: &Database, index: &Index, key: &[u8], xid: &[u8]) {
    let mut tx = db.begin().unwrap();
    tx.put(index, key, xid).unwrap();
    tx.prepare(xid).unwrap();
}

/// A23 (a): ordering takes the place and does nothing else; it shows after it is finished, and a snapshot taken between
/// shows exactly what was ordered before it. Guards: `Snapshot::check` and `read_at` wait; `take_ahead` takes the log's end.
#[test]
fn a23a_a_snapshot_where_commits_are_ordered_shows_what_was_ordered() {
    simulate(|sim| {
        let db = open(&disk());
        let i = index(&db, "i");
        for (key, xid) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
            prepare(&db, &i, key, xid);
        }
        let ready = |xid: &[u8]| db.ready_prepared(xid).unwrap();
        let (third, first, second) = (ready(b"3"), ready(b"1"), ready(b"2"));
        let (first, second) = (first.order(), second.order());
        let (snapshot, tx) = (db.snapshot_after_reserved().unwrap(), db.begin().unwrap());
        assert_eq!(tx.snapshot_after_reserved().unwrap(), second.ts());
        let third = third.order();
        assert!(first.ts() < second.ts() && second.ts() < third.ts());
        assert_eq!(get(&db, &i, b"a"), None, "it is not applied");
        // Its owner is in the middle of it: who reads waits, and does not read without it.
        let gate = sim.hold("commit.applied");
        let owner = spawn("owner", move || first.finish(Durability::Buffered).unwrap());
        gate.wait_reached();
        let index = i.clone();
        let reader = spawn("reader", move || [b"a", b"b", b"c"].map(|key| snapshot.get(&index, key).unwrap()));
        let index = i.clone();
        let dump = spawn("dump", move || tx.range(&index, ..).and_then(trefoil::Cursor::collect).unwrap().len());
        sleep(20);
        gate.open();
        owner.join().unwrap();
        let ([a, b, c], keys) = (reader.join().unwrap(), dump.join().unwrap());
        assert_eq!((a, b, c, keys), (Some(b"1".to_vec()), Some(b"2".to_vec()), None, 2));
        let (last, before) = (third.ts(), second.ts());
        assert_eq!(third.finish(Durability::Sync).unwrap(), last);
        assert_eq!(second.finish(Durability::Sync).unwrap(), before);
        assert_eq!(all(&db, &i).len(), 3);
        let below = db.begin_with(Isolation::ReadCommitted).unwrap();
        assert!(below.snapshot_after_reserved().unwrap() >= last);
        sound(&db);
    });
}

/// A23 (a): nothing is asked of the disk between the order and its end. Guard: step 1b is in `Engine::ready`.
#[test]
fn a23a_ordering_asks_nothing_of_the_disk() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        (0..30).for_each(|n| fill(&db, &i, n * 100, n * 100 + 100, 60).unwrap());
        prepare(&db, &i, &777u32.to_be_bytes(), b"1");
        drop(i);
        let disk = cut(&disk, db);
        let db = Database::open("/db", Options { background: false, ..options(&disk) }).unwrap();
        let i = db.index("i").unwrap();
        let ready = db.ready_prepared(b"1").unwrap();
        disk.faults().add(Rule::new(Action::Eio).forever());
        let ts = ready.order().finish(Durability::Buffered).unwrap();
        assert_eq!(disk.faults().fired(), 0);
        disk.faults().clear();
        assert_eq!(get(&db, &i, &777u32.to_be_bytes()).unwrap(), b"1");
        assert!(db.snapshot().unwrap().ts() >= ts);
    });
}

/// A23 (b): the log fails between the order, or the getting ready, and the end: the commit shows all the same, and after a
/// reopening it is there, or prepared as before; nobody loses it. Guard: `order` does not look at the poison.
#[test]
fn a23b_what_is_ordered_shows_although_the_log_fails() {
    for (fails_before_order, durability) in [
        (true, Durability::Buffered),
        (false, Durability::Buffered),
        (true, Durability::Sync),
        (false, Durability::Sync),
    ] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            prepare(&db, &i, b"a", b"1");
            prepare(&db, &i, b"b", b"2");
            let fail = || {
                disk.faults().add(Rule::new(Action::Eio).on(Class::Write).forever());
                // Until the log's ring is half full, which is when a `Buffered` commit looks at the log.
                let failed = (0..200).find_map(|_| put(&db, &i, b"c", &[1; 1000], Durability::Buffered).err());
                assert!(failed.is_some());
            };
            let ready = db.ready_prepared(b"1").unwrap();
            if fails_before_order {
                fail();
            }
            let ordered = ready.order();
            if !fails_before_order {
                fail();
            }
            let ts = ordered.ts();
            match ordered.finish(durability) {
                Ok(at) => assert!(durability == Durability::Buffered && at == ts),
                Err(Error::CommitOutcomeUnknown { ts: at, .. }) => assert!(durability == Durability::Sync && at == ts),
                other => panic!("{other:?}"),
            }
            assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
            assert!(matches!(db.ready_prepared(b"2").map(|_| ()), Err(Error::Poisoned { .. })));
            disk.faults().clear();
            drop(i);
            let db = open(&cut(&disk, db));
            let i = db.index("i").unwrap();
            let prepared = db.prepared().unwrap().len();
            let there = get(&db, &i, b"a").is_some();
            assert_eq!(prepared, if there { 1 } else { 2 });
            if !there {
                db.commit_prepared(b"1").unwrap();
            }
            assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
        });
    }
}

/// A23 (d): a commit by name whose sync failed is of unknown outcome, and shows. Guard: `finish_ordered` passes on what
/// `finish_commit` says.
#[test]
fn a23d_a_commit_by_name_that_could_not_be_synced_is_of_unknown_outcome() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        prepare(&db, &i, b"a", b"1");
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).forever());
        let outcome = db.commit_prepared(b"1");
        assert!(matches!(outcome, Err(Error::CommitOutcomeUnknown { .. })), "{outcome:?}");
        assert_eq!(get(&db, &i, b"a").unwrap(), b"1");
        assert!(matches!(db.commit_prepared(b"1"), Err(Error::Poisoned { .. })));
        disk.faults().clear();
        drop(i);
        let db = open(&cut(&disk, db));
        let there = get(&db, &db.index("i").unwrap(), b"a").is_some();
        assert_eq!(db.prepared().unwrap().len(), usize::from(!there));
    });
}

/// What waits for `visible` applies what is ordered before it: one thread that has both goes on, and so does everybody
/// when an owner forgets its commit. Guard: `wait_visible` applies.
#[test]
fn whoever_waits_applies_what_is_ordered_before() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        for n in 0..4u8 {
            prepare(&db, &i, &[n], &[n + 1]);
        }
        let ordered: Vec<_> = (0..3u8).map(|n| db.ready_prepared(&[n + 1]).unwrap().order()).collect();
        put(&db, &i, b"z", b"z", Durability::Sync).unwrap();
        assert_eq!(all(&db, &i).len(), 4);
        // Its locks are free, whoever applied it.
        put(&db, &i, &[0], b"again", Durability::Sync).unwrap();
        drop(ordered);
        let forgotten = db.ready_prepared(&[4]).unwrap().order();
        db.close().unwrap();
        drop(forgotten);
        drop(i);
        drop(db);
        let db = open(&disk);
        assert_eq!(all(&db, &db.index("i").unwrap()).len(), 5);
        assert!(db.prepared().unwrap().is_empty());
        sound(&db);
    });
}

/// Ready commits are taken back, one at a time has a name, and the room they hold in the log has an end.
#[test]
fn a_ready_commit_that_is_dropped_leaves_it_prepared() {
    simulate(|_| {
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk()) }).unwrap();
        let i = index(&db, "i");
        for n in 0..400u32 {
            prepare(&db, &i, &n.to_be_bytes(), &n.to_be_bytes());
        }
        let ready = db.ready_prepared(&7u32.to_be_bytes()).unwrap();
        assert!(matches!(db.commit_prepared(&7u32.to_be_bytes()), Err(Error::InvalidArgument(_))));
        assert!(matches!(db.rollback_prepared(&7u32.to_be_bytes()), Err(Error::InvalidArgument(_))));
        drop(ready);
        let mut all_ready = Vec::new();
        let refused = (0..400u32).find_map(|n| db.ready_prepared(&n.to_be_bytes()).map(|r| all_ready.push(r)).err());
        assert!(matches!(refused, Some(Error::Limit { .. })), "{refused:?}");
        assert!(all_ready.len() > 50, "{}", all_ready.len());
        put(&db, &i, b"z", &[1; 1000], Durability::Sync).unwrap();
        all_ready.drain(..).for_each(|ready| drop(ready.order()));
        for waiting in db.prepared().unwrap() {
            db.rollback_prepared(&waiting.xid).unwrap();
        }
        assert!(all(&db, &i).len() > 50);
        sound(&db);
    });
}

/// Commits that are ready hold a part of the pages at most; what is more becomes runs. Guard: `shares_of` counts.
#[test]
fn commits_that_are_ready_leave_pages_to_others() {
    simulate(|_| {
        let disk = disk();
        let small = Options { budget_bytes: 2 << 20, ..options(&disk) };
        let db = Database::open("/db", small).unwrap();
        let i = db.create_index("i", IndexOptions { node_bytes: 4096, ..IndexOptions::default() }).unwrap();
        for n in 0..60 {
            fill(&db, &i, n * 100, n * 100 + 100, 900).unwrap();
        }
        db.settle().unwrap();
        let sets: Vec<[u8; 1]> = (0..40u8).map(|n| [n]).collect();
        for xid in &sets {
            let mut tx = db.begin().unwrap();
            for at in 0..30u32 {
                tx.put(&i, &(u32::from(xid[0]) * 4 + at * 200).to_be_bytes(), b"new").unwrap();
            }
            tx.prepare(xid).unwrap();
        }
        let ready: Vec<_> = sets.iter().map(|xid| db.ready_prepared(xid).unwrap()).collect();
        assert_eq!(all(&db, &i).len(), 6000);
        assert_eq!(db.stats().cache.refused, 0);
        ready.into_iter().for_each(|ready| drop(ready.order()));
        let new = all(&db, &i).into_iter().filter(|(_, value)| value == b"new").count();
        assert_eq!(new, 1200);
        db.settle().unwrap();
        sound(&db);
    });
}

/// The first phase costs a sync only if one is asked for; the process may end all the same.
#[test]
fn what_is_prepared_is_as_durable_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), Options::default()).unwrap();
    let db = open();
    let index = db.create_index("i", IndexOptions::default()).unwrap();
    let syncs = |db: &Database| db.stats().log.syncs;
    for (durability, least, most) in [(Durability::Write, 0, 0), (Durability::Sync, 1, 9)] {
        let mut tx = db.begin().unwrap();
        tx.put(&index, b"k", b"v").unwrap();
        let before = syncs(&db);
        tx.prepare_with(b"x", durability).unwrap();
        let after = syncs(&db) - before;
        assert!((least..=most).contains(&after), "{durability:?}: {after} syncs");
        assert_eq!(db.prepared().unwrap().len(), 1);
        db.rollback_prepared(b"x").unwrap();
    }
    db.close().unwrap();
}
