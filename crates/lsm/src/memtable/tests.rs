use std::collections::BTreeMap;

use base::GcView;
use index::KeyRange;
use store::{Budget, CacheOptions};
use vfs::random::Rng;

use super::leaf::ENTRY_BYTES;
use super::*;

type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Option<Vec<u8>>>;

fn memtable(budget: &Budget) -> Memtable {
    Memtable::new(&Cache::new(budget.clone(), CacheOptions::default()))
}

/// As a commit does.
fn insert_one(table: &Memtable, budget: &Budget, key: &[u8], ts: u64, op: Op<'_>, prune: &Prune<'_>) {
    table.announce(CommitTs(ts));
    if let Some(bytes) = table.wants_frame() {
        table.bring(budget.charge(Class::Buffers, bytes));
    }
    let mut room = budget.charge(Class::Buffers, cost(key, op));
    table.insert(key, CommitTs(ts), (op, false), prune, &mut room);
    table.settle(room);
}

fn insert(table: &Memtable, budget: &Budget, key: &[u8], ts: u64, value: Option<&[u8]>, view: &GcView) {
    let prune = Prune { view, single_deletes: true, above: CommitTs::ZERO };
    insert_one(table, budget, key, ts, value.map_or(Op::Delete, Op::Put), &prune);
}

/// All versions, leaf by leaf, forward and backward.
fn versions(table: &Memtable) -> Model {
    let (mut forward, mut backward) = (Model::new(), Model::new());
    let mut next = Some(Bound::Unbounded);
    while let Some(from) = next {
        next = table
            .leaf_from(&from, |key, ts, value, _| {
                let place = (key.to_vec(), std::cmp::Reverse(ts.0));
                assert!(forward.last_key_value().is_none_or(|(last, _)| *last < place), "ascending");
                forward.insert(place, value.map(<[u8]>::to_vec));
                true
            })
            .map(Bound::Included);
    }
    let mut next = Some(Bound::Unbounded);
    while let Some(below) = next {
        let each = |key: &[u8], ts: CommitTs, value: Option<&[u8]>| {
            backward.insert((key.to_vec(), std::cmp::Reverse(ts.0)), value.map(<[u8]>::to_vec));
        };
        next = table.leaf_below(&below, each).map(Bound::Excluded);
    }
    assert_eq!(forward, backward);
    forward
}

/// Leaves have what they say.
fn assert_counted(table: &Memtable) {
    for place in table.leaves.read().iter() {
        let leaf = place.leaf.read();
        assert_eq!(leaf.counts(), leaf.view().count(0..leaf.view().len()));
    }
}

#[test]
fn it_is_a_map_of_versions() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let (budget, mut model) = (Budget::new(1 << 30), Model::new());
        let table = memtable(&budget);
        let keys = [5, 300, 5000][rng.index(3)];
        for ts in 1..2000 {
            // Not in order, and some twice.
            let ts = if rng.chance(0.1) { 1 + rng.below(ts) } else { ts };
            let key = rng.below(keys).to_be_bytes()[6..].to_vec();
            let bytes = if rng.chance(0.01) { 20_000 } else { rng.index(60) };
            let value = rng.chance(0.8).then(|| vec![ts as u8; bytes]);
            insert(&table, &budget, &key, ts, value.as_deref(), &GcView::keep_all());
            model.entry((key, std::cmp::Reverse(ts))).or_insert(value);
        }
        assert_eq!(versions(&table), model, "seed {seed}");
        assert_eq!(table.entries(), model.len() as u64);
        let mut newest: BTreeMap<&[u8], bool> = BTreeMap::new();
        for ((key, _), value) in &model {
            newest.entry(key).or_insert(value.is_some());
        }
        let live = newest.values().filter(|live| **live).count() as u64;
        assert_eq!(table.keys(), (live, newest.len() as u64 - live));
        let all = table.count(&KeyRange::all());
        assert_eq!((all.live, all.deleted), table.keys());
        let mut by_leaves = Counts::default();
        table.leaves.read().iter().for_each(|place| {
            let leaf = place.leaf.read();
            by_leaves.add(leaf.counts());
        });
        assert_counted(&table);
        assert_eq!(by_leaves, all);
        for ((key, ts), _) in model.iter().step_by(7) {
            let at = ts.0 - rng.below(2);
            let expected = model.range((key.clone(), std::cmp::Reverse(at))..).next().filter(|((k, _), _)| k == key);
            let found = table.get(key, CommitTs(at), |ts, value| (ts.0, value.map(<[u8]>::to_vec)));
            assert_eq!(found, expected.map(|((_, ts), value)| (ts.0, value.clone())));
        }
        // About what it is charged for: each byte is in a leaf, with some room.
        let bytes: usize = model.iter().map(|((key, _), value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum();
        let most = 2 * (bytes + model.len() * ENTRY_BYTES) + (72 << 10);
        assert!((bytes..most).contains(&(table.memory_bytes() as usize)), "{} for {bytes}", table.memory_bytes());
        table.close(&Cache::new(budget.clone(), CacheOptions::default()));
        assert_eq!((budget.used(Class::Buffers), budget.total()), (table.memory_bytes(), table.memory_bytes()));
        drop(table);
        assert_eq!(budget.total(), 0);
    }
}

/// What a range counts for is near to what it has, and exact where that lies in a few leaves.
#[test]
fn a_range_is_counted_by_some_of_its_leaves() {
    let mut rng = Rng::new(11);
    let budget = Budget::new(1 << 30);
    let table = memtable(&budget);
    let key = |n: u64| n.to_be_bytes()[4..].to_vec();
    // Of low keys every second one is deleted, and of the highest a few are left.
    let lives = |n: u64| if n < 30_000 { n.is_multiple_of(2) } else { n < 58_000 || n.is_multiple_of(100) };
    for i in 0..60_000 {
        // Each once, in no order.
        let n = i * 7_919 % 60_000;
        insert(&table, &budget, &key(n), i + 1, lives(n).then_some(&b"value"[..]), &GcView::keep_all());
    }
    for round in 0..600 {
        let width = [40, 3_000, 60_000][round % 3];
        let a = rng.below(60_000);
        let b = (a + rng.below(width)).min(60_000);
        let (low, high) = (key(a), key(b));
        let ends = [Bound::Included(&low[..]), Bound::Excluded(&low[..]), Bound::Unbounded];
        let tops = [Bound::Included(&high[..]), Bound::Excluded(&high[..]), Bound::Unbounded];
        let range = KeyRange::new((ends[round / 3 % 3], tops[round / 9 % 3]));
        let inside = |n: &u64| range.contains(&key(*n));
        let live = (0..60_000).filter(inside).filter(|n| lives(*n)).count() as u64;
        let deleted = (0..60_000).filter(inside).count() as u64 - live;
        let counts = table.count(&range);
        if live + deleted <= 40 {
            assert_eq!((counts.live, counts.deleted, counts.may_have_value()), (live, deleted, live > 0), "{range:?}");
        } else {
            // Some of the parts of which one leaf each is looked at may be like no other.
            let is_near = |n: u64, real: u64| n.abs_diff(real) <= (live + deleted) / 16 + 150;
            assert!(
                is_near(counts.live, live) && is_near(counts.deleted, deleted),
                "{counts:?} for {live} and {deleted} in {range:?}"
            );
            assert!(counts.may_have_value() || live == 0);
        }
    }
}

/// However many there are, and in whatever rhythm they come.
#[test]
fn few_leaves_stand_for_many() {
    for len in [1, LOOKS, LOOKS + 1, 2 * LOOKS, 64 * LOOKS, 100_000] {
        for rhythm in [1, 2, 4] {
            let mut looks = 0;
            let counts = of_some(7..7 + len, |n| {
                assert!((7..7 + len).contains(&n));
                looks += 1;
                Counts::new(u64::from((n - 7) % rhythm == 0) * 100, 0, 100)
            });
            assert!(looks <= LOOKS);
            let real = (len.div_ceil(rhythm) * 100) as u64;
            assert!((real / 2..=real * 2).contains(&counts.live), "{} of {real}", counts.live);
        }
    }
}

#[test]
fn a_hot_key_takes_little_and_a_dump_keeps_its_version() {
    let budget = Budget::new(1 << 30);
    let table = memtable(&budget);
    for ts in 1..=50_000u64 {
        let view = GcView::new(CommitTs(ts - 1), if ts > 100 { vec![CommitTs(100)] } else { Vec::new() });
        insert(&table, &budget, b"hot", ts, Some(&ts.to_le_bytes().repeat(10)), &view);
    }
    assert!(table.entries() <= 4 && table.memory_bytes() < 16 << 10, "{table:?}");
    assert_counted(&table);
    assert_eq!(table.get(b"hot", CommitTs(100), |ts, _| ts), Some(CommitTs(100)));
    assert_eq!(table.get(b"hot", CommitTs(60_000), |ts, _| ts), Some(CommitTs(50_000)));
    assert_eq!((table.oldest(), table.newest()), (CommitTs(1), CommitTs(50_000)));
}

/// As of a primary key that is deleted and put back beside runs that are attached: nothing is kept for the sake of fresh puts.
#[test]
fn a15_where_no_put_is_fresh_a_row_put_back_again_and_again_takes_little() {
    for (single_deletes, most) in [(false, 4), (true, 400)] {
        let budget = Budget::new(1 << 30);
        let table = memtable(&budget);
        for round in 0..200u64 {
            for (ts, op) in [(2 * round + 1, Op::Put(b"back")), (2 * round + 2, Op::Delete)] {
                let view = GcView::new(CommitTs(ts - 1), Vec::new());
                let prune = Prune { view: &view, single_deletes, above: CommitTs(ts) };
                insert_one(&table, &budget, b"row", ts, op, &prune);
            }
        }
        assert_counted(&table);
        assert!(table.entries() <= most, "{} versions", table.entries());
        assert_eq!(table.entries() > 100, single_deletes, "so many are kept where puts may be fresh");
    }
}

/// Most of what is charged is used, whatever the rows are like: it is what decides how often a memtable is flushed. And a memtable with a row or two
/// takes about as much.
#[test]
fn most_of_a_memtable_is_used() {
    for (key_bytes, value_bytes, in_order) in [
        (8, 0, false),
        (8, 0, true),
        (20, 10, false),
        (12, 100, false),
        (12, 100, true),
        (12, 3000, false),
        (12, 22_000, false),
        (12, 33_000, false),
        (12, 40_000, true),
    ] {
        let budget = Budget::new(1 << 30);
        let table = memtable(&budget);
        let value = vec![7; value_bytes];
        let put = |n: u64| {
            let spread = if in_order { n } else { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
            let key = [&spread.to_be_bytes()[..], &vec![1; key_bytes - 8]].concat();
            insert(&table, &budget, &key, n, Some(&value), &GcView::keep_all());
        };
        put(1);
        assert!(table.memory_bytes() < 800 + 2 * value_bytes as u64, "{}", table.memory_bytes());
        let each = key_bytes + value_bytes + ENTRY_BYTES + 4;
        let rows = (8 << 20) / each as u64;
        (2..=rows).for_each(put);
        let used = rows as f64 * each as f64 / table.memory_bytes() as f64;
        println!("keys of {key_bytes}, values of {value_bytes}, in order {in_order}: {:.0} % used", used * 100.0);
        assert!(used > 0.7, "{key_bytes} {value_bytes} {in_order}: {used}");
    }
}

/// As in recovery, which keeps all versions: of a row that was changed again and again the leaf grows to any size. Guard: such a leaf grows by a
/// quarter, however large it is.
#[test]
fn a_leaf_of_one_key_is_not_moved_for_each_few_versions() {
    let budget = Budget::new(1 << 30);
    let table = memtable(&budget);
    let (mut moves, mut last) = (0, 0);
    for ts in 1..20_000 {
        insert(&table, &budget, b"hot", ts, Some(&[7; 1000]), &GcView::keep_all());
        if table.memory_bytes() != last {
            (moves, last) = (moves + 1, table.memory_bytes());
        }
    }
    assert!(moves < 80, "{moves} moves for {} versions", table.entries());
}
