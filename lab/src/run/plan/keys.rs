//! The keys of a plan's file, section by section: what [`super::read`] takes, and what the reference tells.

/// A key: its name, its value, what it is.
pub type Key = (&'static str, &'static str, &'static str);

/// At the top.
pub const TOP: &[Key] = &[
    ("name", "text", "short name; that of the run folder"),
    ("title", "text", "what the plan is about"),
    ("about", "text", "what a reader of its report should know"),
    ("defaults", "section", "options of workloads that hold for every `[[run]]`, and `repeat`"),
    ("scale", "section", "`[scale.NAME]`: options that replace those of every `[[run]]` under `--scale NAME`"),
    ("target", "sections", "`[[target]]`: the rows of the tables"),
    ("config", "sections", "`[[config]]`: configurations; every target is run with each"),
    ("run", "sections", "`[[run]]`: workloads, one after the other in each repetition"),
    ("table", "sections", "`[[table]]`: the study's tables"),
];

/// Of `[[target]]`.
pub const TARGET: &[Key] = &[
    ("name", "text", "its name in tables; `{version}` is replaced"),
    ("use", "text", "the target string; `{version}` is replaced"),
    ("versions", "texts", "makes a target of each"),
    ("configs", "texts", "names of the configurations that it is run with, of those of the run [default: all]"),
    ("family", "text", "which section of a `[[config]]` is for it [default: the engine, or the product of a server]"),
];

/// Of `[[config]]`.
pub const CONFIG: &[Key] =
    &[("name", "text", "its name, behind that of the target and a dot"), ("about", "text", "what it is in the study")];

/// Of a family in a `[[config]]`, for example `[config.mariadb]`.
pub const FAMILY: &[Key] = &[
    ("parameters", "section", "parameters that are added to the target string"),
    ("cnf", "section", "settings that are written to an option file of the server"),
    ("becomes", "text", "what it becomes; without it the parameters and settings are named"),
    ("no_op", "text", "why it changes nothing: it is not run, and reported as a no-op"),
];

/// Of `[[run]]`, beside the options of its workload.
pub const RUN: &[Key] = &[
    ("name", "text", "the name of its folder"),
    ("title", "text", "what it is"),
    ("workload", "text", "`ibench`, `sysbench` or `tpcc`"),
    ("targets", "texts", "names of its targets [default: all]"),
    ("configs", "texts", "names of its configurations [default: all]"),
    ("scale", "section", "`[run.scale.NAME]`: keys of this run that are replaced under `--scale NAME`"),
];

/// Of `[[table]]`.
pub const TABLE: &[Key] = &[
    ("title", "text", "its caption"),
    ("run", "text", "the `[[run]]` it is of [default: one table of each that has its steps]"),
    ("step", "text", "the step of columns that name none"),
    ("columns", "texts", "`NUMBER`, `NUMBER@STEP`, `HEADING = NUMBER@STEP+STEP`"),
    ("rows", "text", "heading of the targets [default: engine]"),
    ("names_last", "true|false", "whether targets stand behind the numbers [default: true]"),
];

/// The names of keys.
pub fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|(name, ..)| *name).collect()
}
