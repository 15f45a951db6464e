//! Faults by plan: the n-th operation of a class fails, once or for ever.
//!
//! A [`Faults`] is the plan and the counters of one file system; [`crate::sim::SimDisk`] has one, and [`FaultVfs`] puts
//! one before any other [`Vfs`](crate::Vfs). A test that wants to see every error path counts up:
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//! use vfs::fault::{Action, Class, Rule};
//! use vfs::sim::{DiskConfig, SimDisk};
//! use vfs::{OpenHow, Vfs};
//!
//! fn save(disk: &SimDisk) -> std::io::Result<()> {
//!     let file = disk.open(Path::new("/new"), OpenHow { write: true, create: true, ..OpenHow::default() })?;
//!     file.write_at(b"contents", 0)?;
//!     file.sync()?;
//!     disk.rename(Path::new("/new"), Path::new("/old"))?;
//!     disk.sync_dir(Path::new("/"))
//! }
//!
//! let mut failures = 0;
//! for n in 0.. {
//!     let disk = SimDisk::new(DiskConfig::default());
//!     disk.faults().add(Rule::new(Action::Eio).nth(n));
//!     let result = save(&disk);
//!     if disk.faults().fired() == 0 {
//!         assert!(result.is_ok());
//!         break;
//!     }
//!     assert!(result.is_err(), "operation {n}");
//!     failures += 1;
//! }
//! assert_eq!(failures, 5);
//! ```

mod wrapper;

pub use wrapper::FaultVfs;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

/// Kinds of I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of `Vfs` or `File` of that name")]
pub enum Class {
    Open,
    Read,
    Write,
    Sync,
    Len,
    SetLen,
    Allocate,
    Punch,
    Remove,
    Rename,
    CreateDir,
    List,
    Exists,
    SyncDir,
    Lock,
    FreeBytes,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Len,
        Self::SetLen,
        Self::Allocate,
        Self::Punch,
        Self::Remove,
        Self::Rename,
        Self::CreateDir,
        Self::List,
        Self::Exists,
        Self::SyncDir,
        Self::Lock,
        Self::FreeBytes,
    ];

    /// The names of its scheduling points: before it begins, and while it goes on.
    #[must_use]
    pub const fn points(self) -> (&'static str, &'static str) {
        match self {
            Self::Open => ("io.open", "io.open.busy"),
            Self::Read => ("io.read", "io.read.busy"),
            Self::Write => ("io.write", "io.write.busy"),
            Self::Sync => ("io.sync", "io.sync.busy"),
            Self::Len => ("io.len", "io.len.busy"),
            Self::SetLen => ("io.set_len", "io.set_len.busy"),
            Self::Allocate => ("io.allocate", "io.allocate.busy"),
            Self::Punch => ("io.punch", "io.punch.busy"),
            Self::Remove => ("io.remove", "io.remove.busy"),
            Self::Rename => ("io.rename", "io.rename.busy"),
            Self::CreateDir => ("io.create_dir", "io.create_dir.busy"),
            Self::List => ("io.list", "io.list.busy"),
            Self::Exists => ("io.exists", "io.exists.busy"),
            Self::SyncDir => ("io.sync_dir", "io.sync_dir.busy"),
            Self::Lock => ("io.lock", "io.lock.busy"),
            Self::FreeBytes => ("io.free_bytes", "io.free_bytes.busy"),
        }
    }

    /// True if it changes what the disk holds, or will hold after a power cut.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Len | Self::List | Self::Exists | Self::FreeBytes)
    }
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It fails with an I/O error. A write may have reached the disk in part, any other change wholly; after a
    /// failed sync, what it was to make durable may silently never become so, whatever later syncs say.
    Eio,
    /// It fails for want of space. A write may have reached the disk in part.
    StorageFull,
    /// A write or sync reports success and does nothing; other operations are not changed.
    Lost,
    /// A write reports success but lands this many bytes further on.
    Misdirected(u64),
    /// One bit is wrong in what a read returns, or in what a write stores.
    FlipBit,
    /// It takes this much longer.
    Slow(Duration),
    /// The power is cut in the middle of it: [`crate::sim::SimDisk::power_cut`] with this seed. In a [`FaultVfs`],
    /// which cannot undo what was written, the same as `Kill`.
    PowerCut(u64),
    /// The process loses its files in the middle of it; what was written stays.
    Kill,
}

/// When what happens.
#[derive(Debug, Clone)]
pub struct Rule {
    action: Action,
    class: Option<Class>,
    path: Option<String>,
    skip: u64,
    times: u64,
}

impl Rule {
    /// At the next operation of any class, once.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self { action, class: None, path: None, skip: 0, times: 1 }
    }

    /// Only operations of this class count.
    #[must_use]
    pub fn on(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Only operations on paths that contain this text count.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// This many operations that count pass first: `nth(0)` is the next one.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Not once, but for so many operations in a row.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Not once, but for ever.
    #[must_use]
    pub fn forever(self) -> Self {
        self.times(u64::MAX)
    }

    fn counts(&self, class: Class, path: &Path) -> bool {
        self.class.is_none_or(|own| own == class)
            && self.path.as_ref().is_none_or(|part| path.to_string_lossy().contains(part.as_str()))
    }
}

/// Operations so far, of each class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([u64; Class::ALL.len()]);

impl Counts {
    /// Operations of this class.
    #[must_use]
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Operations of all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A plan of faults and the counters it goes by. Clones are the same plan.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    rules: Vec<Rule>,
    counts: Counts,
    fired: u64,
}

impl Faults {
    /// Adds a rule. Of several rules that want the same operation the oldest acts; all count it.
    pub fn add(&self, rule: Rule) {
        self.0.lock().rules.push(rule);
    }

    /// Forgets all rules, not the counters.
    pub fn clear(&self) {
        self.0.lock().rules.clear();
    }

    /// Operations so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.lock().counts
    }

    /// How often a rule acted.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.0.lock().fired
    }

    /// An operation begins: counts it and says what shall happen to it.
    pub(crate) fn begin(&self, class: Class, path: &Path) -> Option<Action> {
        let mut plan = self.0.lock();
        plan.counts.0[class as usize] += 1;
        let mut action = None;
        for rule in &mut plan.rules {
            if !rule.counts(class, path) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if action.is_none() {
                action = Some(rule.action);
                rule.times = rule.times.saturating_sub(u64::from(rule.times != u64::MAX));
            }
        }
        plan.rules.retain(|rule| rule.times > 0);
        plan.fired += u64::from(action.is_some());
        action
    }
}

/// The error of a broken device.
#[must_use]
pub fn eio() -> io::Error {
    Errno::IO.into()
}

/// The error of a full disk.
#[must_use]
pub fn storage_full() -> io::Error {
    Errno::NOSPC.into()
}

/// The error of everything after the power was cut or the process killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the machine is gone")
    }
}

impl std::error::Error for Gone {}

impl Gone {
    /// As an I/O error.
    #[must_use]
    pub fn error() -> io::Error {
        io::Error::other(Self)
    }

    /// True if this is that error.
    #[must_use]
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(faults: &Faults, path: &str, classes: &[Class]) -> Vec<Option<Action>> {
        classes.iter().map(|class| faults.begin(*class, Path::new(path))).collect()
    }

    #[test]
    fn the_nth_of_a_class_on_a_path() {
        let faults = Faults::default();
        faults.add(Rule::new(Action::Eio).on(Class::Write).path("wal").nth(1));
        use Class::{Read, Write};
        assert_eq!(run(&faults, "/data", &[Write, Write, Write]), [None, None, None]);
        assert_eq!(run(&faults, "/wal-1", &[Write, Read, Write, Write]), [None, None, Some(Action::Eio), None]);
        assert_eq!((faults.fired(), faults.counts().of(Write), faults.counts().total()), (1, 6, 7));
    }

    #[test]
    fn for_some_time_and_for_ever() {
        let faults = Faults::default();
        faults.add(Rule::new(Action::StorageFull).nth(1).times(2));
        let full = Some(Action::StorageFull);
        assert_eq!(run(&faults, "/a", &[Class::Sync; 5]), [None, full, full, None, None]);
        faults.add(Rule::new(Action::Eio).forever());
        assert!(run(&faults, "/a", &[Class::Sync; 50]).iter().all(|a| *a == Some(Action::Eio)));
        faults.clear();
        assert_eq!(faults.begin(Class::Sync, Path::new("/a")), None);
    }

    #[test]
    fn rules_count_what_others_act_on() {
        let faults = Faults::default();
        faults.add(Rule::new(Action::Eio));
        faults.add(Rule::new(Action::Kill).nth(1));
        assert_eq!(run(&faults, "/a", &[Class::Sync; 3]), [Some(Action::Eio), Some(Action::Kill), None]);
    }

    #[test]
    fn errors_say_what_they_are() {
        assert_eq!(storage_full().kind(), io::ErrorKind::StorageFull);
        assert!(Gone::is(&Gone::error()) && !Gone::is(&eio()));
        assert!(Class::ALL.iter().enumerate().all(|(at, class)| *class as usize == at));
    }
}
