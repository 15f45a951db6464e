//! Options of `lab run tpcc`.

use clap::Args;

use super::Common;

/// Options of `lab run tpcc`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Every number of sessions on every number of cores is a run of its own on fresh tables: load, settle, then the steps:
  run       sessions take transactions from shuffled decks: of a hundred 45 new orders, 43 payments, 4 each of order
            status, delivery and stock level; no keying and think times
  snapshot  the same while the conditions are checked in one snapshot after another
  crash     the same in a process that is killed in its middle; the database is opened again, has to fulfil the conditions
            and to hold what was acknowledged (trefoil, rocksdb, private servers)
The twelve consistency conditions of the specification, rows and index entries are checked after the load and after each
step. A session's home is the warehouse of its number modulo all. A transaction that met a deadlock, a lock wait or a
conflict is rolled back and run again as it was drawn: key retries.

tpm counts all transactions, nopm new orders that were committed. NOPM is not tpmC, which has keying and think times and
is at most 12.86 a warehouse.

--cores restricts this process, engine and driver, to so many processors, load included. --clients then are a multiple of
them, and the best of all is taken. To measure processors alone, let --dir be on tmpfs.

Targets: name or name:key=value,key=value, as in lab run ibench; trefoil, rocksdb:txn=pessimistic, model, null.

Examples:
  lab run tpcc --warehouses 1 --seconds 30
  lab run tpcc --cores 1,2 --dir /dev/shm --repeat 5
  lab run tpcc --target trefoil --target rocksdb:txn=pessimistic --warehouses 10 --clients 8 --budget 1g
  lab run tpcc --warehouses 10 --clients 8 --steps run,snapshot,crash --durability sync")]
pub struct Tpcc {
    /// Warehouses, about 75 MB each
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub warehouses: u32,

    /// Steps behind load and settle, in order [default: run,snapshot; with --cores: run]
    #[arg(long, value_delimiter = ',', value_name = "STEP,…")]
    pub steps: Vec<String>,

    /// Length of each step
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub seconds: u64,

    /// Sessions; several values run one after the other [default: 1,8; with --cores 1,2,4,8 times the cores]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub clients: Vec<u32>,

    /// Processors that this process may use; several values run one after the other [default: all]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub cores: Vec<u32>,

    /// Divides items, customers and orders: for a first try, not of standard size
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub scale: u32,

    /// What every workload has
    #[command(flatten)]
    pub common: Common,
}
