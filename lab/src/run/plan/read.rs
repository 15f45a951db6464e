//! From a plan's file to a plan that can be carried out. Every mistake is found before anything is run, and named with
//! its line: an unknown key, a target that nobody knows, a step that does not exist, a value that is none.
//!
//! 1. Targets: one for each version.
//! 2. Each run: its options are those of `[defaults]`, of `[scale.NAME]`, its own, and of its `[scale.NAME]`; the later
//!    ones replace the earlier.
//! 3. Its rows: every target with every configuration, except what would be a row twice.
//!
//! A target that is known but not to be had (not built in, a parameter that this build lacks) is no mistake here: that is
//! for the run to say, and to go on.

use std::collections::BTreeMap;

use lab_measure::study::{self, number_names};
use lab_target::secret::masked_target;
use lab_target::spec::PRODUCT;
use lab_target::url::Url;
use lab_target::{TargetSpec, known_targets, registry};

use super::keys;
use super::near::{did_you_mean, nearest};
use super::options::{Given, WORKLOADS, known_steps};
use super::resolved::{FOLDER, Knob, Part, Resolved, Row, SCHEMA};
use super::source::{Located, Section, Source, Value};
use crate::folder::{State, utc_now};
use crate::outcome::Failure;

/// A target of the file.
struct Target {
    name: String,
    text: String,
    family: String,
    /// Names of its configurations; none = all.
    configs: Option<Vec<(usize, String)>>,
}

/// A configuration of the file, and what it is for each kind of target.
struct Config {
    at: usize,
    name: String,
    about: String,
    families: BTreeMap<String, Becomes>,
}

/// What a configuration does to a target.
#[derive(Clone, Default)]
struct Becomes {
    parameters: Vec<(String, String)>,
    settings: Vec<(String, String)>,
    words: String,
    no_op: Option<String>,
}

/// Reads a plan.
pub fn resolved(source: &Source, scale: Option<&str>) -> Result<Resolved, Failure> {
    let mut top = source.parsed()?;
    let name = top.need_word(source, "name", "a plan")?;
    let title = top.take_word(source, "title")?.unwrap_or_else(|| name.clone());
    let about = top.take_word(source, "about")?.unwrap_or_default();
    let targets = targets(source, &mut top)?;
    let configs = configs(source, &mut top)?;
    for (at, name) in targets.iter().flat_map(|target| target.configs.iter().flatten()) {
        let known: Vec<&str> = configs.iter().map(|config| config.name.as_str()).collect();
        if !known.contains(&name.as_str()) {
            let remedy = did_you_mean(name, &known);
            return Err(source.mistake(*at, format!("the plan has no config `{name}`; {remedy}")));
        }
    }
    let defaults = top.take_section(source, "defaults")?;
    let runs = top.take_sections(source, "run")?;
    let scaled = scaled(source, &mut top, &runs, scale)?;
    let tables = top.take_sections(source, "table")?;
    top.finish(source, "a plan", &keys::names(keys::TOP))?;
    if runs.is_empty() || targets.is_empty() {
        return Err(source.mistake(0, "a plan needs at least one [[target]] and one [[run]]"));
    }
    let mut plan = Resolved {
        schema: SCHEMA.into(),
        name,
        title,
        about: about.trim().to_owned(),
        source: source.name.clone(),
        scale: scale.map(str::to_owned),
        began: utc_now(),
        state: State::Running,
        parts: Vec::new(),
        knobs: Vec::new(),
        tables: Vec::new(),
        files: BTreeMap::new(),
    };
    let known = Known { source, targets: &targets, configs: &configs, defaults: &defaults, scaled: &scaled };
    for run in runs {
        let part = known.part(run, scale, &mut plan)?;
        plan.parts.push(part);
    }
    for table in tables {
        plan.tables.push(self::table(source, table, &plan.parts)?);
    }
    known.all_knobs(&mut plan);
    Ok(plan)
}

fn targets(source: &Source, top: &mut Section) -> Result<Vec<Target>, Failure> {
    let mut all: Vec<Target> = Vec::new();
    for mut section in top.take_sections(source, "target")? {
        let name = section.need_word(source, "name", "a [[target]]")?;
        let text_at = section.keys.get("use").map_or(section.at, |(_, value)| value.at);
        let text = section.need_word(source, "use", "a [[target]]")?;
        let family = section.take_word(source, "family")?;
        let versions = section.take_words(source, "versions")?;
        let configs = section.take_words(source, "configs")?;
        section.finish(source, "a [[target]]", &keys::names(keys::TARGET))?;
        if versions.is_none() && (name.clone() + &text).contains("{version}") {
            return Err(source.mistake(section.at, "`{version}` stands for each of `versions`, which are not given"));
        }
        for (at, version) in versions.unwrap_or_else(|| vec![(text_at, String::new())]) {
            let (name, text) = (name.replace("{version}", &version), text.replace("{version}", &version));
            let spec = TargetSpec::parse(&text).map_err(|error| source.mistake(at, error))?;
            check_known(source, text_at, &spec)?;
            if all.iter().any(|other| other.name == name) {
                return Err(source.mistake(at, format!("there are two targets `{name}`; names are the rows of tables")));
            }
            let family = family.clone().unwrap_or_else(|| match spec.parameters.get(PRODUCT) {
                Some(product) => product.clone(),
                None => spec.name.clone(),
            });
            all.push(Target { name, text, family, configs: configs.clone() });
        }
    }
    Ok(all)
}

/// An engine that nobody knows is a slip of the pen, not one that cannot be had.
fn check_known(source: &Source, at: usize, spec: &TargetSpec) -> Result<(), Failure> {
    let mut known: Vec<&str> = known_targets().into_iter().map(|(name, _)| name).collect();
    known.extend(registry::names_not_built());
    known.sort_unstable();
    known.dedup();
    if known.contains(&spec.name.as_str()) {
        return Ok(());
    }
    Err(source.mistake(at, format!("no engine is called `{}`; {}", spec.name, did_you_mean(&spec.name, &known))))
}

fn configs(source: &Source, top: &mut Section) -> Result<Vec<Config>, Failure> {
    let mut all: Vec<Config> = Vec::new();
    for mut section in top.take_sections(source, "config")? {
        let name = section.need_word(source, "name", "a [[config]]")?;
        let about = section.take_word(source, "about")?.unwrap_or_default();
        if all.iter().any(|other| other.name == name) {
            return Err(source.mistake(section.at, format!("there are two configurations `{name}`")));
        }
        let mut families = BTreeMap::new();
        for (family, (at, value)) in std::mem::take(&mut section.keys) {
            let Value::Section(of_family) = value.value else {
                let known = keys::names(keys::CONFIG);
                return Err(source.mistake(
                    at,
                    format!(
                        "a [[config]] has no key `{family}`; {}, or a section for each kind of target",
                        did_you_mean(&family, &known)
                    ),
                ));
            };
            families.insert(family, becomes(source, of_family)?);
        }
        all.push(Config { at: section.at, name, about, families });
    }
    Ok(all)
}

fn becomes(source: &Source, mut section: Section) -> Result<Becomes, Failure> {
    let parameters = pairs(source, section.take_section(source, "parameters")?)?;
    let settings = pairs(source, section.take_section(source, "cnf")?)?;
    let words = section.take_word(source, "becomes")?;
    let no_op = section.take_word(source, "no_op")?;
    section.finish(source, "a configuration of a kind of target", &keys::names(keys::FAMILY))?;
    if no_op.is_some() && !(parameters.is_empty() && settings.is_empty()) {
        return Err(source.mistake(section.at, "a `no_op` changes nothing: it has neither `parameters` nor `cnf`"));
    }
    let listed = |(key, value): &(String, String)| format!("{key}={value}");
    let words = words.unwrap_or_else(|| parameters.iter().chain(&settings).map(listed).collect::<Vec<_>>().join(", "));
    Ok(Becomes { parameters, settings, words, no_op })
}

fn pairs(source: &Source, section: Section) -> Result<Vec<(String, String)>, Failure> {
    let mut keys: Vec<(String, (usize, Located))> = section.keys.into_iter().collect();
    keys.sort_by_key(|(_, (at, _))| *at);
    let text = |key: &str, value: &Located| match &value.value {
        Value::Flag(flag) => Ok(if *flag { "ON".to_owned() } else { "OFF".to_owned() }),
        _ => value.word(source, key),
    };
    keys.into_iter().map(|(key, (_, value))| Ok((key.clone(), text(&key, &value)?))).collect()
}

/// The options of the scale that was asked for.
fn scaled(source: &Source, top: &mut Section, runs: &[Section], scale: Option<&str>) -> Result<Section, Failure> {
    let mut scales = top.take_section(source, "scale")?;
    let Some(scale) = scale else { return Ok(Section::default()) };
    let mut known: Vec<String> = scales.keys.keys().cloned().collect();
    for run in runs {
        if let Some((_, Located { value: Value::Section(own), .. })) = run.keys.get("scale") {
            known.extend(own.keys.keys().cloned());
        }
    }
    if !known.iter().any(|name| name == scale) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return Err(Failure::Usage(format!(
            "--scale {scale}: {} has no such scale; {}",
            source.name,
            did_you_mean(scale, &known)
        )));
    }
    scales.take_section(source, scale)
}

/// What the runs of a plan are made of.
struct Known<'a> {
    source: &'a Source,
    targets: &'a [Target],
    configs: &'a [Config],
    defaults: &'a Section,
    scaled: &'a Section,
}

impl Known<'_> {
    fn part(&self, mut run: Section, scale: Option<&str>, plan: &mut Resolved) -> Result<Part, Failure> {
        let source = self.source;
        let mut scales = run.take_section(source, "scale")?;
        let mut own_scale = match scale {
            Some(scale) => scales.take_section(source, scale)?,
            None => Section::default(),
        };
        let name = run.need_word(source, "name", "a [[run]]")?;
        self.check_name(&name, run.at, plan)?;
        let title = run.take_word(source, "title")?.unwrap_or_else(|| name.clone());
        let workload = self.workload(&mut run)?;
        let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        let targets = self.chosen(&mut run, &mut own_scale, "targets", names)?;
        let names: Vec<&str> = self.configs.iter().map(|config| config.name.as_str()).collect();
        let configs = self.chosen(&mut run, &mut own_scale, "configs", names)?;
        let mut given = Given::default();
        let (mut defaults, mut scaled) = (self.defaults.clone(), self.scaled.clone());
        given.take(&mut defaults, &workload);
        finish_options(source, &defaults, "[defaults]")?;
        given.take(&mut run, &workload);
        given.take(&mut scaled, &workload);
        finish_options(source, &scaled, "[scale]")?;
        given.take(&mut own_scale, &workload);
        let own = option_names_of(&workload);
        let known: Vec<&str> = keys::names(keys::RUN).into_iter().chain(own.iter().map(String::as_str)).collect();
        run.finish(source, &format!("a [[run]] of {workload}"), &known)?;
        own_scale.finish(source, "[run.scale]", &known)?;
        let parsed = given.checked(source, run.at, &workload)?;
        let at = given.place(if workload == "sysbench" { "tests" } else { "steps" }).unwrap_or(run.at);
        super::plan_of(&parsed).and_then(|plan| Ok(plan.check()?)).map_err(|failure| source.mistake(at, failure))?;
        let rows = self.rows(run.at, &targets, &configs, plan)?;
        Ok(Part { name, title, workload, options: given.arguments(source)?, rows })
    }

    fn check_name(&self, name: &str, at: usize, plan: &Resolved) -> Result<(), Failure> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name) {
            return Err(self
                .source
                .mistake(at, format!("`{name}` cannot be a folder: letters, digits, - _ and . can")));
        }
        if plan.parts.iter().any(|part| part.name == name) {
            return Err(self.source.mistake(at, format!("there are two runs `{name}`")));
        }
        Ok(())
    }

    fn workload(&self, run: &mut Section) -> Result<String, Failure> {
        let at = run.keys.get("workload").map_or(run.at, |(_, value)| value.at);
        let workload = run.need_word(self.source, "workload", "a [[run]]")?;
        if WORKLOADS.contains(&workload.as_str()) {
            return Ok(workload);
        }
        let remedy = did_you_mean(&workload, &WORKLOADS);
        Err(self.source.mistake(at, format!("no workload is called `{workload}`; {remedy}")))
    }

    /// Names of a list that the run or its scale has, all where there is none.
    fn chosen(
        &self,
        run: &mut Section,
        scale: &mut Section,
        key: &str,
        known: Vec<&str>,
    ) -> Result<Vec<String>, Failure> {
        let of_run = run.take_words(self.source, key)?;
        let of_scale = scale.take_words(self.source, key)?;
        let Some(names) = of_scale.or(of_run) else {
            return Ok(known.into_iter().map(String::from).collect());
        };
        for (at, name) in &names {
            if !known.contains(&name.as_str()) {
                let what = key.trim_end_matches('s');
                let remedy = did_you_mean(name, &known);
                return Err(self.source.mistake(*at, format!("the plan has no {what} `{name}`; {remedy}")));
            }
        }
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    /// Every target with every configuration; what a configuration becomes is noted once for each kind of target.
    fn rows(
        &self,
        at: usize,
        targets: &[String],
        configs: &[String],
        plan: &mut Resolved,
    ) -> Result<Vec<Row>, Failure> {
        let mut rows: Vec<Row> = Vec::new();
        for target in self.targets.iter().filter(|target| targets.contains(&target.name)) {
            if self.configs.is_empty() {
                rows.push(Row { name: target.name.clone(), target: target.text.clone() });
            }
            let own = target.configs.as_ref();
            let is_own = |config: &&Config| own.is_none_or(|own| own.iter().any(|(_, name)| *name == config.name));
            let chosen = self.configs.iter().filter(|config| configs.contains(&config.name));
            for config in chosen.filter(is_own) {
                rows.extend(self.row(target, config, &rows, plan)?);
            }
        }
        for (place, row) in rows.iter().enumerate() {
            if let Some(other) = rows[..place].iter().find(|other| other.target == row.target) {
                let target = masked_target(&row.target);
                let what = format!("`{}` and `{}` are the same target, {target}", other.name, row.name);
                return Err(self.source.mistake(at, what));
            }
        }
        if rows.is_empty() {
            return Err(self
                .source
                .mistake(at, "a run without a target: every configuration is a no-op for all of its targets"));
        }
        Ok(rows)
    }

    /// What every configuration becomes for every kind of target that has it, whether or not this scale runs it; in the order of
    /// the file.
    fn all_knobs(&self, plan: &mut Resolved) {
        let made = std::mem::take(&mut plan.knobs);
        let of = |config: &Config, family: &str| {
            let known = made.iter().find(|knob| knob.config == config.name && knob.family == family);
            let becomes = config.families.get(family);
            let new = || {
                let becomes = becomes?;
                let (words, is_no_op) = match &becomes.no_op {
                    Some(why) => (why.clone(), true),
                    None => (becomes.words.clone(), false),
                };
                let (config, about) = (config.name.clone(), config.about.clone());
                Some(Knob { config, about, family: family.to_owned(), becomes: words, is_no_op })
            };
            known.cloned().or_else(new)
        };
        for config in self.configs {
            let has = |target: &&Target| {
                target.configs.as_ref().is_none_or(|own| own.iter().any(|(_, name)| *name == config.name))
            };
            let mut families: Vec<&str> = self.targets.iter().filter(has).map(|it| it.family.as_str()).collect();
            families.dedup();
            for (place, family) in families.iter().enumerate() {
                if !families[..place].contains(family) {
                    plan.knobs.extend(of(config, family));
                }
            }
        }
    }

    fn row(
        &self,
        target: &Target,
        config: &Config,
        before: &[Row],
        plan: &mut Resolved,
    ) -> Result<Option<Row>, Failure> {
        // A configuration that says nothing at all is the base.
        let becomes = match (config.families.get(&target.family), config.families.is_empty()) {
            (Some(becomes), _) => becomes.clone(),
            (None, true) => Becomes { words: "nothing is changed".into(), ..Becomes::default() },
            (None, false) => {
                return Err(self.source.mistake(
                    config.at,
                    format!(
                        "configuration `{}` does not say what it becomes for `{}`, of which target `{}` is; it needs a \
                         [config.{}] with `parameters`, `cnf` or `no_op`{}",
                        config.name,
                        target.family,
                        target.name,
                        target.family,
                        nearest(&target.family, &config.families.keys().map(String::as_str).collect::<Vec<_>>())
                            .map(|name| format!("; did you mean `{name}`?"))
                            .unwrap_or_default()
                    ),
                ));
            }
        };
        let name = format!("{}.{}", target.name, config.name);
        let mut text = target.text.clone();
        for (key, value) in &becomes.parameters {
            text = with_parameter(&text, key, value);
        }
        if !becomes.settings.is_empty() {
            let file = format!("cnf/{}-{}.cnf", target.family, config.name);
            text = with_parameter(&text, "cnf", &format!("{FOLDER}/{file}"));
            plan.files.insert(file, option_file(&target.family, &becomes.settings));
        }
        let same = before.iter().find(|row| row.target == text);
        let (words, is_no_op) = match (&becomes.no_op, same) {
            (Some(why), _) => (why.clone(), true),
            (None, Some(row)) => (format!("{}: the same as {}", becomes.words, row.name), true),
            (None, None) => (becomes.words.clone(), false),
        };
        let knob = Knob {
            config: config.name.clone(),
            about: config.about.clone(),
            family: target.family.clone(),
            becomes: words,
            is_no_op,
        };
        if !plan.knobs.iter().any(|other| (&other.config, &other.family) == (&knob.config, &knob.family)) {
            plan.knobs.push(knob);
        }
        Ok((!is_no_op).then_some(Row { name, target: text }))
    }
}

/// Adds a parameter in the way of the target string, replacing one that is there.
fn with_parameter(text: &str, key: &str, value: &str) -> String {
    let (separators, first): (&[char], char) = match text.contains("://") || text.starts_with("server:") {
        true => (&['&'], '?'),
        false => (&[',', '?', '&'], ':'),
    };
    let cut = match Url::of(text) {
        // There may be a mark in a password.
        Some(url) => (!url.parameters.is_empty()).then_some((url.head, url.parameters)),
        None => text.split_once(first),
    };
    let Some((head, tail)) = cut else { return format!("{text}{first}{key}={value}") };
    let keep = |part: &&str| part.split_once('=').is_none_or(|(name, _)| name != key);
    let mut parts: Vec<String> = tail.split(separators).filter(keep).map(str::to_owned).collect();
    parts.push(format!("{key}={value}"));
    format!("{head}{first}{}", parts.join(&separators[0].to_string()))
}

/// MariaDB and MySQL read settings of a group; PostgreSQL has none.
fn option_file(family: &str, settings: &[(String, String)]) -> String {
    let mut out = if family == "postgres" { String::new() } else { "[mysqld]\n".to_owned() };
    settings.iter().for_each(|(key, value)| out.push_str(&format!("{key} = {value}\n")));
    out
}

/// Refuses what no workload has as an option.
fn finish_options(source: &Source, section: &Section, what: &str) -> Result<(), Failure> {
    let mut names: Vec<String> = WORKLOADS.iter().flat_map(|workload| option_names_of(workload)).collect();
    names.sort();
    names.dedup();
    section.finish(source, what, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn option_names_of(workload: &str) -> Vec<String> {
    super::options::keys_of(workload).into_iter().map(|key| key.name).collect()
}

fn table(source: &Source, mut section: Section, parts: &[Part]) -> Result<study::Spec, Failure> {
    let title = section.need_word(source, "title", "a [[table]]")?;
    let run = section.take("run");
    if let Some(run) = &run {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let word = run.word(source, "run")?;
        if !names.contains(&word.as_str()) {
            return Err(
                source.mistake(run.at, format!("the plan has no run `{word}`; {}", did_you_mean(&word, &names)))
            );
        }
    }
    let step = section.take_word(source, "step")?;
    let columns_at = section.keys.get("columns").map_or(section.at, |(_, value)| value.at);
    let columns = section.take_words(source, "columns")?;
    let rows = section.take_word(source, "rows")?.unwrap_or_else(|| "engine".into());
    let names_last = match section.take("names_last").map(|value| (value.at, value.value)) {
        None => true,
        Some((_, Value::Flag(flag))) => flag,
        Some((at, _)) => return Err(source.mistake(at, "`names_last` is true or false")),
    };
    section.finish(source, "a [[table]]", &keys::names(keys::TABLE))?;
    let columns = columns.ok_or_else(|| source.mistake(columns_at, "a [[table]] needs `columns`"))?;
    let steps: Vec<String> = parts.iter().flat_map(|part| known_steps(&part.workload)).collect();
    let mut made = Vec::new();
    for (at, text) in columns {
        let column = study::Column::parse(&text, step.as_deref()).map_err(|what| source.mistake(at, what))?;
        let numbers = number_names();
        if !numbers.contains(&column.number.as_str()) {
            let remedy = did_you_mean(&column.number, &numbers);
            return Err(source.mistake(at, format!("there is no number `{}`; {remedy}", column.number)));
        }
        let is_step = |name: &String| steps.contains(name) || is_paced(name);
        if let Some(step) = column.steps.iter().find(|name| !is_step(name)) {
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            return Err(source.mistake(at, format!("there is no step `{step}`; {}", did_you_mean(step, &steps))));
        }
        made.push(column);
    }
    let run = run.map(|run| run.word(source, "run")).transpose()?.unwrap_or_default();
    Ok(study::Spec { title, run, columns: made, rows, names_last })
}

/// Steps whose names hold a rate, and tests whose names hold a number of rows.
fn is_paced(name: &str) -> bool {
    lab_workload::Step::parse(name).is_ok() || lab_workload::sysbench::Step::parse(name).is_ok() || name == "load"
}
