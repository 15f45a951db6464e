//! `lab run sysbench`: from its options to a plan.

use lab_workload::sysbench::catalogue::{OF_2017, TODAY, all, spelled_out};
use lab_workload::sysbench::{Plan, Step};
use lab_workload::{AnyPlan, Case};

use super::run;
use crate::cli::Sysbench;
use crate::outcome::Failure;

/// Runs sysbench.
pub fn sysbench(options: Sysbench) -> Result<(), Failure> {
    run(&options.common, "sysbench", || plan_of(&options)).map(|_| ())
}

/// The plan that options make.
pub(super) fn plan_of(options: &Sysbench) -> Result<AnyPlan, Failure> {
    let form = match options.form.as_str() {
        "today" => TODAY.to_vec(),
        "all" => all(),
        "2017" => OF_2017.to_vec(),
        other => return Err(Failure::Usage(format!("--form {other}: the forms are 2017, today and all"))),
    };
    let tests = match options.tests.is_empty() {
        true => form.iter().map(|name| (*name).to_owned()).collect(),
        false => spelled_out(&options.tests),
    };
    if let Some(step) = tests.iter().find(|name| Step::parse(name) == Ok(Step::Load)) {
        return Err(Failure::Usage(format!("--tests {step}: the load comes before the tests by itself")));
    }
    let of_clients = |tables: &u32| {
        let tables = *tables;
        options.clients.iter().map(move |clients| Case { tables, clients: *clients, cores: None })
    };
    Ok(AnyPlan::Sysbench(Plan {
        rows: options.rows,
        seconds: options.seconds,
        warmup: options.common.warmup,
        max_seconds: options.common.max_seconds,
        settle_seconds: options.common.settle_seconds,
        steps: ["load", "settle"].map(String::from).into_iter().chain(tests).collect(),
        cases: options.tables.iter().flat_map(of_clients).collect(),
        seed: options.common.seed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(more: &[&str]) -> Result<AnyPlan, Failure> {
        use clap::Parser;
        let arguments = ["lab", "run", "sysbench"].iter().chain(more);
        let crate::cli::Command::Run { workload: Some(crate::cli::Workload::Sysbench(options)), .. } =
            crate::cli::Arguments::parse_from(arguments).command
        else {
            unreachable!("the command line says run sysbench")
        };
        plan_of(&options)
    }

    #[test]
    fn defaults_are_those_of_the_specification() {
        let plan = plan(&[]).unwrap();
        let cases: Vec<_> = plan.cases().iter().map(|case| (case.tables, case.clients)).collect();
        assert_eq!(cases, [(8, 1), (8, 8), (8, 48), (1, 1), (1, 8), (1, 48)]);
        assert_eq!(plan.steps().len(), 2 + TODAY.len());
        assert!(plan.check().is_ok());
        let old = super::tests::plan(&["--form", "2017", "--rows", "10k"]).unwrap();
        assert_eq!((old.steps().len(), old.rows()), (2 + OF_2017.len(), 10_000));
        assert_eq!(super::tests::plan(&["--form", "all"]).unwrap().steps().len(), 2 + all().len());
    }

    #[test]
    fn tests_are_spelled_out_and_a_plan_is_read_again_as_what_it_is() {
        let made = plan(&["--tests", "read-write,insert", "--clients", "2"]).unwrap();
        assert_eq!(made.steps(), ["load", "settle", "read-write.10", "read-write.100", "insert"]);
        let read: AnyPlan = serde_json::from_str(&serde_json::to_string(&made).unwrap()).unwrap();
        assert_eq!(read, made);
        assert!(plan(&["--tests", "load"]).is_err() && plan(&["--form", "2023"]).is_err());
    }
}
