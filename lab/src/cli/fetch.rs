//! Options of `lab fetch`.

use clap::Args;

/// Options of `lab fetch`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
What is fetched is started by its version: --target 'server:mysql?version=9.7&engine=innodb'. A run fetches what it
needs by itself. Packages come through this machine's own clients (apt and dpkg-deb of Debian, mvn of Maven), which
check them; they are unpacked beside the system, and what was brought already is not brought again.

Kept in target/servers of the repository, else in the user's cache; TREFOIL_SERVERS_CACHE names another place.")]
pub struct Fetch {
    /// Product and version, such as mysql@9.7; without one, what there is
    #[arg(value_name = "PRODUCT@VERSION")]
    pub versions: Vec<String>,
}
