//! Whether every block that is held can be reached: a block that nobody names is never given back.

use std::time::Duration;

use trefoil::{Database, Error};

use crate::world::World;

/// The bytes held on disk are those of the indexes that are there, once nothing is on its way; and when everything is
/// dropped, everything comes back but the catalog.
pub fn explained(world: World) {
    // The handles go: they keep what is dropped.
    let db = world.db.clone();
    drop(world);
    check(&db, "after recovery");
    let (indexes, tables) = db.names();
    let dropped = indexes.iter().try_for_each(|name| db.drop_index(name));
    let dropped = dropped.and_then(|()| tables.iter().try_for_each(|name| db.drop_table(name)));
    dropped.expect("drops may use the reserve");
    check(&db, "after every drop");
    assert!(db.stats().indexes.len() == 1, "{:?} are left after every drop", db.stats().indexes);
    db.close().expect("closes");
}

fn check(db: &Database, when: &str) {
    // What a checkpoint frees counts until the next one is durable, and what readers may look at until they have left.
    for attempt in 0.. {
        match db.settle() {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) => return,
            Err(error) => panic!("settling {when}: {error}"),
        }
        let stats = db.stats();
        let reached: u64 = stats.indexes.iter().map(|(_, index)| index.disk_bytes).sum();
        let (live, held) = (stats.space.live_bytes, stats.space.held_bytes);
        if reached == live && live == held {
            return;
        }
        assert!(
            attempt < 20,
            "{when} the indexes have {reached} bytes, the manifest counts {live}, memory {held}: {:?}",
            stats.indexes
        );
        vfs::thread::sleep(Duration::from_millis(1));
    }
}
