//! The directory that something is copied to.
//!
//! While it is, the file `COPYING` lies in it: without a header it would look like a database whose creation did not come to its
//! end, which whoever opens it clears away.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use base::Fault;
use store::space;
use vfs::{OpenHow, Vfs};

use super::described::DESCRIPTION;
use crate::error::{Error, Result};
use crate::layout::create_durably;

const COPYING: &str = "COPYING";

/// Makes the directories of a copy in `dir`, which is empty or not there; or has what a failed one leaves there, its directories.
/// If that fails, `dir` is as good for the next try.
pub fn make_target(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<()> {
    let io = |op, e: &std::io::Error| Fault::io(op, dir.display(), e);
    let is_left = |name: &String| {
        matches!(name.as_str(), "wal" | "runs") && vfs.list(&dir.join(name)).is_ok_and(|names| names.is_empty())
    };
    if vfs.exists(dir).map_err(|e| io("look at", &e))?
        && let Some(name) = vfs.list(dir).map_err(|e| io("list", &e))?.iter().find(|name| !is_left(name))
    {
        let why = format!("{} holds {name:?}; what is copied goes to an empty or new directory", dir.display());
        return Err(Error::InvalidArgument(why));
    }
    let make = || {
        create_durably(vfs, dir)?;
        vfs.open(&dir.join(COPYING), OpenHow { write: true, create: true, ..OpenHow::default() })
            .and_then(|file| file.sync())
            .and_then(|()| vfs.sync_dir(dir))
            .map_err(|e| io("mark", &e))?;
        ["wal", "runs"].iter().try_for_each(|below| create_durably(vfs, &dir.join(below)))
    };
    Ok(make().map_err(there(dir)).inspect_err(|_| remove_copy(vfs, dir))?)
}

/// A fault of an operation on a copy in `dir`: a full disk there is an ordinary error, whichever operation meets it.
pub fn there(dir: &Path) -> impl Fn(Fault) -> Fault + '_ {
    |fault| match fault {
        Fault::Io { kind: ErrorKind::StorageFull | ErrorKind::QuotaExceeded, .. } => Fault::NoSpace {
            what: format!("the copy in {}", dir.display()),
            remedy: "free space there, or choose another place".to_owned(),
        },
        other => other,
    }
}

/// All of it is there: from now on it is what it is.
pub fn finish(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<()> {
    let removed = vfs.remove(&dir.join(COPYING)).and_then(|()| vfs.sync_dir(dir));
    Ok(removed.map_err(|e| there(dir)(Fault::io("remove the mark in", dir.display(), &e)))?)
}

/// What of a copy that failed can be removed.
pub fn remove_copy(vfs: &Arc<dyn Vfs>, dir: &Path) {
    for dir in [dir.to_owned(), dir.join("wal"), dir.join("runs")] {
        for name in vfs.list(&dir).unwrap_or_default().iter().filter(|name| *name != COPYING) {
            // Of a directory it fails; what else is left is no database without its header, and no backup without its description.
            let _ = vfs.remove(&dir.join(name));
        }
    }
    let _ = vfs.remove(&dir.join(COPYING));
}

pub fn sync_dirs(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<()> {
    for dir in [dir.to_owned(), dir.join("wal"), dir.join("runs")] {
        vfs.sync_dir(&dir).map_err(|e| there(&dir)(Fault::io("sync directory", dir.display(), &e)))?;
    }
    Ok(())
}

/// Whether a directory without a header is an increment, or a copy that did not come to its end: no database, and none is to be made
/// there by mistake.
pub fn is_copy(names: &[String]) -> bool {
    names.iter().any(|name| name == DESCRIPTION || name == space::EXTENTS_FILE || name == COPYING)
}
