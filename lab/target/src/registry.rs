//! From a target string to an open target.

use crate::api::{Result, Setup, Target, TargetError};
use crate::limited::DiskLimits;
use crate::spec::TargetSpec;
use crate::{model, null, peers, server, trefoil};

/// Engines that this build can open, with one line each for the help text.
#[must_use]
pub fn known_targets() -> Vec<(&'static str, &'static str)> {
    let mut known = vec![
        ("trefoil", "the embedded engine; trefoil:structure=btree|betree|lsm, shape, compaction_pri, …: see below"),
        ("null", "does nothing: shows what the driver itself costs"),
        ("model", "ordered maps in memory: obviously right, for checking the lab"),
        ("server", "a private server: server:mariadb?engine=innodb|rocksdb|trefoil, server:mysql?…, server:postgres"),
        ("mysql", "a server that runs: mysql://user@host:port/database?engine=innodb, socket, protocol"),
        ("postgres", "a server that runs: postgres://user:password@host:port/database, socket, passfile, protocol"),
    ];
    known.extend(peers::PEERS.iter().filter(|(_, _, built)| *built).map(|(name, about, _)| (*name, *about)));
    known
}

/// Names of servers that are no targets by themselves.
const SERVERS: &[&str] = &["mariadb", "innodb", "myrocks"];
/// Schemes of URLs of servers that run.
const URLS: [&str; 3] = ["mysql", "postgres", "postgresql"];

/// Names that mean something although no target has them in this build: engines of servers, and peers that are not built in.
pub fn names_not_built() -> impl Iterator<Item = &'static str> {
    SERVERS.iter().copied().chain(peers::PEERS.iter().map(|(name, ..)| *name))
}

/// Whether a name is that of a peer, built in or not.
fn is_peer(name: &str) -> bool {
    peers::PEERS.iter().any(|(peer, _, _)| *peer == name)
}

/// Checks a target string without opening anything.
pub fn check(spec: &TargetSpec) -> Result<()> {
    if let Some(version) = &spec.version {
        return Err(TargetError::Unsupported(format!("target `{spec}`: building version `{version}` from source")));
    }
    match spec.name.as_str() {
        "trefoil" => trefoil::TrefoilTarget::check(spec.clone()),
        "null" => null::NullTarget::check(spec.clone()),
        "model" => model::ModelTarget::check(spec.clone()),
        "server" => server::check(spec.clone()),
        url if URLS.contains(&url) => server::check(spec.clone()),
        name if is_peer(name) => peers::check(spec.clone()),
        name if SERVERS.contains(&name) => Err(TargetError::Usage(format!(
            "target `{spec}`: `{name}` is a server's: server:mariadb?engine=innodb, or mysql://user@host/database?engine=innodb"
        ))),
        name => Err(TargetError::Usage(format!(
            "target `{spec}`: no engine is called `{name}`; this build has {}",
            known_targets().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// Refuses targets that have no tables of `workload`, which is sysbench or TPC-C.
pub fn check_locking(spec: &TargetSpec, workload: &str) -> Result<()> {
    match (spec.name.as_str(), spec.parameters.get("txn").map(String::as_str)) {
        ("trefoil" | "null" | "model", _) | ("rocksdb", Some("pessimistic")) => Ok(()),
        (name, _) if name == "server" || URLS.contains(&name) => Ok(()),
        ("rocksdb", _) => Err(TargetError::Unsupported(format!(
            "target `{spec}`: {workload} needs transactions that lock: rocksdb:txn=pessimistic"
        ))),
        (name, _) => Err(TargetError::Unsupported(format!("target `{spec}`: `{name}` has no adapter for {workload}"))),
    }
}

/// Whether what a target stores can be opened again after its process was killed. A server that somebody else started is
/// not ours to kill.
#[must_use]
pub fn outlives_its_process(spec: &TargetSpec) -> bool {
    !matches!(spec.name.as_str(), "null" | "model") && !is_out_of_reach(spec)
}

/// Whether a target feels no limits of Trefoil's file layer.
#[must_use]
pub fn reaches_the_disk_itself(spec: &TargetSpec) -> bool {
    is_peer(&spec.name) || spec.name == "server"
}

/// Whether a target is a server that somebody else started: no limit of a control group reaches it.
#[must_use]
pub fn is_out_of_reach(spec: &TargetSpec) -> bool {
    URLS.contains(&spec.name.as_str())
}

/// Refuses limits of the disk that a target would not feel: they are those of Trefoil's file layer, and other engines
/// reach the disk by themselves. Rates can be those of a control group instead, which is the caller's.
pub fn check_disk(spec: &TargetSpec, disk: &DiskLimits) -> Result<()> {
    if disk.is_any() && is_out_of_reach(spec) {
        return Err(TargetError::Unsupported(format!(
            "target `{spec}`: a server that runs already feels no limit of the disk; one that the lab starts does: \
             server:mariadb?engine=…, server:mysql?engine=…, server:postgres"
        )));
    }
    if disk.is_any() && reaches_the_disk_itself(spec) {
        return Err(TargetError::Unsupported(format!(
            "target `{spec}`: `{}` reaches the disk by itself, so it feels neither a latency of --disk-limit nor \
             --disk-size, which are those of Trefoil's file layer; a control group has iops and mb",
            spec.name
        )));
    }
    Ok(())
}

/// Opens a target in `setup.dir`.
pub fn open(spec: &TargetSpec, setup: &Setup) -> Result<Box<dyn Target>> {
    check(spec)?;
    check_disk(spec, &setup.disk)?;
    match spec.name.as_str() {
        "trefoil" => Ok(Box::new(trefoil::TrefoilTarget::open(spec.clone(), setup)?)),
        "null" => Ok(Box::new(null::NullTarget::open(spec.clone())?)),
        "model" => Ok(Box::new(model::ModelTarget::open(spec.clone(), setup)?)),
        name if name == "server" || URLS.contains(&name) => Ok(Box::new(server::open(spec.clone(), setup)?)),
        _ => peers::open(spec.clone(), setup),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> TargetError {
        check(&TargetSpec::parse(text).unwrap()).unwrap_err()
    }

    #[test]
    fn unknown_unbuilt_and_wrong_parameters_are_told_apart() {
        assert!(matches!(complaint("oracle"), TargetError::Usage(text) if text.contains("this build has")));
        check(&TargetSpec::parse("trefoil:structure=lsm").unwrap()).unwrap();
        assert!(matches!(complaint("trefoil:structure=heap"), TargetError::Usage(text) if text.contains("btree")));
        for (peer, _, built) in peers::PEERS {
            if *built {
                assert!(matches!(complaint(&format!("{peer}:a=1")), TargetError::Usage(_)));
            } else {
                let remedy = format!("--features {peer}");
                assert!(matches!(complaint(peer), TargetError::Unsupported(text) if text.contains(&remedy)));
            }
        }
        assert!(
            matches!(complaint("mysql://root@localhost/test"), TargetError::Usage(text) if text.contains("engine="))
        );
        check(&TargetSpec::parse("postgres://root@localhost/test").unwrap()).unwrap();
        assert!(matches!(complaint("postgres:a=1"), TargetError::Usage(_)));
        assert!(
            matches!(complaint("innodb"), TargetError::Usage(text) if text.contains("server:mariadb?engine=innodb"))
        );
        let redb = TargetSpec::parse("redb").unwrap();
        let disk = DiskLimits { latency_us: Some(1), ..DiskLimits::default() };
        assert!(matches!(check_disk(&redb, &disk), Err(TargetError::Unsupported(_))));
        assert!(check_disk(&redb, &DiskLimits::default()).is_ok());
        for (text, words) in [("redb", "no adapter for TPC-C"), ("rocksdb", "TPC-C needs transactions that lock")] {
            let spec = TargetSpec::parse(text).unwrap();
            assert!(matches!(check_locking(&spec, "TPC-C"), Err(TargetError::Unsupported(why)) if why.contains(words)));
        }
        assert!(check_locking(&TargetSpec::parse("rocksdb:txn=pessimistic").unwrap(), "TPC-C").is_ok());
        assert!(matches!(complaint("null@v2"), TargetError::Unsupported(_)));
        assert!(matches!(complaint("null:a=1"), TargetError::Usage(text) if text.contains("takes no parameters")));
    }
}
