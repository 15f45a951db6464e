//! What indexes of one kind are asked to be: their structure, and of log-structured merge trees how they are kept.
//!
//! A key without a prefix is for all indexes, `pk.` and `secondary.` before it for these: `l0_l0=off,pk.shape=leveled`. What log-structured merge trees
//! alone have does not count for others, and is an error where there is none of them.

use trefoil::comparing::{LevelCompression, MergePolicy, Policies, Subcompactions};
use trefoil::{Compression, IndexOptions, Shape, Structure};

use crate::api::{Result, TargetError};
use crate::spec::TargetSpec;

/// What a parameter of `trefoil:…` is for, as `lab list --targets` prints it: name, values, what they mean. The names are all there are.
pub(super) const HELP: &[(&str, &str, &str)] = &[
    ("structure", "auto|btree|betree|lsm", "of all indexes; pk=… and secondary=… for those alone"),
    ("pk", "auto|btree|betree|lsm", "structure of what holds the rows"),
    ("secondary", "auto|btree|betree|lsm", "structure of secondary indexes"),
    (
        "compression",
        "none|lz4|zstd, or of an lsm TOP/MIDDLE/BOTTOM",
        "such as none/lz4/zstd: what flushes write, what lies between, the bottom",
    ),
    ("node_size", "4k..64k", "of all indexes"),
    ("shape", "lazy|leveled|universal", "of an lsm: which runs are merged when"),
    (
        "compaction_pri",
        "min_overlap|none",
        "of a leveled lsm: which run of a level goes down, the one below which least lies or the largest",
    ),
    (
        "l0_l0",
        "on|off",
        "of a leveled or universal lsm: whether flushes are merged among themselves while what lies below is being merged",
    ),
    (
        "subcompactions",
        "on|off|always",
        "of an lsm: whether idle threads go on with merges that others began, cutting large ones in two; always: whenever that can be",
    ),
    (
        "controller",
        "debt|delayed_write_rate:BYTES",
        "how commits are slowed down: by what is owed, or as RocksDB was, not before the wall and then to so many bytes a second",
    ),
    ("log_capacity", "BYTES", "log kept before a checkpoint is forced"),
    ("checkpoint_replay", "SECONDS", "checkpoints keep the replay after a crash below this"),
    ("extent", "64k..4m", "what the data file grows by"),
    ("inline_batch", "BYTES", "larger batches of an index become a run"),
    ("parallel_apply", "OPERATIONS", "commits of so many are applied by several threads; 0 is off"),
    ("gc_debt_limit", "BYTES", "old versions and dead leaves that delay nobody"),
    ("io_budget", "BYTES", "what the background may write in a second"),
    ("background_threads", "2..64", "threads of the background"),
];

/// By name.
const SUBCOMPACTIONS: [(&str, Subcompactions); 3] =
    [("on", Subcompactions::On), ("off", Subcompactions::Off), ("always", Subcompactions::Always)];

fn name_of_subcompactions(value: Subcompactions) -> &'static str {
    SUBCOMPACTIONS.iter().find(|(_, other)| *other == value).map_or("", |(name, _)| name)
}

/// Which indexes a value may be given for alone.
const KINDS: [&str; 2] = ["pk", "secondary"];
/// What may be given for one kind alone.
const OF_ONE_KIND: [&str; 5] = ["compression", "shape", "compaction_pri", "l0_l0", "subcompactions"];

/// Every key that may be given.
pub(super) fn known() -> Vec<String> {
    let plain = HELP.iter().map(|(name, ..)| (*name).to_owned());
    let of_kinds = KINDS.iter().flat_map(|kind| OF_ONE_KIND.iter().map(move |key| format!("{kind}.{key}")));
    plain.chain(of_kinds).collect()
}

/// Indexes of one kind: those that hold rows, or secondary ones. `None` = what the engine does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kind {
    pub(super) structure: Structure,
    pub(super) compression: Option<Compression>,
    pub(super) shape: Option<Shape>,
    pub(super) merges: MergePolicy,
}

/// Both kinds out of a target string.
pub(super) fn kinds(spec: &mut TargetSpec) -> Result<(Kind, Kind)> {
    let both = spec.take("structure");
    let for_all = OF_ONE_KIND.map(|key| spec.take(key));
    let mut of = |kind: &'static str| -> Result<Kind> {
        let structure = structure(spec, spec.parameters.get(kind).or(both.as_ref()).map(String::as_str))?;
        spec.take(kind);
        let mut own = Kind { structure, ..Kind::default() };
        for (key, for_all) in OF_ONE_KIND.iter().zip(&for_all) {
            let alone = spec.take(&format!("{kind}.{key}"));
            let is_alone = alone.is_some();
            let Some(value) = alone.or_else(|| for_all.clone()) else { continue };
            own.set(spec, key, &value, is_alone)?;
        }
        Ok(own)
    };
    let (rows, secondary) = (of(KINDS[0])?, of(KINDS[1])?);
    let has_lsm = [rows, secondary].iter().any(|kind| kind.structure == Structure::Lsm);
    let is_of_lsm = |value: &str| value.contains('/');
    for (key, value) in OF_ONE_KIND.iter().zip(&for_all) {
        match value {
            Some(value) if !has_lsm && (*key != "compression" || is_of_lsm(value)) => {
                return Err(only_lsm(spec, &format!("{key}={value}")));
            }
            _ => {}
        }
    }
    Ok((rows, secondary))
}

impl Kind {
    fn set(&mut self, spec: &TargetSpec, key: &str, value: &str, is_alone: bool) -> Result<()> {
        let is_lsm = self.structure == Structure::Lsm;
        if !is_lsm && (key != "compression" || value.contains('/')) {
            // For all of them it is for those that have it.
            return if is_alone { Err(only_lsm(spec, &format!("{key}={value}"))) } else { Ok(()) };
        }
        match key {
            "compression" => self.compress(value)?,
            "shape" => self.shape = Some(shape(spec, value)?),
            "compaction_pri" => {
                self.merges.least_overlap = one_of(spec, key, value, &[("min_overlap", true), ("none", false)])?;
            }
            "l0_l0" => self.merges.merges_at_top = one_of(spec, key, value, &[("on", true), ("off", false)])?,
            "subcompactions" => self.merges.subcompactions = one_of(spec, key, value, &SUBCOMPACTIONS)?,
            _ => unreachable!("all that may be given for one kind are named above"),
        }
        Ok(())
    }

    fn compress(&mut self, value: &str) -> Result<()> {
        let levels = value.split('/').map(compression).collect::<Result<Vec<_>>>()?;
        match levels[..] {
            [all] => self.compression = Some(all),
            [top, middle, bottom] => {
                self.compression = Some(bottom);
                self.merges.compression = Some(LevelCompression { top, middle, bottom });
            }
            _ => {
                let what = "one for all levels, or three: what flushes write, between, bottom; example: none/lz4/zstd";
                return Err(TargetError::Usage(format!("compression {value}: {what}")));
            }
        }
        Ok(())
    }

    /// The settings of such an index; `compression` where the target string has none.
    pub(super) fn index_options(&self, compression: Compression, node_bytes: Option<u64>) -> IndexOptions {
        IndexOptions {
            structure: self.structure,
            compression: self.compression.unwrap_or(compression),
            node_bytes: node_bytes.unwrap_or(0) as usize,
            shape: self.shape.unwrap_or_default(),
            ..IndexOptions::default()
        }
    }

    /// What differs from what the engine does by itself, for names of configurations; without compression.
    pub(super) fn name(&self) -> String {
        let mut name = format!("{:?}", self.structure);
        if let Some(shape) = self.shape {
            name.push_str(&format!("-{shape:?}"));
        }
        for (is_usual, what) in [(self.merges.least_overlap, "nopri"), (self.merges.merges_at_top, "nol0l0")] {
            if !is_usual {
                name.push_str(&format!("-{what}"));
            }
        }
        if self.merges.subcompactions != Subcompactions::default() {
            name.push_str(&format!("-sub{}", name_of_subcompactions(self.merges.subcompactions)));
        }
        name.to_lowercase()
    }
}

/// Policies as they are in force, in the words in which they are asked for.
pub(super) fn in_force(policies: &Policies, rows: Kind, secondary: Kind) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for ((name, kind), merges) in KINDS.iter().zip([rows, secondary]).zip([policies.rows, policies.secondary]) {
        if kind.structure != Structure::Lsm {
            continue;
        }
        let word = |is_on: bool, on: &str, off: &str| if is_on { on.to_owned() } else { off.to_owned() };
        all.push((format!("{name}.compaction_pri"), word(merges.least_overlap, "min_overlap", "none")));
        all.push((format!("{name}.l0_l0"), word(merges.merges_at_top, "on", "off")));
        all.push((format!("{name}.subcompactions"), name_of_subcompactions(merges.subcompactions).to_owned()));
        let by_level = |levels: LevelCompression| [levels.top, levels.middle, levels.bottom].map(name_of).join("/");
        all.extend(merges.compression.map(|levels| (format!("{name}.compression"), by_level(levels))));
    }
    let controller = policies.delayed_write_rate.map(|rate| format!("delayed_write_rate:{rate}"));
    all.push(("controller".into(), controller.unwrap_or_else(|| "debt".into())));
    all
}

/// Bytes a second at the wall; none: as the debt asks.
pub(super) fn controller(spec: &mut TargetSpec) -> Result<Option<u64>> {
    let Some(value) = spec.take("controller") else { return Ok(None) };
    match value.split_once(':') {
        None if value == "debt" => Ok(None),
        Some(("delayed_write_rate", rate)) => {
            let mut alone = spec.clone();
            alone.parameters = [("delayed_write_rate".to_owned(), rate.to_owned())].into();
            match alone.take_bytes("delayed_write_rate")? {
                Some(rate) if rate > 0 => Ok(Some(rate)),
                _ => Err(TargetError::Usage(format!("target `{spec}`: delayed_write_rate:0 would admit nothing"))),
            }
        }
        _ => Err(TargetError::Usage(format!(
            "target `{spec}`: controller `{value}` is none of debt, delayed_write_rate:BYTES; example: \
             controller=delayed_write_rate:2m"
        ))),
    }
}

fn only_lsm(spec: &TargetSpec, what: &str) -> TargetError {
    TargetError::Usage(format!(
        "target `{spec}`: `{what}` is for indexes with structure=lsm, and has no effect on others"
    ))
}

fn structure(spec: &TargetSpec, name: Option<&str>) -> Result<Structure> {
    let all = [
        ("auto", Structure::Auto),
        ("btree", Structure::Btree),
        ("betree", Structure::Betree),
        ("lsm", Structure::Lsm),
    ];
    name.map_or(Ok(Structure::Auto), |name| one_of(spec, "structure", name, &all))
}

fn shape(spec: &TargetSpec, name: &str) -> Result<Shape> {
    let all = [("lazy", Shape::Lazy), ("leveled", Shape::Leveled), ("universal", Shape::Universal)];
    one_of(spec, "shape", name, &all)
}

fn one_of<T: Copy>(spec: &TargetSpec, key: &str, value: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice);
    found.ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        TargetError::Usage(format!("target `{spec}`: {key} `{value}` is none of {}", names.join(", ")))
    })
}

/// Compression by name.
pub(super) fn compression(name: &str) -> Result<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        other => Err(TargetError::Usage(format!("compression {other}: trefoil has none, lz4 and zstd"))),
    }
}

/// The name of a compression.
pub(super) fn name_of(compression: Compression) -> String {
    format!("{compression:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Kind, Kind, Option<u64>)> {
        let mut spec = TargetSpec::parse(text).unwrap();
        let (rows, secondary) = kinds(&mut spec)?;
        let rate = controller(&mut spec)?;
        spec.finish(&[])?;
        Ok((rows, secondary, rate))
    }

    #[test]
    fn a_key_is_for_all_indexes_or_for_one_kind() {
        let text =
            "trefoil:pk=betree,secondary=lsm,shape=leveled,l0_l0=off,compression=zstd,secondary.compaction_pri=none";
        let (rows, secondary, rate) = parsed(text).unwrap();
        let zstd = Some(Compression::Zstd);
        assert_eq!(rows, Kind { structure: Structure::Betree, compression: zstd, ..Kind::default() });
        let merges = MergePolicy { least_overlap: false, merges_at_top: false, ..MergePolicy::default() };
        let shape = Some(Shape::Leveled);
        assert_eq!(secondary, Kind { structure: Structure::Lsm, compression: zstd, shape, merges });
        assert_eq!((rate, secondary.name().as_str()), (None, "lsm-leveled-nopri-nol0l0"));
        let (rows, secondary, rate) = parsed(
            "trefoil:structure=lsm,pk.shape=universal,compression=none/lz4/zstd,controller=delayed_write_rate:2m",
        )
        .unwrap();
        assert_eq!((rows.shape, secondary.shape, rate), (Some(Shape::Universal), None, Some(2 << 20)));
        let levels = LevelCompression { top: Compression::None, middle: Compression::Lz4, bottom: Compression::Zstd };
        assert_eq!((rows.merges.compression, rows.compression), (Some(levels), zstd));
        assert_eq!(rows.merges, secondary.merges);
    }

    #[test]
    fn mistakes_name_the_value_and_the_choices() {
        for (text, words) in [
            ("trefoil:structure=heap", "structure `heap` is none of auto, btree, betree, lsm"),
            ("trefoil:structure=lsm,shape=tiered", "shape `tiered` is none of lazy, leveled, universal"),
            ("trefoil:structure=lsm,compaction_pri=oldest", "compaction_pri `oldest` is none of min_overlap, none"),
            ("trefoil:structure=lsm,pk.l0_l0=yes", "l0_l0 `yes` is none of on, off"),
            ("trefoil:structure=lsm,subcompactions=4", "subcompactions `4` is none of on, off, always"),
            ("trefoil:structure=lsm,compression=none/lz4", "one for all levels, or three"),
            ("trefoil:structure=lsm,compression=none/lz4/snappy", "compression snappy: trefoil has none, lz4 and zstd"),
            ("trefoil:controller=stop", "controller `stop` is none of debt, delayed_write_rate:BYTES"),
            ("trefoil:controller=delayed_write_rate:fast", "`delayed_write_rate=fast` is not a size"),
            ("trefoil:controller=delayed_write_rate:0", "admit nothing"),
            ("trefoil:structure=betree,shape=lazy", "`shape=lazy` is for indexes with structure=lsm"),
            ("trefoil:l0_l0=off", "`l0_l0=off` is for indexes with structure=lsm"),
            ("trefoil:compression=none/lz4/zstd", "`compression=none/lz4/zstd` is for indexes with structure=lsm"),
            ("trefoil:pk=lsm,secondary=btree,secondary.shape=lazy", "`shape=lazy` is for indexes with structure=lsm"),
        ] {
            let message = parsed(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
