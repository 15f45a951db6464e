//! The contents of one file: what is durable, what was written since, what a reader sees.
//!
//! Each 4 KiB sector has its durable page and the pages it went through since the last sync, oldest first, each with
//! the number of the write. A reader sees the last one. A page is the whole sector as the operating system would
//! hand it to the device, so what survives of a sector is always one of these pages, or a mix of two (a tear).
//!
//! A sync makes durable what was written before it BEGAN (number <= `upto`), not what came while it ran: an engine
//! that trusts a sync for a later write is wrong on some machine, and shall be wrong here.
//!
//! After a failed sync some pages are `cached` only: readers still see them, but they are not written any more,
//! and later syncs report success without them, as Linux does (Rebello et al.: Can Applications Recover from fsync
//! Failures?, ATC 2020).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::limits::SECTOR_BYTES;

use super::ranges::Ranges;
use super::survive::Fate;
use crate::random::Rng;

/// The bytes of a sector; none is all zeroes.
pub(super) type Page = Option<Arc<[u8; SECTOR_BYTES]>>;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// Pages remembered between two syncs; beyond it one in the middle is forgotten.
const UNSYNCED_MAX: usize = 6;

#[derive(Debug, Clone, Default)]
struct Sector {
    durable: Page,
    unsynced: Vec<(u64, Page)>,
    /// What readers see after a failed sync, if that is not the last page above.
    cached: Option<Page>,
}

impl Sector {
    fn seen(&self) -> &Page {
        self.cached.as_ref().unwrap_or_else(|| self.unsynced.last().map_or(&self.durable, |(_, page)| page))
    }

    fn put(&mut self, page: Page, number: u64, may_forget: bool) {
        self.cached = None;
        push(&mut self.unsynced, page, number, may_forget);
    }

    fn is_blank(&self) -> bool {
        self.durable.is_none() && self.unsynced.is_empty() && self.cached.is_none()
    }

    fn change_all(&mut self, change: impl Fn(&mut Page)) {
        change(&mut self.durable);
        self.unsynced.iter_mut().for_each(|(_, page)| change(page));
        self.cached.iter_mut().for_each(change);
    }
}

/// One file.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// As readers see it.
    pub(super) len: u64,
    durable_len: u64,
    unsynced_lens: Vec<(u64, u64)>,
    sectors: BTreeMap<u64, Sector>,
    /// The sectors with `unsynced` pages.
    dirty: BTreeSet<u64>,
    /// Sectors with space of their own.
    pub(super) allocated: Ranges,
    /// Syncs that are going on. While there are some, no page is forgotten: it may be the one they promise.
    pub(super) syncs: u32,
    /// Open files.
    pub(super) handles: u32,
    /// No name and no open file: its space was given back, its contents only live on in case the removal is lost.
    pub(super) freed: bool,
}

impl Inode {
    /// Fills `buf` from `offset`; false if the file ends before.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> bool {
        if offset + buf.len() as u64 > self.len {
            return false;
        }
        for_each_sector(offset, buf.len(), |index, within, part| {
            let into = &mut buf[part.clone()];
            match self.sectors.get(&index).and_then(|sector| sector.seen().as_ref()) {
                Some(page) => into.copy_from_slice(&page[within..within + part.len()]),
                None => into.fill(0),
            }
        });
        true
    }

    /// Writes; the file grows if needed.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, number: u64) {
        for_each_sector(offset, bytes.len(), |index, within, part| {
            self.change(index, number, |page| edit(page, within, &bytes[part]));
        });
        let end = offset + bytes.len() as u64;
        if end > self.len && !bytes.is_empty() {
            self.change_len(end, number);
        }
    }

    /// Zeroes `offset..offset + len` where there is something.
    pub(super) fn zero(&mut self, offset: u64, len: u64, number: u64) {
        let end = offset.saturating_add(len);
        let hit: Vec<_> = self.sectors.range(offset / SECTOR..end.div_ceil(SECTOR)).map(|(index, _)| *index).collect();
        for index in hit {
            let (first, last) = (index * SECTOR, (index + 1) * SECTOR);
            if offset <= first && last <= end {
                self.change(index, number, |page| *page = None);
            } else {
                let zeroes = [0; SECTOR_BYTES];
                let within = (offset.max(first) - first) as usize;
                let until = (end.min(last) - first) as usize;
                self.change(index, number, |page| edit(page, within, &zeroes[..until - within]));
            }
        }
    }

    /// Cuts or extends.
    pub(super) fn set_len(&mut self, len: u64, number: u64) {
        if len < self.len {
            self.zero(len, self.len - len, number);
        }
        if len != self.len {
            self.change_len(len, number);
        }
    }

    /// A sync that began when `upto` was the last write.
    pub(super) fn sync(&mut self, upto: u64) {
        self.dirty.retain(|index| {
            let sector = self.sectors.get_mut(index).expect("a dirty sector is there");
            let done = sector.unsynced.partition_point(|(number, _)| *number <= upto);
            if done > 0 {
                sector.durable = sector.unsynced[done - 1].1.clone();
                sector.unsynced.drain(..done);
            }
            let (clean, blank) = (sector.unsynced.is_empty(), sector.is_blank());
            if blank {
                self.sectors.remove(index);
            }
            !clean
        });
        let done = self.unsynced_lens.partition_point(|(number, _)| *number <= upto);
        if done > 0 {
            self.durable_len = self.unsynced_lens[done - 1].1;
            self.unsynced_lens.drain(..done);
        }
    }

    /// A sync that began when `upto` was the last write, and fails: some pages reach the disk, some are given up.
    pub(super) fn fail_sync(&mut self, upto: u64, rng: &mut Rng) {
        self.dirty.retain(|index| {
            let sector = self.sectors.get_mut(index).expect("a dirty sector is there");
            let done = sector.unsynced.partition_point(|(number, _)| *number <= upto);
            if done == 0 || rng.chance(0.5) {
                return true;
            }
            let all = done == sector.unsynced.len();
            let (_, last) = sector.unsynced.drain(..done).next_back().expect("done is not 0");
            if rng.chance(0.5) {
                sector.durable = last;
            } else if all {
                sector.cached = Some(last);
            }
            !all
        });
    }

    /// What is found after a power cut.
    pub(super) fn survivor(&self, fate: &mut Fate) -> Self {
        let len = fate.len(self.durable_len, &self.unsynced_lens);
        let mut sectors = BTreeMap::new();
        let mut allocated = self.allocated.clone();
        allocated.remove(len.div_ceil(SECTOR), u64::MAX);
        for (index, sector) in &self.sectors {
            let page = fate.page(&sector.durable, &sector.unsynced);
            if *index < len.div_ceil(SECTOR) && page.is_some() {
                allocated.insert(*index, *index + 1);
                sectors.insert(*index, Sector { durable: page, ..Sector::default() });
            }
        }
        let mut survivor = Self { len, durable_len: len, sectors, allocated, ..Self::default() };
        // What lies behind the end in its last sector is not part of the file, and reads as zeroes if it grows.
        if !len.is_multiple_of(SECTOR) {
            survivor.zero(len, SECTOR - len % SECTOR, 1);
            survivor.sync(1);
        }
        survivor
    }

    /// Numbers of all writes that are not durable.
    pub(super) fn unsynced(&self) -> impl Iterator<Item = u64> + '_ {
        let pages = self.dirty.iter().flat_map(|index| self.sectors[index].unsynced.iter().map(|(number, _)| *number));
        pages.chain(self.unsynced_lens.iter().map(|(number, _)| *number))
    }

    /// How many sectors have unsynced pages.
    pub(super) fn dirty_sectors(&self) -> usize {
        self.dirty.len()
    }

    /// Changes bytes at rest, in all pages: damage of the medium, not a write.
    pub(super) fn damage(&mut self, offset: u64, xor: &[u8]) {
        for_each_sector(offset, xor.len(), |index, within, part| {
            let mask = &xor[part];
            self.sectors.entry(index).or_default().change_all(|page| {
                let mut bytes = page.as_ref().map_or([0; SECTOR_BYTES], |page| **page);
                bytes[within..within + mask.len()].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
                *page = Some(Arc::new(bytes));
            });
        });
    }

    fn change(&mut self, index: u64, number: u64, change: impl FnOnce(&mut Page)) {
        let sector = self.sectors.entry(index).or_default();
        let mut page = sector.seen().clone();
        change(&mut page);
        sector.put(page, number, self.syncs == 0);
        self.dirty.insert(index);
    }

    fn change_len(&mut self, len: u64, number: u64) {
        self.len = len;
        push(&mut self.unsynced_lens, len, number, self.syncs == 0);
    }
}

/// Remembers one more state.
fn push<T>(states: &mut Vec<(u64, T)>, state: T, number: u64, may_forget: bool) {
    if may_forget && states.len() >= UNSYNCED_MAX {
        states.remove(1 + number as usize % (UNSYNCED_MAX - 1));
    }
    states.push((number, state));
}

/// Puts bytes into a page.
fn edit(page: &mut Page, within: usize, bytes: &[u8]) {
    if bytes.len() == SECTOR_BYTES {
        let whole: &[u8; SECTOR_BYTES] = bytes.try_into().expect("the length was just compared");
        *page = Some(Arc::new(*whole));
    } else {
        let mut copy = page.as_ref().map_or([0; SECTOR_BYTES], |page| **page);
        copy[within..within + bytes.len()].copy_from_slice(bytes);
        *page = Some(Arc::new(copy));
    }
}

/// Cuts `offset..offset + len` at sector boundaries: number of the sector, where in it, which part of the buffer.
fn for_each_sector(offset: u64, len: usize, mut visit: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % SECTOR) as usize;
        let part = (SECTOR_BYTES - within).min(len - done);
        visit(at / SECTOR, within, done..done + part);
        done += part;
    }
}
