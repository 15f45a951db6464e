use super::*;

const MIB: u64 = 1 << 20;

/// 64 MiB of budget, nothing owed.
fn in_shape() -> Debts {
    Debts {
        run_memory_max: 8 * MIB,
        buffered_aim: 16 * MIB,
        dirty_aim: 25 * MIB,
        budget: 64 * MIB,
        log_free: 768 * MIB,
        log_capacity: 1024 * MIB,
        ..Debts::default()
    }
}

#[test]
fn admission_falls_without_a_cliff_and_never_stops() {
    let paid = 1e7;
    assert_eq!(admitted(0.99, paid, LEAST_BYTES_PER_SECOND), None);
    let at = |lag| admitted(lag, paid, LEAST_BYTES_PER_SECOND).unwrap() / paid;
    for (lag, share) in [(1.0, 2.0), (1.5, 1.5), (2.0, 1.0), (6.0, 0.55), (10.0, 0.1), (1e9, 0.1)] {
        assert!((at(lag) - share).abs() < 1e-9, "{lag} s: {}", at(lag));
    }
    let steps = (100..1200).map(|i| (at(f64::from(i) / 100.0), at(f64::from(i + 1) / 100.0)));
    assert!(steps.into_iter().all(|(now, next)| next <= now && now - next < 0.02), "a cliff");
    assert!(admitted(10.0, 0.0, LEAST_BYTES_PER_SECOND).unwrap() >= LEAST_BYTES_PER_SECOND);
}

#[test]
fn a_lag_is_known_while_commits_come() {
    let controller = Controller::default();
    for (second, buffered, lag) in [(1, 16 * MIB, 0.0), (2, 17 * MIB, 0.625)] {
        let now = Duration::from_secs(second);
        controller.pay(1, now, || Debts { buffered, ..in_shape() });
        assert_eq!((controller.lag(now + LOOK_EVERY), controller.lag(now + 3 * LOOK_EVERY)), (Some(lag), None));
    }
}

#[test]
fn each_debt_delays_under_its_own_name() {
    assert!(in_shape().lag().0 < FREE_SECONDS);
    let cases = [
        (Debts { run_memory: 4 * MIB, ..in_shape() }, Reason::Runs, 5.0),
        (Debts { runs: 256, ..in_shape() }, Reason::Runs, 5.0),
        (Debts { ranges: 2048, ..in_shape() }, Reason::Runs, 5.0),
        (Debts { buffered: 24 * MIB, ..in_shape() }, Reason::Buffers, 5.0),
        (Debts { messages: 450 * MIB, messages_aim: 300 * MIB, ..in_shape() }, Reason::Drains, 5.0),
        (Debts { dirty: 56 * MIB, ..in_shape() }, Reason::Dirty, 10.0),
        (Debts { log_behind: 896 * MIB, ..in_shape() }, Reason::Log, 5.0),
        (Debts { gc: 100 * MIB, live: 200 * MIB, ..in_shape() }, Reason::Gc, 5.0),
        (Debts { gc: 10 * MIB, gc_limit: 2 * MIB, ..in_shape() }, Reason::Gc, 5.0),
        (Debts { dead: 300 * MIB, live: 200 * MIB, ..in_shape() }, Reason::Space, 5.0),
    ];
    for (debts, reason, lag) in cases {
        let (found, named) = debts.lag();
        assert_eq!(named, reason, "{debts:?}");
        assert!((found - lag).abs() < 0.01, "{debts:?}: {found} s");
    }
    let bulk_load_in_one_file = Debts { runs: 1, run_bytes: 1 << 40, ..in_shape() };
    let dirty_as_aimed = Debts { dirty: 25 * MIB, ..in_shape() };
    let checkpoint_due = Debts { log_behind: 768 * MIB, ..in_shape() };
    let below_its_limit = Debts { gc: 100 * MIB, gc_limit: 101 * MIB, ..in_shape() };
    let a_few_leaves = Debts { gc: 6 * MIB, ..in_shape() };
    let sparse_extents = Debts { dead: 130 * MIB, live: 200 * MIB, ..in_shape() };
    let small_file = Debts { dead: 40 * MIB, live: MIB, ..in_shape() };
    let few_messages = Debts { messages: 6 * MIB, messages_aim: MIB, ..in_shape() };
    let small = [few_messages, a_few_leaves, below_its_limit, sparse_extents, small_file];
    for debts in [bulk_load_in_one_file, dirty_as_aimed, checkpoint_due].into_iter().chain(small) {
        assert!(debts.lag().0 < FREE_SECONDS, "{debts:?} is in shape");
    }
}

#[test]
fn commits_pay_one_after_the_other_and_the_line_has_an_end() {
    let line = Line::default();
    let ms = 1_000_000;
    assert_eq!(line.join(1000 * ms, 5 * ms, LINE_MAX), 5 * ms);
    assert_eq!(line.join(1001 * ms, 5 * ms, LINE_MAX), 9 * ms, "behind the first");
    assert_eq!(line.join(2000 * ms, 5 * ms, LINE_MAX), 5 * ms, "time that nobody used is gone");
    assert_eq!(line.join(2000 * ms, 90_000 * ms, LINE_MAX), LINE_MAX.as_nanos() as u64);
}

const STEP: f64 = 0.05;

/// Looks at a store whose background does `pays` of work a second, under writers who would be three times as fast.
/// Returns lags and admitted bytes.
fn simulate(seconds: f64, pays: f64, debts: impl Fn(f64, f64) -> Debts) -> Vec<(f64, f64)> {
    let (mut meter, offered, start) = (Meter::default(), 3.0 * pays, Instant::now());
    let (mut committed, mut owed, mut is_free) = (0.0, 0.0f64, true);
    let look = |i: u32| {
        let debts = debts(committed, owed);
        meter.look(start + Duration::from_secs_f64(f64::from(i) * STEP), debts, is_free);
        let (lag, reason) = debts.lag();
        let limit = admitted(lag, meter.kept_up(reason), LEAST_BYTES_PER_SECOND);
        is_free = limit.is_none();
        let rate = limit.map_or(offered, |rate| rate.min(offered));
        committed += rate * STEP;
        owed = (owed + (rate - pays) * STEP).max(0.0);
        (lag, rate)
    };
    (0..(seconds / STEP) as u32).map(look).collect()
}

fn assert_settles(steps: &[(f64, f64)], pays: f64) {
    assert!(steps.iter().all(|(lag, rate)| *lag < HARD_SECONDS && *rate > 0.0), "overshoot");
    let settled = &steps[steps.len() / 2..];
    assert!(settled.iter().all(|(lag, _)| (1.5..2.5).contains(lag)), "{:?}", &settled[..20]);
    assert!(settled.iter().all(|(_, rate)| (rate / pays - 1.0).abs() < 0.1), "{:?}", &settled[..20]);
}

#[test]
fn runs_settle_where_as_much_is_admitted_as_is_drained() {
    let steps = simulate(120.0, 1e6, |committed, owed| Debts {
        committed: committed as u64,
        run_bytes: owed as u64,
        run_memory: owed as u64,
        ..in_shape()
    });
    assert_settles(&steps, 1e6);
}

/// Ten bytes are written for one committed.
#[test]
fn dirty_leaves_settle_where_as_much_is_admitted_as_is_written_back() {
    let pays = 1e6;
    let steps = simulate(120.0, pays, |committed, owed| Debts {
        committed: committed as u64,
        written: (10.0 * (committed - owed)) as u64,
        dirty: 25 * MIB + 10 * owed as u64,
        ..in_shape()
    });
    assert_settles(&steps, pays);
}

/// Four bytes of pages are to be collected for one committed, on top of an old debt.
#[test]
fn leaves_to_collect_settle_where_as_much_is_admitted_as_is_collected() {
    let pays = 4e6;
    let steps = simulate(120.0, pays, |committed, owed| Debts {
        committed: committed as u64,
        gc: 4 * owed as u64,
        gc_paid: (4.0 * (committed - owed)) as u64,
        live: 800 * MIB,
        ..in_shape()
    });
    assert_settles(&steps, pays);
}

/// Two bytes of messages come to disk for one committed.
#[test]
fn messages_settle_where_as_much_is_admitted_as_is_drained() {
    let pays = 4e6;
    let steps = simulate(120.0, pays, |committed, owed| Debts {
        committed: committed as u64,
        messages: 100 * MIB + 2 * owed as u64,
        messages_aim: 100 * MIB,
        drained: (2.0 * (committed - owed)) as u64,
        ..in_shape()
    });
    assert_settles(&steps, pays);
}

/// Half a byte is to be moved for one committed; moving it wins three.
#[test]
fn dead_space_settles_where_as_much_is_admitted_as_is_cleaned() {
    let pays = 4e6;
    let steps = simulate(120.0, pays, |committed, owed| Debts {
        committed: committed as u64,
        to_move: owed as u64 / 2,
        dead: 3 * owed as u64,
        moved: ((committed - owed) / 2.0) as u64,
        ..in_shape()
    });
    assert_settles(&steps, pays);
}

/// Three bytes are written for one committed, and as many commits were taken as came: a budget says that fewer will do.
#[test]
fn what_is_kept_up_with_follows_the_budget() {
    let (mut meter, start) = (Meter::default(), Instant::now());
    for second in 0..10u64 {
        let committed = second * 1_000_000;
        let debts = Debts { committed, written: 3 * committed, io_rate: Some(300_000), ..in_shape() };
        meter.look(start + Duration::from_secs(second), debts, true);
    }
    for reason in [Reason::Runs, Reason::Log, Reason::Dirty] {
        assert!((meter.kept_up(reason) / 100_000.0 - 1.0).abs() < 0.01, "{reason:?}: {}", meter.kept_up(reason));
    }
}

/// Who looked at what was committed was preempted, and another one who looked later came in before.
#[test]
fn a_look_that_comes_in_late_is_no_loss() {
    let (mut meter, now) = (Meter::default(), Instant::now());
    for committed in [2_000_000, 1_000_000] {
        meter.look(now, Debts { committed, written: committed, ..in_shape() }, true);
    }
    for reason in Reason::ALL {
        assert!(meter.kept_up(reason).is_finite(), "{reason:?}");
    }
}

/// The same debt for two minutes: what is admitted does not sink further and further.
#[test]
fn admission_does_not_follow_itself_down() {
    let steps = simulate(120.0, 1e6, |committed, _| Debts {
        committed: committed as u64,
        written: (committed * 3.0) as u64,
        log_behind: if committed < 30e6 { 0 } else { 864 * MIB },
        ..in_shape()
    });
    let (after_ten, last) = (steps[200].1, steps[steps.len() - 1].1);
    assert!(last > 0.5 * after_ten, "{after_ten} B/s after 10 s, {last} at the end");
}

/// For comparisons: nothing before the wall, and a fixed rate behind it, whatever is paid off.
#[test]
fn at_the_wall_a_fixed_rate_is_kept() {
    let rates = |at_wall: Option<u64>| {
        let controller = Controller::default();
        controller.delay_at_wall(at_wall);
        let lags = [17, 28, 31, 33, 20].map(|mib| Debts { buffered: mib * MIB, ..in_shape() });
        let mut at = Duration::ZERO;
        lags.map(|debts| {
            at += LOOK_EVERY;
            controller.pay(0, at, || debts);
            controller.rate.load(Ordering::Relaxed)
        })
    };
    assert_eq!(rates(Some(2 * MIB)), [0, 0, 0, 2 * MIB, 0]);
    let own = rates(None);
    assert!(own[0] == 0 && own[1..].iter().all(|rate| *rate > 0), "the debt limits from early on: {own:?}");
}
