#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# A private MariaDB server with ENGINE=TREFOIL: fetched, built, started; nothing is installed. `--help` says more.
set -euo pipefail
# What a test under cargo has in its environment of its own package. Some build scripts look at that, and all that stands on them would be
# built anew, here and then there.
unset OUT_DIR "${!CARGO_PKG_@}" "${!CARGO_MANIFEST_@}"

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$HERE")
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
CACHE=${TREFOIL_MARIADB_CACHE:-$TARGET/mariadb}
# Empty: the newest of this series that the machine's package sources hold with its source.
MARIADB_VERSION=${MARIADB_VERSION:-}
SERIES=10.11

usage() {
    cat <<END
usage: mariadb/mariadb.sh [VERB] [ARGUMENT...]     (or: make mariadb)

  run [ARG...]    fetch, build, start a server on a socket of its own and open a client; the server ends with the
                  client. If standard input is no terminal its SQL is run instead. ARGs go to the client. The default.
  fetch [rocksdb] packages and headers of MariaDB into the cache; with \`rocksdb\` also what its plugin needs
  build           ha_trefoil.so for the fetched version
  profile [FILE]  what sysbench's stock tests run of the engine, counted, for TREFOIL_GUIDED_BY; into FILE, by default target/trefoil.profdata. Needs
                  the compiler's llvm-profdata (\`rustup component add llvm-tools\`); some ten minutes
  start [ARG...]  a server in the foreground until Ctrl-C; ARGs go to the server
  test            what \`make test\` runs: a script with its expected output, sessions, the anomaly matrix, kills
  checks NAME...  of these the checks of that name alone: \`lock_timeout\` for check_lock_timeout in mariadb/test
  anomalies [CASE.LEVEL...]   the anomaly matrix: InnoDB and TREFOIL do the same at each isolation level
  kills [N [M]]   the server killed under load N times at random moments, M times (N) at each place of a commit, and within each
                  kind of change of a table at each of its steps
  replication [SECONDS]   a primary and a replica, one of them or both with TREFOIL, under load, killed at random moments: all pairs,
                  formats of the log and kinds of apply, again and again for so many seconds; both hold the same afterwards. With
                  TREFOIL_REPLICATION_LOG=FILE what is done is kept there, and the same command goes on behind it
  rows [SECONDS]  tables whose rows get other settings in place over and over, beside writers, KILL, XA, snapshots and backups, the server killed at random
                  moments, for so many seconds (600): behind each kill the rows are those that the writers were told of
  many [CONNECTIONS [TABLES]]   what one more connection, and one more table, take of the server, held against stated bounds; by
                  default of 100 and 1000
  moving [ROWS]   a table of InnoDB with so many rows, a million by default, comes to TREFOIL and goes back: timed, its progress followed,
                  the server and the statement killed half-way
  speed [N [FOLDER]]   every stock test of sysbench, the insert benchmark and TPC-C beside InnoDB and MyRocks, the log written and not
                  synced at commit, binary log off and on: medians of N turns, 5 by default, and what they are by the better of the two. Ended,
                  it goes on where it was. Hours, on a machine that does nothing else. FOLDER: default target/speed
  buffers         tables of Bε-trees larger than memory do what InnoDB's do, through kills
  suites [GROUP] [ARG...]   the server's own suites; prints a table; ARGs go to its test runner. Groups: storage_engine,
                  the default; engines (iuds and funcs); handler, parts, gcol, period, rocksdb, and foreign, InnoDB's tests
                  of foreign keys, with the engine changed. \`suites all\`: each of them, half an hour; fails if others fail than
                  mysql-test/known names
  sysbench [ARG...]   the packaged sysbench on ENGINE=TREFOIL; without ARGs each of its stock tests for a moment
  drivers [SECONDS [TURNS]]   what the lab's driver costs: the same statements to InnoDB by the packaged sysbench, by the lab, and,
                  with MYTOOLS=FOLDER, by the client of the public insert benchmark (its checkout; PYTHON names a python with MySQLdb),
                  each on a processor of its own, for so many seconds (20), so many times (3). Fails if the lab needs more of its
                  processor than it may. LAB names a program of the lab's; without it one is built
  differential [SEED [COUNT]]   random tables, statements and queries with this engine and with InnoDB, whose answers are
                  held against each other; a seed repeats them. \`differential collations\`: every collation of the server
  package [DIR]   mariadb-plugin-trefoil_VERSION_ARCH.deb into DIR, by default target/package; prints its path
  package-test    that package in a system of its own: installed, upgraded, removed, purged (root; fetches some 80 MB once)
  bare            \`make mariadb\` in a bare root: debootstrap, apt, gcc, make, this machine's Rust, nothing else (root; some 15 minutes)
  ready           succeeds if there is what \`test\` needs, fetching MariaDB if need be
  version         the version that is fetched
  where           its directory in the cache

Environment:
  MARIADB_VERSION         which one, such as $SERIES.1 or 11.8; default the newest $SERIES with packages and source. Of 11.8, where the
                          machine's release of Debian has none, those of the release that has it, with libraries of their own
  TREFOIL_MARIADB_PACKAGES   a folder with the packages (.deb) and the source (mariadb_VERSION.orig.tar.*) of that version, where
                          the package sources lack one of them; what they depend on still comes from there. \`suites\` wants
                          mariadb-test, mariadb-test-data and mariadb-server too
  TREFOIL_MARIADB_CACHE   where packages and builds are kept; default target/mariadb
  TREFOIL_MARIADB_DATA    the server's data directory; default data in the cache
  TREFOIL_PROFILE         cargo's profile of the engine; default release
  TREFOIL_GUIDED_BY       a file of \`profile\`: build, package, speed and all others have the engine compiled by it. A statement that changes one row takes
                          a sixth less of the processor
  TREFOIL_BUILD           what cargo is told to build, trefoil-capi and trefoil-differential among it; default these alone.
                          As part of the workspace they have other features, and everything below them is compiled again
  TREFOIL_DEFAULT_STRUCTURE   the structure of tables that name none: auto, which is betree, btree, betree or lsm; of every
                          server that is started, those of tests and suites too
  TREFOIL_MARIADB_SERVER_ARGS   more arguments of every such server, such as --trefoil-buffer-size=1G
  TREFOIL_SHED_EVERY      of a build with TREFOIL_PROFILE=sim: so many milliseconds after each other everything that may
                          leaves memory, and now and then there is a checkpoint

Packages come from the machine's own package sources (apt), with their checksums, into the cache; it takes about 300 MB.
END
}

[ -z "${TREFOIL_DEFAULT_STRUCTURE:-}" ] ||
    TREFOIL_MARIADB_SERVER_ARGS="${TREFOIL_MARIADB_SERVER_ARGS:-} --trefoil-default-structure=$TREFOIL_DEFAULT_STRUCTURE"

# What is to be told although a test keeps others from telling.
exec 7>&2
say() { printf '%s\n' "mariadb: $*" >&2; }
die() { say "$*"; exit 1; }

. "$HERE/tools/packages.sh"
. "$HERE/tools/build.sh"
. "$HERE/tools/guided.sh"
. "$HERE/tools/server.sh"
. "$HERE/tools/suites.sh"
. "$HERE/tools/derived.sh"
. "$HERE/tools/sysbench.sh"
. "$HERE/tools/drivers.sh"
. "$HERE/tools/package.sh"
. "$HERE/test/common.sh"
. "$HERE/test/anomalies.sh"
. "$HERE/test/kills.sh"
. "$HERE/test/differential.sh"
. "$HERE/test/sessions.sh"
. "$HERE/test/buffers.sh"
. "$HERE/test/package.sh"
. "$HERE/test/bare.sh"
. "$HERE/test/rows_random.sh"
. "$HERE/test/replication.sh"
. "$HERE/test/many.sh"
. "$HERE/test/moving.sh"
. "$HERE/test/speed.sh"

verb=${1:-run}
[ $# -eq 0 ] || shift
# Not joined by `&&`: within such a list a step that fails would not end the script.
case $verb in
    -h | --help | help) usage ;;
    fetch) fetch; if [ "${1:-}" = rocksdb ]; then fetch_rocksdb; fi ;;
    ready) compiler > /dev/null; fetch ;;
    build) fetch; build ;;
    profile) fetch; profile "$@" ;;
    start) fetch; build; serve "$@" ;;
    run) fetch; build; run_client "$@" ;;
    test) fetch; build; . "$HERE/test/smoke.sh" ;;
    checks) fetch; build; . "$HERE/test/checks.sh"; checks "$@" ;;
    anomalies) fetch; build; scratch; anomalies "$@"; verdicts ;;
    kills) fetch; build; . "$HERE/test/checks.sh"; scratch; kills "${1:-5}" "${2:-${1:-5}}"; killed_in_changes "${2:-${1:-5}}"; verdicts ;;
    replication) fetch; build; replication "$@"; verdicts ;;
    rows) fetch; build; . "$HERE/test/checks.sh"; scratch; rows_random "${1:-600}"; verdicts ;;
    moving) fetch; build; moving "$@"; verdicts ;;
    speed) fetch; build; speed "$@" ;;
    many) fetch; build; many "$@"; verdicts ;;
    buffers) fetch; build; scratch; buffers; verdicts ;;
    sysbench) fetch; build; sysbench "$@" ;;
    drivers) fetch; drivers "$@" ;;
    differential) fetch; build; differential "$@" ;;
    package) fetch; build; package "$@" ;;
    package-test) fetch; build; locate; package_tests ;;
    bare) bare ;;
    suites) fetch; build; if [ "${1:-}" = all ]; then all_suites; else suites "$@"; fi ;;
    version) fetched_version ;;
    where) locate; printf '%s\n' "$DIR" ;;
    *) usage >&2; exit 2 ;;
esac
