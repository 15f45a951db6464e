//! `lab run ibench`: from its options to a plan, and whether the agreed rate was kept.

use lab_measure::result::StepResult;
use lab_target::{IndexSet, Price};
use lab_workload::{AnyPlan, Case, Plan, Step};

use super::run;
use crate::cli::{Ibench, PriceArgument};
use crate::outcome::Failure;

/// Runs the insert benchmark.
pub fn ibench(options: Ibench) -> Result<(), Failure> {
    let results = run(&options.common, "ibench", || plan_of(&options))?;
    sla_verdict(&options, &results)
}

/// The plan that options make.
pub(super) fn plan_of(options: &Ibench) -> Result<AnyPlan, Failure> {
    let (form, form_set) = match options.form.as_str() {
        "2023" => (&Step::FORM_2023[..], IndexSet::Y2023),
        "2017" => (&Step::FORM_2017[..], IndexSet::Y2017),
        other => return Err(Failure::Usage(format!("--form {other}: the forms are 2017 and 2023"))),
    };
    let index_set = match options.index_set.as_deref() {
        None => form_set,
        Some("2023") => IndexSet::Y2023,
        Some("2017") => IndexSet::Y2017,
        Some(other) => return Err(Failure::Usage(format!("--index-set {other}: the sets are 2017 and 2023"))),
    };
    let steps = match options.steps.is_empty() {
        true => form.iter().map(|step| step.name()).collect(),
        false => options.steps.iter().map(|name| name.trim().to_owned()).collect(),
    };
    let mut cases = Vec::new();
    for clients in &options.clients {
        let tables = if options.tables.is_empty() { &[*clients][..] } else { &options.tables[..] };
        cases.extend(tables.iter().map(|tables| Case { tables: *tables, clients: *clients, cores: None }));
    }
    let plan = Plan {
        rows: options.rows,
        rows_i1: options.rows_i1.unwrap_or(options.rows / 2),
        rows_i2: options.rows_i2.unwrap_or(options.rows / 8),
        seconds: options.seconds,
        warmup: options.common.warmup,
        max_seconds: options.common.max_seconds,
        settle_seconds: options.common.settle_seconds,
        steps,
        cases,
        index_set,
        delete_form: options.delete_form.into(),
        inserts_per_second: options.inserts_per_second,
        htap_seconds: options.htap_transaction_seconds,
        seed: options.common.seed,
        price: match options.price {
            PriceArgument::Int => Price::Int,
            PriceArgument::Float => Price::Float,
        },
    };
    Ok(AnyPlan::Ibench(plan))
}

fn sla_verdict(options: &Ibench, results: &[StepResult]) -> Result<(), Failure> {
    let missed: Vec<&str> =
        results.iter().filter(|result| result.sla_met == Some(false)).map(|result| result.step.as_str()).collect();
    if options.require_sla && !missed.is_empty() {
        return Err(Failure::SlaMissed(format!("the background rate was missed in {}", missed.join(", "))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        use clap::Parser;
        let arguments = crate::cli::Arguments::parse_from(["lab", "run", "ibench", "--rows", "1k"]);
        let crate::cli::Command::Run { workload: Some(crate::cli::Workload::Ibench(options)), .. } = arguments.command
        else {
            unreachable!("the command line says run ibench")
        };
        let AnyPlan::Ibench(plan) = plan_of(&options).unwrap() else { unreachable!("it is one of ibench") };
        plan
    }

    #[test]
    fn defaults_are_those_of_the_specification() {
        let plan = plan();
        assert_eq!((plan.rows, plan.rows_i1, plan.rows_i2, plan.seconds), (1_000, 500, 125, 10));
        assert_eq!(plan.steps.join(" "), "l.i0 l.x l.i1 l.i2 settle qr100 qp100 qr500 qp500 qr1000 qp1000");
        assert_eq!(plan.cases, [Case { tables: 1, clients: 1, cores: None }]);
    }
}
