//! `lab run tpcc`: from its options to a plan.

use lab_workload::tpcc::Plan;
use lab_workload::{AnyPlan, Case};

use super::run;
use crate::affinity;
use crate::cli::Tpcc;
use crate::outcome::Failure;

/// Sessions for each core, where none are named.
const SESSIONS: [u32; 4] = [1, 2, 4, 8];

/// Runs TPC-C.
pub fn tpcc(options: Tpcc) -> Result<(), Failure> {
    run(&options.common, "tpcc", || plan_of(&options)).map(|_| ())
}

/// The plan that options make.
pub(super) fn plan_of(options: &Tpcc) -> Result<AnyPlan, Failure> {
    let steps: Vec<String> = match (options.steps.is_empty(), options.cores.is_empty()) {
        (true, true) => ["run", "snapshot"].map(String::from).into(),
        (true, false) => vec!["run".into()],
        (false, _) => options.steps.clone(),
    };
    if steps.iter().any(|step| step == "load") {
        return Err(Failure::Usage("--steps load: the load comes first by itself".into()));
    }
    if let Some(cores) = options.cores.iter().find(|cores| **cores as usize > affinity::available()) {
        let have = affinity::available();
        return Err(Failure::Usage(format!("--cores {cores}: this process may use {have} processors")));
    }
    let case = |clients: u32, cores: Option<u32>| Case { tables: options.warehouses, clients, cores };
    let mut cases: Vec<Case> = Vec::new();
    match (options.cores.is_empty(), options.clients.is_empty()) {
        (true, true) => cases.extend([1, 8].map(|clients| case(clients, None))),
        (true, false) => cases.extend(options.clients.iter().map(|clients| case(*clients, None))),
        (false, no_clients) => {
            for cores in &options.cores {
                let clients =
                    if no_clients { SESSIONS.map(|each| each * cores).into() } else { options.clients.clone() };
                cases.extend(clients.into_iter().map(|clients| case(clients, Some(*cores))));
            }
        }
    }
    Ok(AnyPlan::Tpcc(Plan {
        warehouses: options.warehouses,
        scale: options.scale,
        seconds: options.seconds,
        warmup: options.common.warmup,
        max_seconds: options.common.max_seconds,
        settle_seconds: options.common.settle_seconds,
        steps: ["load", "settle"].map(String::from).into_iter().chain(steps).collect(),
        cases,
        seed: options.common.seed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(more: &[&str]) -> Result<AnyPlan, Failure> {
        use clap::Parser;
        let arguments = ["lab", "run", "tpcc"].iter().chain(more);
        let crate::cli::Command::Run { workload: Some(crate::cli::Workload::Tpcc(options)), .. } =
            crate::cli::Arguments::parse_from(arguments).command
        else {
            unreachable!("the command line says run tpcc")
        };
        plan_of(&options)
    }

    #[test]
    fn a_plan_is_read_again_as_what_it_is() {
        let made = plan(&["--warehouses", "2", "--clients", "4", "--steps", "run,crash"]).unwrap();
        assert_eq!(made.steps(), ["load", "settle", "run", "crash"]);
        assert_eq!(made.cases(), [Case { tables: 2, clients: 4, cores: None }]);
        let read: AnyPlan = serde_json::from_str(&serde_json::to_string(&made).unwrap()).unwrap();
        assert_eq!(read, made);
        assert!(made.check().is_ok() && plan(&["--steps", "load"]).is_err());
    }

    #[test]
    fn sessions_are_a_multiple_of_the_cores() {
        let made = plan(&["--cores", "1"]).unwrap();
        let cases: Vec<_> = made.cases().iter().map(|case| (case.clients, case.cores)).collect();
        assert_eq!(cases, [1, 2, 4, 8].map(|clients| (clients, Some(1))));
        assert_eq!(made.steps(), ["load", "settle", "run"]);
        let many = (affinity::available() + 1).to_string();
        assert!(plan(&["--cores", &many]).is_err());
    }
}
