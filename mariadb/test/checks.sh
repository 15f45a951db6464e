# SPDX-License-Identifier: GPL-2.0-only
# All that the smoke test checks, and one check or more by name. Sourced by mariadb.sh and smoke.sh.

SERVER_ARGS=(--innodb=OFF --default-storage-engine=Aria --character-set-server=latin1 --collation-server=latin1_swedish_ci
    --default-time-zone=+00:00 --log-bin=binlog --binlog-format=ROW)
. "$HERE/test/reads.sh"
. "$HERE/test/tables.sh"
. "$HERE/test/ddl.sh"
. "$HERE/test/waits.sh"
. "$HERE/test/rows.sh"
. "$HERE/test/trouble.sh"
. "$HERE/test/explain.sh"
. "$HERE/test/ranges.sh"
. "$HERE/test/pool.sh"
. "$HERE/test/autoinc.sh"
. "$HERE/test/information.sh"
. "$HERE/test/drill.sh"
. "$HERE/test/migrating.sh"
. "$HERE/test/foreign.sh"
. "$HERE/test/statements.sh"

# Those that `check` knows, each beside two sessions; and those of sessions with both engines: errors, copies, limits, moment.
checks() {
    local name
    scratch
    # The library of backups' programs may have to be fetched.
    case "$*" in *drill* | *increments*) fetch_tools ;; esac
    case "$*" in *move* | *back* | *moment* | *errors* | *copies* | *limits*) SERVER_ARGS=("${SERVER_ARGS[@]/--innodb=OFF/--innodb=ON}") ;; esac
    start_server "${SERVER_ARGS[@]}"
    check_engine
    for name in "$@"; do
        if declare -F "sessions_$name" > /dev/null; then same_in_sessions "$name"; else check "$name"; fi
    done
    verdicts
}
