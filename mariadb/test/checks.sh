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

in_sessions() {
    local name
    for name in lock_timeout wait_says_how_long shared_under_lock_tables nowait_and_skip_locked limit_locks_no_more kill_query deadlock deadlock_detect backup status default_options isolation xa \
        index_beside_writers build_that_fails rows_beside_writers rows_in_one_statement rows_as_they_were rows_given_up \
        rows_of_parent_and_child rows_of_partitions rows_beside_prepared backup_beside_statements xa_beside_temporary_tables \
        copies_beside_snapshots long_unique long_unique_prepared help_is_text \
        long_unique_race changes_beside_prepared change_without_client savepoint_gives_back \
        clustering_plans copy_beside_prepared gives_back_its_own reads_of_triggers key_has_all duplicate_of_partition \
        views_of_waits view_of_deadlocks view_of_snapshots views_of_storage views_need_process progress foreign_versions \
        parent_copied_beside_child parent_being_changed child_that_waits_is_killed \
        parent_copied_over_and_over foreign_hashed foreign_widened foreign_unchecked \
        kill_connection options_any_case estimates read_ahead_once other_version; do
        check "$name"
    done
}

# Those of these names, with InnoDB beside where they need it: check_NAME beside two sessions, sessions_NAME with both engines, a script with
# its expected output, one that does the same with both engines; or a step of the smoke test, such as `drills`.
checks() {
    local name
    scratch
    # The library of backups' programs may have to be fetched.
    case "$*" in *drill* | *increments*) fetch_tools ;; esac
    for name in "$@"; do
        case $name in
            move_* | there_* | one_* | unwanted | copies | limits | moment | errors | same_* | differ_* | alter | foreign | tables | longkeys | ahead | keybytes | autoinc)
                SERVER_ARGS=("${SERVER_ARGS[@]/--innodb=OFF/--innodb=ON}") ;;
        esac
    done
    start_server "${SERVER_ARGS[@]}"
    check_engine
    for name in "$@"; do
        if declare -F "sessions_$name" > /dev/null; then same_in_sessions "$name"
        elif [ -e "$HERE/test/$name.expected" ]; then script "$name"
        elif [ -e "$HERE/test/$name.sql" ] && ! declare -F "$name" > /dev/null; then same "$name"
        elif declare -F "check_$name" > /dev/null; then check "$name"
        else "$name"; fi
    done
    verdicts
}
