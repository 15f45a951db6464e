//! What `check` and `test` consist of, in order: of `test` cheap parts first, then the build, then two [`Lane`]s side by side.

/// A step that is timed, counted and reported by one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name on the command line and in its line.
    pub name: &'static str,
    /// What it cannot run without, besides cargo.
    pub needs: Option<Tool>,
    /// What it does.
    pub work: Work,
    /// Variables of its environment.
    pub env: &'static [(&'static str, &'static str)],
    /// What may run beside it.
    pub lane: Lane,
}

/// Which parts run at once: much of what comes after the build waits for disks, for other processes, or on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Before the others, nothing beside it.
    Alone,
    /// After those, in order, beside the parts of [`Lane::Processes`].
    Tests,
    /// The same: servers, and what is compiled at the end.
    Processes,
    /// Behind the parts of whichever of the two ends first: programs that use neither servers nor cargo.
    Either,
}

/// A program that may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Its name, as in `TREFOIL_REQUIRE`.
    pub name: &'static str,
    /// A command that succeeds where it is present.
    pub probe: &'static [&'static str],
    /// How one gets it.
    pub install: &'static str,
}

/// What a part does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Runs cargo with these arguments.
    Cargo(Vec<&'static str>),
    /// Runs cargo with these arguments; a warning is a failure, except for the tags of rules, as in \[A12\], which
    /// look like links.
    Docs(Vec<&'static str>),
    /// Runs a program of the house, built by the part `programs`.
    Program(&'static str, &'static [&'static str]),
    /// Runs a script of the house.
    Script(&'static str, &'static [&'static str]),
    /// The rules of the house.
    Tidy,
}

const RUSTFMT: Tool =
    Tool { name: "rustfmt", probe: &["cargo", "fmt", "--version"], install: "rustfmt (rustup component add rustfmt)" };
const CLIPPY: Tool =
    Tool { name: "clippy", probe: &["cargo", "clippy", "--version"], install: "clippy (rustup component add clippy)" };

const MARIADB: Tool = Tool {
    name: "mariadb",
    probe: &["mariadb/mariadb.sh", "ready"],
    install: "g++, apt-get and dpkg-deb with package sources that have MariaDB 10.11 and its source",
};

/// The machine's own, or packages that are fetched; the part `programs` makes what asks.
const POSTGRES: Tool = Tool {
    name: "postgres",
    probe: &["lab", "fetch", "postgres"],
    install: "postgresql (its initdb), or apt-get and dpkg-deb with package sources that have postgresql-15; for root in a \
              checkout that other users may enter, since PostgreSQL does not run for root",
};
const MYSQL: Tool = Tool {
    name: "mysql",
    probe: &["lab", "fetch", "mysql@9.7"],
    install: "apt-get and dpkg-deb with package sources of Debian, whose release sid has mysql-server-core 9.7",
};

/// Everything that needs no test to run.
pub fn check() -> Vec<Part> {
    vec![
        part("tidy", Work::Tidy),
        Part { needs: Some(RUSTFMT), ..part("fmt", Work::Cargo(vec!["fmt", "--all", "--check"])) },
        Part {
            needs: Some(CLIPPY),
            ..part(
                "clippy",
                Work::Cargo(vec![
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--locked",
                    "--profile",
                    "sim",
                    "--",
                    "-D",
                    "warnings",
                ]),
            )
        },
    ]
}

/// Everything.
pub fn test() -> Vec<Part> {
    let (mut parts, lints): (Vec<Part>, Vec<Part>) = check().into_iter().partition(|part| part.name != "clippy");
    // Everything is of one profile and of the whole workspace, so that no crate is compiled twice.
    parts.push(part("build", Work::Cargo(workspace(&["test", "--no-run"]))));
    // With the tests' own dependencies, whose features are those of `build`.
    parts.push(part("programs", Work::Cargo(workspace(&["build", "--bins", "--tests"]))));
    // Unit and integration tests, examples in the documentation, and the fuzz bodies for half a second each.
    let tests = Work::Cargo(workspace(&["test", "--no-fail-fast"]));
    parts.push(Part { env: &[("TREFOIL_FUZZ_SECONDS", "0.5")], lane: Lane::Tests, ..part("tests", tests) });
    // Much of these is done by one thread, one crate after the other; who builds meanwhile would wait for them.
    let docs = part("docs", Work::Docs(vec!["doc", "--workspace", "--no-deps", "--locked", "--profile", "sim"]));
    let last = lints.into_iter().chain([docs]);
    parts.extend(processes().into_iter().chain(last).map(|part| Part { lane: Lane::Processes, ..part }));
    parts.extend(programs().into_iter().map(|part| Part { lane: Lane::Either, ..part }));
    parts
}

/// The longest first, so that both lanes end at about the same time.
fn programs() -> Vec<Part> {
    vec![
        part("simulator", Work::Program("trefoil-sim", &["seeds", "900"])),
        part("histories", Work::Program("trefoil-histories", &["seeds", "350"])),
        part("crash", Work::Program("trefoil-crash", &["kills", "60"])),
        part("histories-lsm", Work::Program("trefoil-histories", &["seeds", "150", "2100"])),
        part("lab-sysbench", Work::Program("lab", LAB_SYSBENCH)),
        // Of seeds from here on half are log-structured merge trees.
        part("simulator-lsm", Work::Program("trefoil-sim", &["seeds", "300", "2100"])),
        part("lab-smoke", Work::Program("lab", LAB_SMOKE)),
        // From here on indexes are emptied and put back, too, in half of the worlds.
        part("simulator-deserts", Work::Program("trefoil-sim", &["seeds", "200", "3000"])),
        part("lab-tpcc", Work::Program("lab", LAB_TPCC)),
        // From here on what is written may expire.
        part("simulator-ttl", Work::Program("trefoil-sim", &["seeds", "100", "4000"])),
    ]
}

/// What the script of the plugin builds: of the whole workspace and a test, so that features are those of `build` and nothing is compiled twice.
/// Without it the engine would be compiled once more, with those of the plugin alone.
const BUILT: (&str, &str) = ("TREFOIL_BUILD", "--workspace --lib --bin differential --test readme");

fn processes() -> Vec<Part> {
    // The atomics below `EpochCell` replaced by a model checker's: its own build.
    let model = ["test", "--profile", "model", "--locked", "-p", "trefoil-store", "--test", "epoch_loom"];
    let model = Work::Cargo(model.into_iter().chain(["--target-dir", "target/loom"]).collect());
    // A server of MariaDB with the engine in it, assertions on.
    let mariadb = part("mariadb", Work::Script("mariadb/mariadb.sh", &["test"]));
    let env = &[("TREFOIL_PROFILE", "sim"), BUILT];
    let mariadb = Part { needs: Some(MARIADB), env, ..mariadb };
    // The same plugin as a package, in a system of its own.
    let package = part("package", Work::Script("mariadb/mariadb.sh", &["package-test"]));
    let package = Part { needs: Some(MARIADB), env, ..package };
    // The lab's workloads on servers of its own.
    let on = |name: &'static str, which: &'static str| {
        let tests = ["agreement", "sysbench", "tpcc", "servers", "plan"].into_iter().flat_map(|test| ["--test", test]);
        part(
            name,
            Work::Cargo(workspace(&["test", "--lib"].into_iter().chain(tests).chain([which]).collect::<Vec<_>>())),
        )
    };
    // A server with the engine in it asks for the plugin, which has been built by now: its tests wait for no compiler.
    let env = &[("TREFOIL_PROFILE", "sim"), BUILT, ("TREFOIL_SERVERS", "1")];
    vec![
        mariadb,
        package,
        Part { needs: Some(MARIADB), env, ..on("lab-servers", "server") },
        Part { needs: Some(POSTGRES), env: &[("TREFOIL_POSTGRES", "1")], ..on("postgres", "postgres") },
        Part { needs: Some(MYSQL), env: &[("TREFOIL_MYSQL", "1")], ..on("mysql", "mysql") },
        Part { env: &[("RUSTFLAGS", "--cfg crossbeam_loom")], ..part("epoch-model", model) },
    ]
}

/// Cargo's arguments, of the whole workspace in the profile of the simulator: release speed, assertions on.
fn workspace(args: &[&'static str]) -> Vec<&'static str> {
    let (verb, rest) = args.split_at(1);
    [verb, &["--workspace", "--locked", "--profile", "sim"], rest].concat()
}

/// A benchmark small enough for a test: it must run, keep its invariants and write its report.
const LAB_SMOKE: &[&str] = &[
    "run",
    "ibench",
    "--target",
    "trefoil",
    "--rows",
    "20k",
    "--form",
    "2023",
    "--seconds",
    "1",
    "--dir",
    "target/tmp/lab-data",
    "--out",
    "target/tmp/lab",
    "--quiet",
];

/// The same of sysbench: hot rows, transactions, both ratios.
const LAB_SYSBENCH: &[&str] = &[
    "run",
    "sysbench",
    "--target",
    "trefoil",
    "--rows",
    "16k",
    "--tables",
    "8,1",
    "--clients",
    "4",
    "--seconds",
    "1",
    "--settle-seconds",
    "0",
    "--tests",
    "update-one,random-points.100,hot-points,read-write.10,insert",
    "--dir",
    "target/tmp/sysbench-data",
    "--out",
    "target/tmp/sysbench",
    "--quiet",
];

/// The same of TPC-C at a tenth of its size: the conditions after the load, in snapshots beside transactions, at the end.
const LAB_TPCC: &[&str] = &[
    "run",
    "tpcc",
    "--target",
    "trefoil",
    "--warehouses",
    "2",
    "--scale",
    "10",
    "--clients",
    "4",
    "--seconds",
    "2",
    "--settle-seconds",
    "0",
    "--steps",
    "run,snapshot",
    "--dir",
    "target/tmp/tpcc-data",
    "--out",
    "target/tmp/tpcc",
    "--quiet",
];

fn part(name: &'static str, work: Work) -> Part {
    Part { name, needs: None, work, env: &[], lane: Lane::Alone }
}
