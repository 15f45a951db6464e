//! Options of `lab run sysbench`.

use clap::Args;

use super::{Common, count};

/// Options of `lab run sysbench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Every number of clients on every number of tables is a run of its own on fresh tables: load, settle, then the tests in
the order given. Tests of today, in order:
  point-query.warm scan.warmpre point-query.pre range-notcovered-si.pre
  update-inlist update-index update-nonindex update-one update-zipf write-only read-write.10 read-write.100 settle
  scan.warm scan read-only.10 .100 .10000 read-only-simple -sum -order -distinct -count
  point-query random-points.10 .100 .1000 hot-points
  points-covered-pk -notcovered-pk range-covered-pk -notcovered-pk, the same with -si on the index of k
  delete insert
A number behind a dot is rows of a range or keys of a list; any other can be given, and without one all of today's run.
update-rate.N is in no form: k + 1 of N rows behind one another (1000 by itself) in one statement, then a second's pause.
--form all is each of the 42 tests that the original knows: reads before any write beside those of today.
.pre, .post, .warm and .warmpre name the same test once more; those with .warm are left out of the tables of rates.
An event that met a deadlock, a lock wait or a conflict is rolled back and another is started: key retries.

Targets: name or name:key=value,key=value, as in lab run ibench; trefoil, rocksdb:txn=pessimistic, model, null,
server:mariadb?engine=innodb|rocksdb|trefoil and mysql://user@host/database?engine=…, prepared or protocol=text.

Examples:
  lab run sysbench --rows 1m --seconds 10 --budget 1g
  lab run sysbench --tests update-one,random-points.100,hot-points,insert --repeat 5
  lab run sysbench --tables 1 --clients 1,2,4 --tests read-only --format json")]
pub struct Sysbench {
    /// Tests to run, in order [default: all of the form]
    #[arg(long, value_delimiter = ',', value_name = "TEST,…")]
    pub tests: Vec<String>,

    /// Order of the tests where none are named
    #[arg(long, default_value = "today", value_name = "2017|today|all")]
    pub form: String,

    /// Rows of all tables together (k, m, g = thousands, millions, billions)
    #[arg(long, default_value = "1m", value_parser = count, value_name = "N")]
    pub rows: u64,

    /// Length of each test
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub seconds: u64,

    /// Tables; several values run one after the other
    #[arg(long, value_delimiter = ',', default_value = "8,1", value_name = "N,…")]
    pub tables: Vec<u32>,

    /// Clients; several values run one after the other
    #[arg(long, value_delimiter = ',', default_value = "1,8,48", value_name = "N,…")]
    pub clients: Vec<u32>,

    /// What every workload has
    #[command(flatten)]
    pub common: Common,
}
