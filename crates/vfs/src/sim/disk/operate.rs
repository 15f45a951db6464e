//! The steps of an operation: point, plan, effect, time.

use std::io;
use std::panic::Location;
use std::path::Path;
use std::time::Duration;

use base::limits::SECTOR_BYTES;

use super::names::InodeId;
use super::{Disk, Power, State};
use parking_lot::MutexGuard;

use crate::fault::{Action, Class, Gone, eio, storage_full};
use crate::random::Rng;
use crate::sim::context;
use crate::sim::scheduler::WaitOn;
use crate::sim::trace::{Place, hash_of};

/// Operations that take no time at all, as if answered from a cache.
const INSTANT_ODDS: f64 = 0.25;
/// Operations that take very long, and how much longer.
const SLOW_ODDS: f64 = 1.0 / 64.0;
const SLOW_FACTOR: u64 = 20;

/// An operation that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    class: Class,
    pub(super) action: Option<Action>,
    /// The effect comes before the time it takes.
    pub(super) early: bool,
    pause_nanos: u64,
}

/// What an operation is about, for the trace.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Detail {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Checksum of what is written.
    pub(super) contents: u32,
}

impl Disk {
    /// Steps (1) and (2).
    pub(super) fn begin(&self, class: Class, path: &Path, detail: Detail) -> io::Result<Begun> {
        context::with(|thread| {
            thread.point(class.points().0, Location::caller());
            let mut state = thread.state();
            let Detail { offset, len, contents } = detail;
            state.trace.value(hash_of(path.as_os_str().as_encoded_bytes()) ^ offset.rotate_left(32) ^ len);
            state.trace.value(u64::from(contents));
            state.trace.remark(|| format!("{} {offset}+{len}", path.display()));
        });
        let action = self.faults.begin(class, path);
        let mut state = self.state.lock();
        if state.power != Power::On {
            return Err(Gone::error());
        }
        let mut pause_nanos = self.time_of(class, &mut state.rng);
        if let Some(Action::Slow(time)) = action {
            pause_nanos += time.as_nanos() as u64;
        }
        Ok(Begun { class, action, early: state.rng.chance(0.5), pause_nanos })
    }

    fn time_of(&self, class: Class, rng: &mut Rng) -> u64 {
        let [read, write, sync, other] = self.config.times;
        let mean: Duration = match class {
            Class::Read => read,
            Class::Write => write,
            Class::Sync | Class::SyncDir => sync,
            _ => other,
        };
        let mean_nanos = mean.as_nanos() as u64;
        let nanos = mean_nanos / 2 + rng.below(mean_nanos + 1);
        if rng.chance(INSTANT_ODDS) {
            0
        } else if rng.chance(SLOW_ODDS) {
            nanos * SLOW_FACTOR
        } else {
            nanos
        }
    }

    /// The time an operation takes. Returns with the state locked; an error if the power went meanwhile.
    fn pause(&self, begun: Begun) -> io::Result<MutexGuard<'_, State>> {
        context::with(|thread| {
            let place = Place { name: begun.class.points().1, line: Location::caller() };
            if begun.pause_nanos > 0 {
                thread.wait(place, WaitOn::Time, Some(begun.pause_nanos));
            } else {
                thread.point(place.name, place.line);
            }
        });
        let state = self.state.lock();
        if state.power == Power::On { Ok(state) } else { Err(Gone::error()) }
    }

    /// Step (3) of an operation whose effect happens at once.
    pub(super) fn operate<R>(
        &self,
        class: Class,
        path: &Path,
        detail: Detail,
        effect: impl FnOnce(&mut State) -> io::Result<R>,
    ) -> io::Result<R> {
        let begun = self.begin(class, path, detail)?;
        self.finish(begun, effect)
    }

    /// The same for one that has begun.
    fn finish<R>(&self, begun: Begun, effect: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        let failure = match begun.action {
            Some(Action::StorageFull) => return Err(storage_full()),
            Some(Action::Eio) => eio(),
            Some(Action::PowerCut(_) | Action::Kill) => Gone::error(),
            _ if begun.early => {
                let result = effect(&mut self.state.lock());
                return self.pause(begun).and(result);
            }
            _ => return effect(&mut *self.pause(begun)?),
        };
        // It fails, but may have happened.
        let mut state = self.state.lock();
        if begun.class.changes() && state.rng.chance(0.5) {
            drop(effect(&mut state));
        }
        drop(state);
        self.obey(begun.action);
        Err(failure)
    }

    /// Turns the disk off if the plan says so.
    pub(super) fn obey(&self, action: Option<Action>) {
        match action {
            Some(Action::PowerCut(seed)) => self.turn_off(Power::Cut(seed)),
            Some(Action::Kill) => self.turn_off(Power::Killed),
            _ => {}
        }
    }

    /// Writes, in two parts.
    pub(super) fn write(&self, id: InodeId, path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
        let detail = Detail { offset, len: bytes.len() as u64, contents: base::checksum::crc32c(bytes) };
        let begun = self.begin(Class::Write, path, detail)?;
        let mut flipped = Vec::new();
        let (mut bytes, mut offset) = (bytes, offset);
        match begun.action {
            Some(Action::Lost) => return self.pause(begun).map(drop),
            Some(Action::Misdirected(by)) => offset += by,
            Some(Action::FlipBit) if !bytes.is_empty() => {
                flipped.extend_from_slice(bytes);
                flip_some_bit(&mut flipped, &mut self.state.lock().rng);
                bytes = &flipped;
            }
            _ => {}
        }
        let mut state = self.state.lock();
        let cut = cut_of(bytes.len(), offset, &mut state.rng);
        let first = state.write(id, &bytes[..cut], offset);
        drop(state);
        let failure = match begun.action {
            Some(Action::Eio) => eio(),
            Some(Action::StorageFull) => storage_full(),
            Some(Action::PowerCut(_) | Action::Kill) => Gone::error(),
            _ => {
                first?;
                return self.pause(begun)?.write(id, &bytes[cut..], offset + cut as u64);
            }
        };
        self.obey(begun.action);
        Err(failure)
    }

    /// Reads, as it was at the start or at the end.
    pub(super) fn read(&self, id: InodeId, path: &Path, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let detail = Detail { offset, len: buf.len() as u64, contents: 0 };
        let begun = self.begin(Class::Read, path, detail)?;
        self.finish(begun, |state| {
            if !state.inode(id).read(buf, offset) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if begun.action == Some(Action::FlipBit) && !buf.is_empty() {
                flip_some_bit(buf, &mut state.rng);
            }
            Ok(())
        })
    }

    /// Makes durable what was written before.
    pub(super) fn sync(&self, id: InodeId, path: &Path) -> io::Result<()> {
        let begun = self.begin(Class::Sync, path, Detail::default())?;
        let mut state = self.state.lock();
        let upto = state.number;
        state.inode(id).syncs += 1;
        if begun.early && begun.action.is_none() {
            state.inode(id).sync(upto);
        }
        drop(state);
        let paused = self.pause(begun).map(drop);
        let mut state = self.state.lock();
        state.inode(id).syncs -= 1;
        if paused.is_err() || state.power != Power::On {
            return Err(Gone::error());
        }
        match begun.action {
            Some(Action::Eio) => {
                let mut rng = state.rng.fork();
                state.inode(id).fail_sync(upto, &mut rng);
                return Err(eio());
            }
            Some(Action::StorageFull) => return Err(storage_full()),
            Some(Action::PowerCut(_) | Action::Kill) => {
                drop(state);
                self.obey(begun.action);
                return Err(Gone::error());
            }
            Some(Action::Lost) => {}
            _ => state.inode(id).sync(upto),
        }
        Ok(())
    }
}

impl State {
    /// Writes as far as there is space.
    fn write(&mut self, id: InodeId, bytes: &[u8], offset: u64) -> io::Result<()> {
        let sector = SECTOR_BYTES as u64;
        let end = offset + bytes.len() as u64;
        let number = self.next_number();
        let reached = self.take_space(id, offset / sector, end.div_ceil(sector)) * sector;
        let fits = reached.min(end).saturating_sub(offset) as usize;
        self.inode(id).write(&bytes[..fits], offset, number);
        if fits < bytes.len() { Err(storage_full()) } else { Ok(()) }
    }
}

/// Where a write of several sectors is cut in two: at some boundary of a sector, or not at all.
fn cut_of(len: usize, offset: u64, rng: &mut Rng) -> usize {
    let sectors = len / SECTOR_BYTES;
    if sectors < 2 || !offset.is_multiple_of(SECTOR_BYTES as u64) {
        return if rng.chance(0.5) { len } else { 0 };
    }
    rng.index(sectors + 1) * SECTOR_BYTES
}

fn flip_some_bit(bytes: &mut [u8], rng: &mut Rng) {
    let bit = rng.index(bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}
