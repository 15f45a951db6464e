//! All kernel counters at one moment, and what happened between two moments.

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, seconds};
use crate::disk::{Disk, DiskQueue};
use crate::procfs::{Host, Process, Runs, switches_by_thread};

/// The counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When, on the run's clock.
    pub at_ns: u64,
    /// The machine.
    pub host: Option<Host>,
    /// The engine's process.
    pub process: Option<Process>,
    /// The driver's, where that is another one.
    pub driver: Option<Process>,
    /// The device that holds the database.
    pub disk: Option<Disk>,
    /// Context switches by thread of the engine's process.
    pub switches: Vec<(u64, u64)>,
}

impl Snapshot {
    /// Reads everything; `device` is `major:minor`.
    #[must_use]
    pub fn take(clock: &Clock, device: Option<&str>, engine: Runs) -> Snapshot {
        Snapshot {
            at_ns: clock.now_ns(),
            host: Host::read(),
            process: Process::of(engine),
            driver: if engine == Runs::Inside { None } else { Process::read() },
            disk: device.and_then(Disk::read),
            switches: switches_by_thread(engine),
        }
    }

    /// What happened from `earlier` to here.
    #[must_use]
    pub fn since(&self, earlier: &Snapshot) -> Difference {
        let both = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let host = self.host.zip(earlier.host);
        let process = self.process.zip(earlier.process);
        let driver = self.driver.zip(earlier.driver);
        let disk = self.disk.zip(earlier.disk);
        Difference {
            secs: seconds(self.at_ns - earlier.at_ns),
            host_cpu_pct: host.map(|(now, then)| {
                let busy = now.user_secs + now.system_secs - then.user_secs - then.system_secs;
                // The kernel's own accounts may go back by a tick.
                100.0 * busy.max(0.0) / (now.total_secs() - then.total_secs()).max(1e-9)
            }),
            host_steal_pct: host.map(|(now, then)| {
                100.0 * (now.steal_secs - then.steal_secs) / (now.total_secs() - then.total_secs()).max(1e-9)
            }),
            host_switches: host.map(|(now, then)| now.context_switches.saturating_sub(then.context_switches)),
            process_cpu_secs: process.map(|(now, then)| now.cpu_secs() - then.cpu_secs()),
            process_read_bytes: process.and_then(|(now, then)| both(now.read_bytes, then.read_bytes)),
            process_write_bytes: process.and_then(|(now, then)| both(now.write_bytes, then.write_bytes)),
            process_switches: process.map(|_| switches_between(&earlier.switches, &self.switches)),
            driver_cpu_secs: driver.map(|(now, then)| now.cpu_secs() - then.cpu_secs()),
            disk_reads: disk.map(|(now, then)| now.reads.saturating_sub(then.reads)),
            disk_writes: disk.map(|(now, then)| now.writes.saturating_sub(then.writes)),
            disk_read_bytes: disk.map(|(now, then)| now.read_bytes.saturating_sub(then.read_bytes)),
            disk_write_bytes: disk.map(|(now, then)| now.write_bytes.saturating_sub(then.write_bytes)),
            disk_queue: disk.map(|(now, then)| now.queue.since(&then.queue)),
        }
    }
}

/// Switches of threads alive at the end; threads that ended in between tell their own number to the driver.
fn switches_between(then: &[(u64, u64)], now: &[(u64, u64)]) -> u64 {
    let before = |id: u64| then.iter().find(|(other, _)| *other == id).map_or(0, |(_, count)| *count);
    now.iter().map(|(id, count)| count.saturating_sub(before(*id))).sum()
}

/// What happened between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// How long it was.
    pub secs: f64,
    /// User and system time of the whole machine, in percent of all its processors.
    pub host_cpu_pct: Option<f64>,
    /// Time taken by the hypervisor, in percent of all processors.
    pub host_steal_pct: Option<f64>,
    /// Context switches of the whole machine.
    pub host_switches: Option<u64>,
    /// Processor seconds of the engine's process.
    pub process_cpu_secs: Option<f64>,
    /// Bytes the engine's process fetched from storage.
    pub process_read_bytes: Option<u64>,
    /// Bytes the engine's process sent to storage.
    pub process_write_bytes: Option<u64>,
    /// Context switches of the engine's process.
    pub process_switches: Option<u64>,
    /// Processor seconds of the driver, where it is another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_cpu_secs: Option<f64>,
    /// Reads of the device.
    pub disk_reads: Option<u64>,
    /// Writes of the device.
    pub disk_writes: Option<u64>,
    /// Bytes read from the device.
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to the device.
    pub disk_write_bytes: Option<u64>,
    /// Merges and times of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_queue: Option<DiskQueue>,
}

impl Difference {
    /// This and a later span together, which is how the debt of a load is added to the load.
    #[must_use]
    pub fn plus(&self, more: &Difference) -> Difference {
        let add = |left: Option<u64>, right: Option<u64>| Some(left? + right?);
        let weighted = |left: Option<f64>, right: Option<f64>| {
            Some((left? * self.secs + right? * more.secs) / (self.secs + more.secs).max(1e-9))
        };
        Difference {
            secs: self.secs + more.secs,
            host_cpu_pct: weighted(self.host_cpu_pct, more.host_cpu_pct),
            host_steal_pct: weighted(self.host_steal_pct, more.host_steal_pct),
            host_switches: add(self.host_switches, more.host_switches),
            process_cpu_secs: self.process_cpu_secs.zip(more.process_cpu_secs).map(|(left, right)| left + right),
            process_read_bytes: add(self.process_read_bytes, more.process_read_bytes),
            process_write_bytes: add(self.process_write_bytes, more.process_write_bytes),
            process_switches: add(self.process_switches, more.process_switches),
            driver_cpu_secs: self.driver_cpu_secs.zip(more.driver_cpu_secs).map(|(left, right)| left + right),
            disk_reads: add(self.disk_reads, more.disk_reads),
            disk_writes: add(self.disk_writes, more.disk_writes),
            disk_read_bytes: add(self.disk_read_bytes, more.disk_read_bytes),
            disk_write_bytes: add(self.disk_write_bytes, more.disk_write_bytes),
            disk_queue: self.disk_queue.zip(more.disk_queue).map(|(left, right)| left.plus(&right)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64, scale: u64) -> Snapshot {
        let host = Host {
            user_secs: 1.0 * scale as f64,
            system_secs: 0.5 * scale as f64,
            idle_secs: 2.5 * scale as f64,
            context_switches: 100 * scale,
            ..Host::default()
        };
        let queue = DiskQueue { read_ms: 10 * scale, busy_ms: 5 * scale, ..DiskQueue::default() };
        let (read_bytes, write_bytes) = (4_096 * scale, 8_192 * scale);
        let disk = Disk { reads: scale, read_bytes, writes: 2 * scale, write_bytes, queue };
        let process = Process { user_secs: scale as f64, write_bytes: Some(10 * scale), ..Process::default() };
        Snapshot {
            at_ns: secs * crate::clock::SECOND_NS,
            host: Some(host),
            process: Some(process),
            driver: Some(Process { user_secs: 2.0 * scale as f64, ..Process::default() }),
            disk: Some(disk),
            switches: vec![(1, 10 * scale), (scale, 3)],
        }
    }

    #[test]
    fn differences_subtract_and_add_up() {
        let span = at(4, 3).since(&at(2, 1));
        assert_eq!(span.secs, 2.0);
        assert!((span.host_cpu_pct.unwrap() - 37.5).abs() < 1e-9);
        assert_eq!((span.disk_reads, span.disk_write_bytes), (Some(2), Some(16_384)));
        assert_eq!((span.process_cpu_secs, span.driver_cpu_secs), (Some(2.0), Some(4.0)));
        assert_eq!(span.process_read_bytes, None);
        // Thread 1 switched 20 more times, thread 3 is new with 3.
        assert_eq!(span.process_switches, Some(23));
        let both = span.plus(&span);
        assert_eq!((both.secs, both.disk_reads), (4.0, Some(4)));
        assert!((both.host_cpu_pct.unwrap() - 37.5).abs() < 1e-9);
        assert_eq!(both.driver_cpu_secs, Some(8.0));
        assert_eq!(both.disk_queue, Some(DiskQueue { read_ms: 40, busy_ms: 20, ..DiskQueue::default() }));
    }
}
