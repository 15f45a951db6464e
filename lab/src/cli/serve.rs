//! Options of `lab serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

/// Options of `lab serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Pages: the runs with a search, each with its tables and report; two of them compared and explained; the run under way, second
by second. /metrics has its running numbers for Prometheus. Nothing is written, nothing outside of DIR is read, and passwords
in targets are hidden. With --listen browsers ask under the address in numbers; other names are refused. Ctrl-C ends it, with
code 0.

Examples:
  lab serve                                         http://127.0.0.1:7878/
  lab serve results --port 0                        a port that is free; it is printed
  lab serve --listen 0.0.0.0                        for other machines too, which need no password")]
pub struct Serve {
    /// Where runs are kept
    #[arg(default_value = crate::folder::RUNS)]
    pub dir: PathBuf,

    /// The port; 0 = any that is free
    #[arg(long, default_value_t = 7878, value_name = "PORT")]
    pub port: u16,

    /// The address to listen on; another one than this machine's own lets every machine that reaches it read all runs
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub listen: IpAddr,
}
