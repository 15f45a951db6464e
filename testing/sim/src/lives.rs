//! One seed: several lives of one database, with what goes wrong in each.
//!
//! 1. Sizes and the kind of trouble are drawn from the seed.
//! 2. Each life opens the database (trouble may strike in recovery, then it is tried again), judges what is there,
//!    runs the threads, and ends by a cut, a kill, a fault that poisons, or a close.
//! 3. At the end every reader's observations are judged against all commits.

use std::sync::Arc;

use trefoil::Error;
use vfs::fault::{Action, Class, Rule};
use vfs::random::Rng;
use vfs::sim::{Config, DiskConfig, Failure, Handle, SimDisk, Simulation};
use vfs::sync::Mutex;

use crate::history::History;
use crate::judge::{self, Ending};
use crate::space;
use crate::workload::{Shared, Step, manage, phases, read, step, sweep, write};
use crate::world::{Sizes, Unique, World};

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Nothing but preemption.
    None,
    /// The power is cut at some I/O.
    PowerCut,
    /// The process is killed at some I/O.
    Kill,
    /// Some I/O fails.
    Eio,
    /// The disk is small.
    Full,
    /// A bit flips at rest.
    Rot,
}

/// Runs one seed; the failure is printed as it is.
pub fn run(seed: u64) -> Result<u64, Box<Failure>> {
    let config = Config { steps_max: 20_000_000, quiet: true, ..Config::default() }
        .bias("wal.reserved", 0.3)
        .bias("commit.", 0.2)
        .bias("tree.", 0.2)
        .bias("checkpoint.", 0.3);
    Simulation::new(seed, config).try_run(move |handle| lives(handle, seed)).map(|report| report.steps)
}

fn lives(handle: &Handle, seed: u64) {
    let mut rng = handle.rng();
    let sizes = Sizes::draw(seed, &mut rng);
    let kinds = [Trouble::None, Trouble::PowerCut, Trouble::PowerCut, Trouble::Kill, Trouble::Eio, Trouble::Full];
    let trouble = if seed % 16 == 15 { Trouble::Rot } else { kinds[rng.index(kinds.len())] };
    let capacity_bytes = if trouble == Trouble::Full { (2 << 20) + rng.below(2 << 20) } else { u64::MAX };
    let mut disk = SimDisk::new(DiskConfig { capacity_bytes, ..DiskConfig::seed(seed) });
    let history: Shared = Arc::new(Mutex::new(History::default()));
    let mut ending = Ending::Closed;
    for life in 0..3 {
        let Some(world) = open(&mut disk, &sizes, trouble, &mut rng, &mut ending, life) else { return };
        say(|| format!("life {life} after {ending:?}, {trouble:?}, {sizes:?}, {:?}", world.db.stats()));
        if trouble == Trouble::Rot && life == 2 {
            // What damage the open did not meet, reading does; what no reader met, is not read.
            match judge::readable(&world) {
                Err(error) => damaged(&error),
                Ok(()) => judge::contents(&history.lock(), &world),
            }
            return;
        }
        judge::recovered(&mut history.lock(), &world, ending);
        mend(&world, &history, trouble, &mut rng);
        let short = life > 0 && trouble != Trouble::Rot && world.wide.is_some() && rng.chance(0.3);
        if short {
            undrained(&world, &history, &mut rng);
        } else {
            judge::whole(&history.lock(), &world);
            step(sweep::fill(&world, &history));
            plan(&disk, trouble, &mut rng);
            run_threads(&world, &history, &mut rng);
        }
        judge::observations(&history.lock());
        if sizes.unique == Unique::Always {
            judge::distinct(&history.lock());
        }
        say(|| format!("{} commits", history.lock().commits.len()));
        ending = end(world, &history, &mut disk, trouble, &mut rng);
        if trouble == Trouble::Rot && life == 1 {
            rot(&disk, &mut rng);
        }
    }
    let last = open(&mut disk, &sizes, Trouble::None, &mut rng, &mut ending, 3);
    if let Some(world) = last {
        judge::recovered(&mut history.lock(), &world, ending);
        mend(&world, &history, trouble, &mut rng);
        judge::whole(&history.lock(), &world);
        phases::decide_all(&world, &history, &mut rng);
        judge::whole(&history.lock(), &world);
        space::explained(world);
    }
}

/// What an unreadable sector has cost is made anew; without one, nothing is set aside [P10].
fn mend(world: &World, history: &Shared, trouble: Trouble, rng: &mut Rng) {
    let stats = world.db.stats();
    let (set_aside, only_read) = (stats.quarantined, stats.damaged);
    let is_sound = set_aside.is_empty() && only_read.is_empty();
    assert!(is_sound || trouble == Trouble::Eio, "{set_aside:?}, {only_read:?} without damage");
    if !set_aside.is_empty() {
        // They keep definitions as they are.
        phases::decide_all(world, history, rng);
    }
    for name in set_aside {
        let (table, index) = name.split_once('.').expect("an index of a table");
        let table = world.db.table(table).expect("its table is there");
        world.db.rebuild_index(&table, index).expect("the rows are sound");
    }
}

/// A life of moments: nothing was read, so a commit all over the wide index is attached in memory; a checkpoint comes
/// before its run is drained, and then the end, so that only the log has it. The next life judges.
fn undrained(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..1 + rng.below(2) {
        if step(sweep::sweep(world, history, rng).and_then(|()| world.db.checkpoint())) == Step::Over {
            return;
        }
    }
}

/// Tells what a single seed does, where `TREFOIL_SIM_VERBOSE` is set.
fn say(what: impl FnOnce() -> String) {
    if std::env::var_os("TREFOIL_SIM_VERBOSE").is_some() {
        eprintln!("{}", what());
    }
}

/// Opens, through crashes in recovery. `None` after rot, if the damage was noticed.
fn open(
    disk: &mut SimDisk,
    sizes: &Sizes,
    trouble: Trouble,
    rng: &mut Rng,
    ending: &mut Ending,
    life: u32,
) -> Option<World> {
    let crashes = matches!(trouble, Trouble::PowerCut | Trouble::Kill | Trouble::Eio) && life > 0 && rng.chance(0.5);
    for _ in 0..if crashes { 1 + rng.below(3) } else { 0 } {
        disk.faults().add(Rule::new(action(trouble, rng)).nth(rng.below(60)));
        let opened = World::open(Arc::new(disk.clone()), sizes);
        if let Err(error) = &opened {
            say(|| format!("recovery of life {life} failed: {error}; off: {}", disk.is_off()));
        }
        // The fault may have struck a thread of the background after the open.
        if opened.is_ok() && !disk.is_off() {
            disk.faults().clear();
            return opened.ok();
        }
        drop(opened);
        // The second crash is at least as harsh as the first for what was acknowledged before it.
        if !disk.is_off() {
            disk.process_kill();
        }
        *disk = disk.reboot();
    }
    match World::open(Arc::new(disk.clone()), sizes) {
        Ok(world) => Some(world),
        Err(error) if trouble == Trouble::Rot => {
            damaged(&error);
            None
        }
        // The disk may be too small for the first life.
        Err(Error::DiskFull { .. }) if trouble == Trouble::Full => None,
        Err(error) => panic!("open of life {life} after {ending:?} failed: {error}"),
    }
}

fn action(trouble: Trouble, rng: &mut Rng) -> Action {
    match trouble {
        Trouble::PowerCut => Action::PowerCut(rng.u64()),
        Trouble::Kill => Action::Kill,
        Trouble::Eio => Action::Eio,
        Trouble::None | Trouble::Full | Trouble::Rot => unreachable!("no rule for these"),
    }
}

/// Plans the trouble of a life: early ones are likelier than late ones, syncs get their share.
fn plan(disk: &SimDisk, trouble: Trouble, rng: &mut Rng) {
    if !matches!(trouble, Trouble::PowerCut | Trouble::Kill | Trouble::Eio) {
        return;
    }
    let rule = Rule::new(action(trouble, rng));
    let scale = 1 << rng.below(9);
    let rule = match rng.below(4) {
        0 => rule.on(Class::Sync).nth(rng.below(scale)),
        1 => rule.on(Class::Write).nth(rng.below(scale)),
        2 => rule.on([Class::Rename, Class::SyncDir, Class::Allocate, Class::Remove][rng.index(4)]).nth(rng.below(8)),
        _ => rule.nth(rng.below(2 * scale)),
    };
    disk.faults().add(rule);
}

fn run_threads(world: &World, history: &Shared, rng: &mut Rng) {
    let mut threads = Vec::new();
    let mut start = |name: &str, body: fn(&World, &Shared, &mut Rng)| {
        let (world, history, mut rng) = (world.clone(), history.clone(), rng.fork());
        let thread = vfs::thread::spawn(name, move || body(&world, &history, &mut rng));
        threads.push(thread.expect("a thread starts"));
    };
    for _ in 0..world.sizes.writers {
        start("writer", write::write);
    }
    start("reader", read::read);
    start("long reader", read::read_long);
    start("manager", manage::manage);
    if world.sizes.checkpoints > 0 {
        start("checkpointer", manage::checkpoint);
    }
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Ends a life.
fn end(world: World, history: &Shared, disk: &mut SimDisk, trouble: Trouble, rng: &mut Rng) -> Ending {
    if trouble == Trouble::Full {
        resumes(&world, history, disk);
    }
    let closed = match trouble {
        Trouble::None | Trouble::Full | Trouble::Rot => world.db.close().is_ok(),
        _ => rng.chance(0.3) && world.db.close().is_ok(),
    };
    if disk.is_off() {
        drop(world);
        *disk = disk.reboot();
        return if trouble == Trouble::PowerCut { Ending::Power } else { Ending::Process };
    }
    disk.faults().clear();
    let cut = !closed && trouble == Trouble::PowerCut;
    if cut {
        disk.power_cut(rng.u64());
    } else if !closed {
        disk.process_kill();
    }
    drop(world);
    if disk.is_off() {
        *disk = disk.reboot();
    }
    match (closed, cut) {
        (true, _) => Ending::Closed,
        (_, true) => Ending::Power,
        // After a failed sync even what was written before may be lost: only what was synced is certain.
        _ if trouble == Trouble::Eio => Ending::Power,
        _ => Ending::Process,
    }
}

/// A full disk is an ordinary error, and when there is space again the same database goes on by itself.
fn resumes(world: &World, history: &Shared, disk: &SimDisk) {
    disk.set_capacity(u64::MAX / 2);
    for attempt in 0.. {
        let mut rng = Rng::new(attempt);
        let before = history.lock().commits.len();
        write::write(
            &World { sizes: Sizes { transactions: 1, ..world.sizes.clone() }, ..world.clone() },
            history,
            &mut rng,
        );
        if history.lock().commits.len() > before {
            return;
        }
        assert!(attempt < 200, "writes do not resume although there is space again");
        vfs::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Flips a bit somewhere in a file at rest.
fn rot(disk: &SimDisk, rng: &mut Rng) {
    let files: Vec<_> = disk.files().into_iter().filter(|(path, len)| *len > 0 && !path.ends_with("LOCK")).collect();
    let (path, len) = &files[rng.index(files.len())];
    disk.flip_bit(path, rng.below(len * 8)).expect("the file is there");
}

/// Damage is reported as damage.
fn damaged(error: &Error) {
    let named = matches!(
        error,
        Error::Corrupt(_)
            | Error::Quarantined { .. }
            | Error::NotADatabase { .. }
            | Error::NewerFormat { .. }
            | Error::UpgradeRequired { .. }
    );
    assert!(named, "rot was reported as {error}");
}
