//! `lab fetch`: servers of other versions.

use lab_target::server::fetch::{Wanted, fetch as bring};

use crate::cli::Fetch;
use crate::outcome::Failure;

/// Brings each version, or lists what there is.
pub fn fetch(options: &Fetch) -> Result<(), Failure> {
    let names = if options.versions.is_empty() { Wanted::all() } else { options.versions.clone() };
    let all = names.iter().map(|name| Wanted::parse(name)).collect::<Result<Vec<_>, _>>()?;
    for (name, wanted) in names.iter().zip(all) {
        if options.versions.is_empty() {
            println!("{name:<16}{}", if wanted.is_there() { "fetched" } else { "" });
        } else {
            // Without a version the machine's own will do, as it does for a run, and it has to be one that starts here.
            let own = if name.contains('@') { None } else { wanted.installed() };
            let root = own.map_or_else(|| bring(&wanted, &mut |line| eprintln!("fetch: {line}")), Ok)?;
            if !name.contains('@') {
                let here = std::env::current_dir().map_err(|error| Failure::Failed(error.to_string()))?;
                wanted.check_place(&root, &here)?;
            }
            println!("{}", root.display());
        }
    }
    Ok(())
}
