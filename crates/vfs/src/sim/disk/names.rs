//! Names: what the directories say now, and what they say after a power cut.
//!
//! Changes of names wait, in order, until their directory is synced. After a cut each directory has gone through
//! some of its changes, always the first ones; directories do not wait for each other. A file whose directory did
//! not survive is lost with it. Renames between directories are refused: no engine should depend on how they tear.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::survive::Fate;

pub(super) type InodeId = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(InodeId),
}

#[derive(Debug, Clone)]
enum Change {
    Set(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Clone)]
struct Pending {
    number: u64,
    dir: PathBuf,
    change: Change,
}

#[derive(Debug, Clone)]
pub(super) struct Names {
    now: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Pending>,
}

impl Names {
    pub(super) fn new() -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Dir)]);
        Self { now: root.clone(), durable: root, pending: Vec::new() }
    }

    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        self.now.get(path).copied()
    }

    /// The file of this name.
    pub(super) fn file(&self, path: &Path) -> io::Result<InodeId> {
        match self.get(path) {
            Some(Node::File(id)) => Ok(id),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create(&mut self, path: &Path, id: InodeId, number: u64) -> io::Result<()> {
        self.require_dir(&parent(path))?;
        self.apply(parent(path), Change::Set(path.to_owned(), Node::File(id)), number);
        Ok(())
    }

    pub(super) fn create_dir_all(&mut self, path: &Path, number: u64) -> io::Result<()> {
        let missing: Vec<_> = path.ancestors().take_while(|dir| self.get(dir).is_none()).map(Path::to_owned).collect();
        let exists = path.ancestors().nth(missing.len()).expect("the root is there");
        self.require_dir(exists)?;
        for dir in missing.into_iter().rev() {
            self.apply(parent(&dir), Change::Set(dir, Node::Dir), number);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path, number: u64) -> io::Result<()> {
        self.file(path)?;
        self.apply(parent(path), Change::Remove(path.to_owned()), number);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, number: u64) -> io::Result<()> {
        self.file(from)?;
        if self.get(to) == Some(Node::Dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if parent(from) != parent(to) {
            return Err(io::Error::new(io::ErrorKind::CrossesDevices, "renamed from one directory into another"));
        }
        if from != to {
            self.apply(parent(from), Change::Rename(from.to_owned(), to.to_owned()), number);
        }
        Ok(())
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.require_dir(dir)?;
        let inside = self.now.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect())
    }

    /// A sync of `dir` that began when `upto` was the last change.
    pub(super) fn sync(&mut self, dir: &Path, upto: u64) -> io::Result<()> {
        self.require_dir(dir)?;
        let (done, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|p| p.dir == dir && p.number <= upto);
        self.pending = pending;
        let done: Vec<Pending> = done;
        done.iter().for_each(|pending| pending.change.apply(&mut self.durable));
        Ok(())
    }

    /// What is found after a power cut.
    pub(super) fn survivor(&self, fate: &mut Fate) -> Self {
        let mut found = self.durable.clone();
        let dirs: BTreeSet<_> = self.pending.iter().map(|pending| &pending.dir).collect();
        for dir in dirs {
            let changes: Vec<_> = self.pending.iter().filter(|pending| &pending.dir == dir).collect();
            let numbers: Vec<_> = changes.iter().map(|pending| pending.number).collect();
            let kept = fate.names(&numbers);
            changes[..kept].iter().for_each(|pending| pending.change.apply(&mut found));
        }
        let all = found.clone();
        found.retain(|path, _| path.ancestors().skip(1).all(|dir| all.get(dir) == Some(&Node::Dir)));
        Self { now: found.clone(), durable: found, pending: Vec::new() }
    }

    /// Numbers of the changes that are not durable.
    pub(super) fn unsynced(&self) -> impl Iterator<Item = u64> + '_ {
        self.pending.iter().map(|pending| pending.number)
    }

    /// Every file with a name.
    pub(super) fn files(&self) -> impl Iterator<Item = (&PathBuf, InodeId)> {
        self.now.iter().filter_map(|(path, node)| match node {
            Node::File(id) => Some((path, *id)),
            Node::Dir => None,
        })
    }

    /// Files that have, or after a cut may have, a name.
    pub(super) fn reachable(&self) -> BTreeSet<InodeId> {
        let nodes = self.now.values().chain(self.durable.values());
        let pending = self.pending.iter().filter_map(|pending| match &pending.change {
            Change::Set(_, node) => Some(node),
            Change::Remove(_) | Change::Rename(..) => None,
        });
        nodes.chain(pending).filter_map(|node| if let Node::File(id) = node { Some(*id) } else { None }).collect()
    }

    fn apply(&mut self, dir: PathBuf, change: Change, number: u64) {
        change.apply(&mut self.now);
        self.pending.push(Pending { number, dir, change });
    }

    fn require_dir(&self, dir: &Path) -> io::Result<()> {
        match self.get(dir) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Set(path, node) => drop(names.insert(path.clone(), *node)),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename(from, to) => {
                let node = names.remove(from).expect("changes of a directory are applied in order");
                names.insert(to.clone(), node);
            }
        }
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// The path from the root; there is no current directory.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => drop(out.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}
