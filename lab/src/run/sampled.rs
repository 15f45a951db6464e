//! The repetition that `--sample` adds: what is run is what was measured, where it is kept is a folder of its own.

use std::fs;
use std::sync::atomic::AtomicBool;

use lab_target::TargetSpec;

use super::turns;
use crate::cli::Common;
use crate::folder::{Folder, RunRecord, State};
use crate::keeper::Keeper;
use crate::outcome::Failure;
use crate::progress::Progress;
use crate::sample::{FOLDER, Sampler};

/// Runs every target in every case once more, sampled. One that was begun before is done again.
pub fn sampled(
    options: &Common,
    specs: &[TargetSpec],
    record: &RunRecord,
    keeper: &Keeper,
    interrupt: &AtomicBool,
) -> Result<(), Failure> {
    let path = keeper.folder.path.join(FOLDER);
    if path.exists() {
        fs::remove_dir_all(&path).map_err(|error| Failure::io("remove", &path, &error))?;
    }
    let folder = Folder::create(&path)?;
    let mut own = RunRecord { repeat: 1, turns_done: Vec::new(), is_sampled: true, ..record.clone() };
    let progress = Progress::new(options.quiet);
    progress.say("one more repetition, sampled and in no number");
    let tool = crate::sample::check()?;
    progress.say(tool.in_words());
    folder.log(tool.in_words());
    let mut own_keeper = Keeper::new(folder, progress, &own)?;
    own_keeper.sampler = Some(Sampler::new(&path, tool)?);
    own_keeper.folder.write_run(&own)?;
    let ran = turns(options, specs, &mut own, &own_keeper, interrupt);
    own_keeper.progress.clear();
    own.state = match &ran {
        Ok(()) => State::Done,
        Err(Failure::Interrupted(_)) => State::Interrupted,
        Err(_) => State::Failed,
    };
    own_keeper.folder.write_run(&own)?;
    if let Some(why) = own_keeper.sampler.as_ref().and_then(Sampler::take_failure) {
        own_keeper.progress.say(&why);
        own_keeper.folder.log(&why);
    }
    ran
}
