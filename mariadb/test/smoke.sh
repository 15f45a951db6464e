# SPDX-License-Identifier: GPL-2.0-only
# The smoke test of ENGINE=TREFOIL: SQL with its expected output, sessions beside each other, a server killed under load.
# Sourced by mariadb.sh; `TREFOIL_RECORD=1 mariadb/mariadb.sh test` writes the expected output anew.

. "$HERE/test/checks.sh"
scratch
# Beside all the others, on servers of its own: it waits more than it works. It ends with this test, however that ends.
fetch_tools || true
# That it went well is a file: its process number may be another's when this shell, with so many children, asks.
REPLICATED=$WORK/replication.ok
(FAILED=0 LOOKER=; replication 0 short && [ "$FAILED" = 0 ] && : > "$REPLICATED") > "$WORK/replication.out" 2>&1 &
BESIDE=$!
start_server "${SERVER_ARGS[@]}"
check_engine
script smoke
script keys
script clustering
in_sessions
killed_in_changes
autoinc_kept
pool_goes_on
drills
beside_innodb
anomalies
kills 4 1
trouble
end_server
wait "$BESIDE" 2> /dev/null || true
if [ -e "$REPLICATED" ]; then replicated=ok; else replicated=FAILED; fi
BESIDE=
cat "$WORK/replication.out"
verdict replication "$replicated"
verdicts
