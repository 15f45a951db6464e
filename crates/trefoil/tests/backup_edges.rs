//! Backups where little is left to chance: a disk that the copy fills, and a copy that lives on beside its original.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics on what it does not expect"
)]

use std::time::Duration;

use crate::increments::{noise, refused, restored};
use crate::support::*;
use trefoil::{Database, Durability, Error};
use vfs::time::Instant;

fn contents(db: &Database, name: &str) -> Entries {
    all(db, &db.index(name).unwrap())
}

/// The disk that has both becomes full by the copy: the backup ends, what it copied goes, and writers go on by themselves. Guard: what was
/// copied is removed.
#[test]
fn a_backup_that_fills_the_disk_of_its_source() {
    for base in [None, Some("/copy/0")] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            noise(&db, "i", 0..600, 1);
            db.backup().to("/copy/0").unwrap();
            noise(&db, "i", 0..600, 2);
            db.settle().unwrap();
            db.checkpoint().unwrap();
            let used = disk.used_bytes();
            disk.set_capacity(used + (300 << 10));
            let backup = db.backup();
            let error = base
                .map_or(backup, |base| backup.since(base))
                .to("/copy/1")
                .unwrap_err();
            assert!(
                matches!(&error, Error::DiskFull { .. }) && error.to_string().contains("/copy/1"),
                "{error}"
            );
            let began = Instant::now();
            while put(&db, &i, b"again", b"1", Durability::Sync).is_err() {
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "writes are refused"
                );
                sleep(100);
            }
            disk.set_capacity(u64::MAX / 2);
            db.backup().since("/copy/0").to("/copy/1").unwrap();
            let (_, copy) = restored(&disk, &["/copy/0", "/copy/1"], "/restored");
            assert_eq!(contents(&copy, "i"), contents(&db, "i"));
            sound(&db);
        });
    }
}

/// A chain is restored, and both the database and the copy live on from there, at the same positions of the log, with the same generations.
/// An increment of either to a link of either leaves out what is the same byte by byte, and shows its own moment; a chain that is
/// mixed is refused. Guard: a generation of another life counts for nothing.
#[test]
fn a_copy_that_lives_on_and_its_original_have_chains_of_their_own() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        noise(&db, "i", 0..600, 1);
        db.backup().to("/copy/0").unwrap();
        noise(&db, "i", 0..100, 2);
        db.backup().since("/copy/0").to("/copy/1").unwrap();
        let (_, twin) = restored(&disk, &["/copy/0", "/copy/1"], "/twin");
        let mut wanted = Vec::new();
        let mut link = |of: &Database, base: &str, to: &str| {
            of.backup().since(base).to(to).unwrap();
            wanted.push((to.to_owned(), contents(of, "i")));
        };
        for (of, seed) in [(&db, 3), (&twin, 4)] {
            for n in 0..4 {
                noise(of, "i", n * 20..n * 20 + 200, u64::from(n) * 10 + seed);
                of.settle().unwrap();
                of.checkpoint().unwrap();
            }
        }
        link(&db, "/copy/1", "/copy/of-db");
        link(&twin, "/copy/1", "/copy/of-twin");
        noise(&db, "i", 300..340, 5);
        noise(&twin, "i", 320..360, 6);
        // Each to the other's.
        link(&twin, "/copy/of-db", "/copy/twin-of-db");
        link(&db, "/copy/of-twin", "/copy/db-of-twin");
        link(&db, "/copy/twin-of-db", "/copy/last");
        let chains: [&[&str]; 5] = [
            &["/copy/of-db"],
            &["/copy/of-twin"],
            &["/copy/of-db", "/copy/twin-of-db"],
            &["/copy/of-twin", "/copy/db-of-twin"],
            &["/copy/of-db", "/copy/twin-of-db", "/copy/last"],
        ];
        for (n, (chain, (to, entries))) in chains.into_iter().zip(&wanted).enumerate() {
            let backups: Vec<&str> = ["/copy/0", "/copy/1"]
                .into_iter()
                .chain(chain.iter().copied())
                .collect();
            assert_eq!(backups.last(), Some(&to.as_str()));
            let (_, copy) = restored(&disk, &backups, &format!("/restored/{n}"));
            assert_eq!(&contents(&copy, "i"), entries, "{backups:?}");
        }
        refused(
            &disk,
            &["/copy/0", "/copy/1", "/copy/of-twin", "/copy/twin-of-db"],
            "different backups",
        );
        refused(
            &disk,
            &["/copy/0", "/copy/of-db"],
            "one is missing between them",
        );
    });
}
