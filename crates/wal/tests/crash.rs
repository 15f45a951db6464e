//! Power cuts at every sync, over several lives, with every kind of loss the contract of `Vfs` allows.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{Dice, Disk, Kept, SMALL, append, fresh, next_life, open, payload, recover_from};
use base::Lsn;
use trefoil_wal::{Incarnation, ManifestMark, Wal};

/// What the test knows about one life: everything appended, and what the manifest would say.
struct History {
    kept: Vec<Kept>,
    mark: ManifestMark,
    floor: Lsn,
}

/// Appends, syncs, trims and prepares by the dice. The disk's note is what was acknowledged as durable, and the
/// floor of the last trim, which stand in for the manifest.
fn live(disk: &Disk, wal: &Wal, history: &mut History, dice: &mut Dice, steps: u64) {
    for step in 0..steps {
        let len = [10, 100, 700, 3000, 8000][dice.roll(5) as usize];
        let record = append(wal, step as u8, &payload(wal.end().0, dice.roll(len) as usize));
        history.kept.push(record.clone());
        match dice.roll(8) {
            0..=2 => wal.sync_to(record.end).unwrap(),
            3 => wal.write_to(record.end).unwrap(),
            4 => drop(wal.prepare().unwrap()),
            5 if dice.roll(4) == 0 => {
                // A checkpoint: the manifest is durable before the log is trimmed.
                history.floor = Lsn(wal.durable().0.max(history.floor.0));
                history.mark = ManifestMark { durable: wal.durable(), incarnation: wal.incarnation() };
                disk.set_note([history.mark.durable.0, history.floor.0]);
                wal.trim(history.floor).unwrap();
            }
            _ => {}
        }
        disk.set_note([wal.durable().0.max(disk.note()[0]), history.floor.0]);
    }
}

/// Checks one broken disk, and gives the records that it still holds from the floor on.
fn check(broken: &Disk, history: &[Kept], incarnation: Incarnation) -> (Vec<Kept>, trefoil_wal::WalEnd) {
    let [acknowledged, floor] = broken.note();
    let mark = ManifestMark { durable: Lsn(floor), incarnation };
    let (found, end) = recover_from(broken, Lsn(floor), mark).unwrap_or_else(|fault| panic!("refused: {fault}"));
    let lost = history.iter().find(|record| record.end <= Lsn(acknowledged) && record.end > end.end);
    assert_eq!(lost, None, "acknowledged to {acknowledged}, found to {}", end.end);
    let expected: Vec<&Kept> =
        history.iter().filter(|record| record.end > Lsn(floor) && record.end <= end.end).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    (found, end)
}

#[test]
fn a_power_cut_at_every_sync_loses_nothing_acknowledged() {
    let mut cuts = 0;
    for seed in 0..12 {
        let mut dice = Dice::new(seed);
        let mut disk = Disk::new();
        disk.set_note([4096, 4096]);
        let mut history = History { kept: Vec::new(), mark: ManifestMark::default(), floor: Lsn(4096) };
        let mut wal = fresh(&disk, SMALL);
        for life in 1..4 {
            disk.copy_before_syncs();
            live(&disk, &wal, &mut history, &mut dice, 120);
            for copy in disk.take_copies() {
                for _ in 0..3 {
                    check(&copy.after_power_cut(&mut dice), &history.kept, Incarnation(life));
                    cuts += 1;
                }
            }
            drop(wal);
            disk = disk.after_power_cut(&mut dice);
            let before = disk.copy();
            let (found, end) = check(&disk, &history.kept, Incarnation(life));
            history.kept.retain(|record| record.end <= end.end);
            assert!(found.len() <= history.kept.len());
            // A crash while the next life starts, at each of its syncs: the same records again.
            disk.copy_before_syncs();
            wal = open(&disk, SMALL, next_life(&end));
            for copy in disk.take_copies() {
                let (again, _) = check(&copy.after_power_cut(&mut dice), &history.kept, Incarnation(life));
                assert_eq!(again, found);
            }
            assert_eq!(check(&before, &history.kept, Incarnation(life)).0, found);
        }
    }
    assert!(cuts > 3000, "{cuts}");
}

/// Recycled segments hold whole frames of their old life, which a cut must not bring back.
#[test]
fn recycled_bytes_are_never_found_again() {
    for seed in 0..6 {
        let mut dice = Dice::new(seed);
        let disk = Disk::new();
        let wal = fresh(&disk, SMALL);
        let mut history = Vec::new();
        for i in 0..600 {
            history.push(append(&wal, 1, &payload(i, 900)));
            if i % 7 == 0 {
                wal.sync_all().unwrap();
            }
            if i % 40 == 39 {
                disk.set_note([wal.durable().0, wal.durable().0]);
                wal.trim(wal.durable()).unwrap();
            }
        }
        assert!(wal.stats().recycled_segments > 3);
        for _ in 0..40 {
            check(&disk.after_power_cut(&mut dice), &history, Incarnation(1));
        }
    }
}
