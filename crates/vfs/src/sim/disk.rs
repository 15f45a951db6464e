//! A disk in memory that keeps exactly the promises of [`crate::file`], and no others.
//!
//! What was not synced may be lost, kept or torn when the power is cut ([`SimDisk::power_cut`]); from that moment
//! every operation returns an error, so that the engine above winds down through its ordinary error paths, and
//! [`SimDisk::reboot`] gives the disk as it is found afterwards. [`SimDisk::process_kill`] does the same for a killed
//! process: everything written is still seen, but what was not synced is not yet safe from a later cut.
//!
//! Inside a simulation each operation is two scheduling points (`io.sync`, `io.sync.busy`), takes simulated time, and is part of the trace
//! hash with its offset, length and contents. Outside it is a plain file system in memory, for tests of one layer.
//!
//! How an operation goes: (1) scheduling point; (2) the plan of [`Faults`] is asked; (3) the effect, and the time it
//! takes, in an order drawn by seed: a read may return what was there at its start or at its end. A write of several
//! sectors does one part before and one after, so that a reader or a cut may find the half of it. A cut in between
//! makes the operation fail whether its effect happened or not.
//!
//! | part | owns |
//! |---|---|
//! | `operate` | the steps of an operation: points, time, faults |
//! | `vfs` | the `Vfs` and `File` traits on it |
//! | `inode` | contents of a file: durable, unsynced, seen |
//! | `names` | directories: durable, unsynced, seen |
//! | `survive` | what a cut leaves: pure |
//! | `ranges` | which sectors have space |

mod inode;
mod names;
mod operate;
mod ranges;
mod survive;
mod vfs;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::limits::SECTOR_BYTES;
use parking_lot::Mutex;

use crate::fault::{Faults, storage_full};
use crate::random::Rng;
use inode::Inode;
use names::{InodeId, Names, normal};
use survive::Fate;

/// How a simulated disk behaves.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// Seed of the disk's own choices: times, orders, which half of a failed write arrived.
    pub seed: u64,
    /// Space for file contents; names are free.
    pub capacity_bytes: u64,
    /// Direct I/O works; otherwise files fall back to buffered.
    pub direct: bool,
    /// A cut may tear sectors that were being overwritten.
    pub torn_writes: bool,
    /// Time of a read, a write, a sync, and of everything else: on average; now and then much longer. Used inside a
    /// simulation only.
    pub times: [Duration; 4],
}

impl Default for DiskConfig {
    fn default() -> Self {
        let times = [60, 15, 300, 20].map(Duration::from_micros);
        Self { seed: 0, capacity_bytes: u64::MAX, direct: true, torn_writes: true, times }
    }
}

impl DiskConfig {
    /// The default with this seed.
    #[must_use]
    pub fn seed(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    disk: Arc<Disk>,
}

struct Disk {
    config: DiskConfig,
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
struct State {
    power: Power,
    names: Names,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    locked: BTreeSet<PathBuf>,
    /// Number of the last change.
    number: u64,
    rng: Rng,
    capacity_sectors: u64,
    /// Sum of `allocated` over the inodes that are not freed.
    used_sectors: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Cut(u64),
    Killed,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(config: DiskConfig) -> Self {
        let state = State {
            power: Power::On,
            names: Names::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            locked: BTreeSet::new(),
            number: 0,
            rng: Rng::new(config.seed),
            capacity_sectors: config.capacity_bytes / SECTOR_BYTES as u64,
            used_sectors: 0,
        };
        Self::with_state(config, state)
    }

    fn with_state(config: DiskConfig, state: State) -> Self {
        Self { disk: Arc::new(Disk { config, faults: Faults::default(), state: Mutex::new(state) }) }
    }

    /// The plan of faults, and the counters of operations.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.disk.faults
    }

    /// Cuts the power: from now on every operation fails with [`crate::fault::Gone`]. `seed` decides what is found
    /// afterwards. The first cut counts.
    pub fn power_cut(&self, seed: u64) {
        self.disk.turn_off(Power::Cut(seed));
    }

    /// The process is killed: from now on every operation fails, but nothing written is lost.
    pub fn process_kill(&self) {
        self.disk.turn_off(Power::Killed);
    }

    /// True after a cut or a kill.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.disk.state.lock().power != Power::On
    }

    /// The disk as it is found after the cut or the kill, with no faults planned and no operations counted. The same
    /// each time it is asked.
    ///
    /// # Panics
    /// If the power is on.
    #[must_use]
    pub fn reboot(&self) -> Self {
        let state = self.disk.state.lock();
        match state.power {
            Power::On => panic!("reboot of a disk whose power is on: cut it or kill the process before"),
            Power::Killed => self.found(state.after_kill()),
            Power::Cut(seed) => self.found(state.after_cut(seed, self.disk.config.torn_writes)),
        }
    }

    /// What another seed would have left of the same cut: many images from one run.
    ///
    /// # Panics
    /// If the power was not cut.
    #[must_use]
    pub fn reboot_as(&self, seed: u64) -> Self {
        let state = self.disk.state.lock();
        assert!(matches!(state.power, Power::Cut(_)), "the power was not cut");
        self.found(state.after_cut(seed, self.disk.config.torn_writes))
    }

    fn found(&self, state: State) -> Self {
        Self::with_state(self.disk.config.clone(), state)
    }

    /// Flips one bit of a file at rest: bit `bit % 8` of byte `bit / 8`. `NotFound` if there is no such file,
    /// `UnexpectedEof` if it is shorter.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        self.damage(path, bit / 8, &[1 << (bit % 8)])
    }

    /// Damages a file at rest: each byte from `offset` on is combined with one of `xor` by exclusive or.
    pub fn damage(&self, path: &Path, offset: u64, xor: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let inode = state.inode_of(path)?;
        if offset + xor.len() as u64 > inode.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        inode.damage(offset, xor);
        Ok(())
    }

    /// The contents of a file as a reader sees them: not counted, never failing by plan, also when the power is off.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.disk.state.lock();
        let inode = state.inode_of(path)?;
        let mut bytes = vec![0; usize::try_from(inode.len).expect("a file in memory fits into memory")];
        inode.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// All files and their lengths, by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.disk.state.lock();
        state.names.files().map(|(path, id)| (path.clone(), state.inodes[&id].len)).collect()
    }

    /// Changes the space there is; what is used stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk.state.lock().capacity_sectors = bytes / SECTOR_BYTES as u64;
    }

    /// Space used by file contents.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk.state.lock().used_sectors * SECTOR_BYTES as u64
    }

    /// How much a cut could take away now: sectors and names that are not durable.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        let state = self.disk.state.lock();
        state.inodes.values().map(Inode::dirty_sectors).sum::<usize>() + state.names.unsynced().count()
    }
}

impl Disk {
    fn turn_off(&self, power: Power) {
        let mut state = self.state.lock();
        if state.power == Power::On {
            state.power = power;
        }
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn inode_of(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let id = self.names.file(&normal(path))?;
        Ok(self.inode(id))
    }

    fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("a file with a name or an open handle is kept")
    }

    /// Gives sectors `start..end` of a file space of their own. Returns the end of what got it: less than `end` if
    /// the disk is full.
    fn take_space(&mut self, id: InodeId, start: u64, end: u64) -> u64 {
        let free = self.capacity_sectors.saturating_sub(self.used_sectors);
        let inode = self.inodes.get_mut(&id).expect("a file with an open handle is kept");
        let missing = inode.allocated.missing(start, end);
        let end = if missing <= free {
            end
        } else {
            // The last sector up to which the free space reaches.
            (start..end).find(|last| inode.allocated.missing(start, last + 1) > free).unwrap_or(end)
        };
        self.used_sectors += inode.allocated.missing(start, end);
        inode.allocated.insert(start, end);
        end
    }

    /// All of it or nothing.
    fn allocate(&mut self, id: InodeId, start: u64, end: u64) -> io::Result<()> {
        let free = self.capacity_sectors.saturating_sub(self.used_sectors);
        if self.inode(id).allocated.missing(start, end) > free {
            return Err(storage_full());
        }
        self.take_space(id, start, end);
        Ok(())
    }

    fn give_space_back(&mut self, id: InodeId, start: u64, end: u64) {
        let inode = self.inodes.get_mut(&id).expect("a file with an open handle is kept");
        let before = inode.allocated.count();
        inode.allocated.remove(start, end);
        self.used_sectors -= before - inode.allocated.count();
    }

    /// Gives back what no name and no open file needs any more.
    fn collect(&mut self) {
        let named: BTreeSet<_> = self.names.files().map(|(_, id)| id).collect();
        let reachable = self.names.reachable();
        for (id, inode) in &mut self.inodes {
            if inode.handles == 0 && !named.contains(id) && !inode.freed {
                inode.freed = true;
                self.used_sectors -= inode.allocated.count();
            }
        }
        self.inodes.retain(|id, inode| !inode.freed || reachable.contains(id));
    }

    fn after_kill(&self) -> Self {
        let mut found = self.clone();
        found.power = Power::On;
        found.locked.clear();
        for inode in found.inodes.values_mut() {
            inode.handles = 0;
            inode.syncs = 0;
        }
        found.collect();
        found
    }

    /// Only files that have, or may have, a name are looked at: handles still open do not change what is found.
    fn after_cut(&self, seed: u64, torn_writes: bool) -> Self {
        let candidates = self.names.reachable();
        let inodes = || self.inodes.iter().filter(|(id, _)| candidates.contains(id));
        let mut unsynced: Vec<_> = inodes().flat_map(|(_, inode)| inode.unsynced()).collect();
        unsynced.extend(self.names.unsynced());
        unsynced.sort_unstable();
        let sectors = inodes().map(|(_, inode)| inode.dirty_sectors()).sum();
        let mut fate = Fate::new(seed, &unsynced, sectors, torn_writes);
        let names = self.names.survivor(&mut fate);
        let named = names.reachable();
        let survivors = inodes().map(|(id, inode)| (*id, inode.survivor(&mut fate)));
        let inodes: BTreeMap<_, _> = survivors.filter(|(id, _)| named.contains(id)).collect();
        Self {
            power: Power::On,
            names,
            used_sectors: inodes.values().map(|inode| inode.allocated.count()).sum(),
            inodes,
            next_inode: self.next_inode,
            locked: BTreeSet::new(),
            number: self.number,
            rng: Rng::new(seed),
            capacity_sectors: self.capacity_sectors,
        }
    }
}
