# SPDX-License-Identifier: GPL-2.0-only
# The smoke test of ENGINE=TREFOIL: SQL with its expected output, sessions beside each other, a server killed under load.
# Sourced by mariadb.sh; `TREFOIL_RECORD=1 mariadb/mariadb.sh test` writes the expected output anew.

# A script's output, errors in their places.
script() {
    local name=$1 expected=$HERE/test/$1.expected out=$WORK/$1.out
    client --force --table --unbuffered < "$HERE/test/$name.sql" 2>&1 | grep -v '^--------------$' |
        sed 's/^\(ERROR .*\) at line [0-9]*:/\1:/' > "$out" || true
    [ -z "${TREFOIL_RECORD:-}" ] || cp "$out" "$expected"
    if diff -u <(without_asked "$expected") <(without_asked "$out") > "$WORK/$name.diff"; then
        verdict "$name" ok
    else
        cat "$WORK/$name.diff"
        verdict "$name" FAILED
    fi
}

beside_innodb() {
    end_server
    start_server "${SERVER_ARGS[@]/--innodb=OFF/--innodb=ON}" 2> /dev/null
    same_as_innodb
    same tables
    same alter
    same foreign
    same longkeys
    same ahead
    same keybytes
    differ_nowhere
    same autoinc
    same_plans
    same_ranges
    check unwanted
    check there_and_back
    check move_that_is_killed
    check one_moment
    local name
    for name in copies limits moment errors; do
        same_in_sessions "$name"
    done
}

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
for name in lock_timeout wait_says_how_long shared_under_lock_tables nowait_and_skip_locked limit_locks_no_more kill_query deadlock deadlock_detect backup status default_options isolation xa \
    index_beside_writers build_that_fails rows_beside_writers rows_in_one_statement rows_as_they_were rows_given_up \
    rows_of_parent_and_child xa_beside_temporary_tables copies_beside_snapshots long_unique long_unique_prepared \
    long_unique_race changes_beside_prepared change_without_client savepoint_gives_back \
    clustering_plans copy_beside_prepared gives_back_its_own reads_of_triggers key_has_all duplicate_of_partition \
    views_of_waits view_of_deadlocks view_of_snapshots views_of_storage views_need_process progress foreign_versions \
    parent_copied_beside_child parent_being_changed child_that_waits_is_killed \
    parent_copied_over_and_over foreign_hashed foreign_widened foreign_unchecked \
    kill_connection options_any_case estimates read_ahead_once other_version; do
    check "$name"
done
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
