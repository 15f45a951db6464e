# SPDX-License-Identifier: GPL-2.0-only
# A server killed under load, with the binary log and InnoDB beside: at random moments, and at each place that
# mariadb/capi/src/crash.rs names. After each restart the binary log and both engines hold the same transactions, those
# that were acknowledged among them. Without a binary log TREFOIL has those; what the server makes of the other
# engine then is not looked at (two_phase.cc). Sourced by mariadb.sh.

# Where a server dies: before, in and behind the phases of a commit; when it begins another binary log, before and behind the
# sync that it asks for before it gives up those before.
PLACES=(to_prepare prepared ready to_order ordered to_finish finished to_rotate rotated)
KILL_CLIENTS=3

# Transfers between accounts with a row in each journal; some in two phases by the client. The number of a transaction is
# printed once it is committed. Who decides what clients prepared is the binary log; without it they prepare nothing.
load() {
    local n=$1 i from to phases
    for ((i = 1; i <= 100000; i++)); do
        from=$((i % 10)) to=$((10 + (i + n) % 10)) phases=1
        ((i % 8 != n || !WITH_BINLOG)) || phases=2
        if ((phases == 2)); then printf "XA START '%d-%d';" "$n" "$i"; else printf 'BEGIN;'; fi
        printf 'UPDATE acc SET v = v - 1 WHERE id = %d; UPDATE acc SET v = v + 1 WHERE id = %d;' "$from" "$to"
        printf 'INSERT INTO journal VALUES (%d, %d); INSERT INTO keyed VALUES (%d, %d, %d);' "$n" "$i" "$n" "$i" $((i % 7))
        ((i % 3 == 0)) || printf 'INSERT INTO innodb_journal VALUES (%d, %d);' "$n" "$i"
        if ((phases == 2)); then
            printf "XA END '%d-%d'; XA PREPARE '%d-%d'; XA COMMIT '%d-%d';" "$n" "$i" "$n" "$i" "$n" "$i"
        else
            printf 'COMMIT;'
        fi
        ((i % 200 != n || !WITH_BINLOG)) || printf 'FLUSH BINARY LOGS;'
        printf 'SELECT %d;\n' "$i"
    done
}

# Transactions that the binary log has committed, as their rows of `journal`. A statement is written beside its rows.
logged() {
    local log
    for log in $(value 'SHOW BINARY LOGS' | cut -f 1); do
        binlog_events "$log"
    done | awk -F '\t' '
        $6 ~ /INSERT INTO journal VALUES/ { match($6, /\([0-9, ]*\)/); row = substr($6, RSTART + 1, RLENGTH - 2); sub(/, /, "\t", row) }
        $3 == "Xid" { print row }
        /XA PREPARE/ { match($6, /X\047[0-9a-f]*\047/); prepared[substr($6, RSTART, RLENGTH)] = row }
        /XA COMMIT/ { match($6, /X\047[0-9a-f]*\047/); print prepared[substr($6, RSTART, RLENGTH)] }' | sort
}

# What clients had prepared: committed if the binary log says so, as the server leaves to whoever starts it.
decide_prepared() {
    local format length rest name
    while read -r format length rest name; do
        if grep -qxF "${name/-/$'\t'}" "$WORK/logged"; then value "XA COMMIT '$name'"; else value "XA ROLLBACK '$name'"; fi
    done < <(value 'XA RECOVER')
}

rows_of() { value "SELECT n, i FROM kill_test.$1" | sort; }

are_same() {
    diff "$2" "$3" > "$WORK/difference" && return 0
    head -5 "$WORK/difference"
    echo "$1 differ"
    return 1
}

check_after_kill() {
    local n acknowledged there
    if ((WITH_BINLOG)); then
        logged > "$WORK/logged"
        decide_prepared
    fi
    rows_of journal > "$WORK/journal"
    rows_of innodb_journal > "$WORK/innodb"
    if ((WITH_BINLOG)); then
        are_same 'the binary log (<) and TREFOIL (>)' "$WORK/logged" "$WORK/journal" || return 1
        are_same 'the binary log (<) and InnoDB (>)' <(awk '$2 % 3' "$WORK/logged") "$WORK/innodb" || return 1
    fi
    rows_of 'keyed FORCE INDEX (k) WHERE k >= 0' | cmp -s - "$WORK/journal" || { echo 'a key and its rows differ'; return 1; }
    [ "$(value 'SELECT SUM(v) FROM kill_test.acc')" = 2000 ] || { echo 'money was made or lost'; return 1; }
    for ((n = 1; n <= KILL_CLIENTS; n++)); do
        acknowledged=$(tail -n 1 "$WORK/acknowledged.$n")
        there=$(value "SELECT COALESCE(MAX(i), 0) FROM kill_test.journal WHERE n = $n")
        [ "$there" -ge "${acknowledged:-0}" ] || { echo "client $n: $acknowledged was acknowledged, $there is there"; return 1; }
        [ "$(value "SELECT COUNT(*) FROM kill_test.journal WHERE n = $n")" = "$there" ] || { echo "a gap of client $n"; return 1; }
    done
    [ "$(value 'CHECK TABLE kill_test.acc, kill_test.journal, kill_test.keyed' | grep -c 'status.OK')" = 3 ] ||
        { echo 'CHECK TABLE finds something'; return 1; }
}

# Starts the clients; PIDS are theirs.
start_load() {
    local n
    PIDS=()
    for ((n = 1; n <= KILL_CLIENTS; n++)); do
        load "$n" | client -N -B --unbuffered kill_test > "$WORK/acknowledged.$n" 2> /dev/null &
        PIDS+=($!)
    done
}

after_kill() {
    local name=$1
    wait "${PIDS[@]}" 2> /dev/null || true
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    if check_after_kill > "$WORK/why" 2>&1; then
        verdict "$name, $(cat "$WORK"/acknowledged.* | wc -l) commits acknowledged, $(wc -l < "$WORK/journal") there" ok
    else
        cat "$WORK/why"
        verdict "$name" FAILED
    fi
}

# From here on a binary log holds what the journals hold.
kills_tables() {
    client < "$HERE/test/kills.sql"
    ((!WITH_BINLOG)) || value 'RESET MASTER'
}

# A kill may leave a part of an event at the end of the binary log. Luck seldom brings it.
tear_log() {
    local log
    log=$(find "$DATA" -name 'binlog.0*' | sort | tail -n 1)
    # The first event, behind four bytes that every log begins with. Who reads the pipe reads to its end: one that leaves early fails the other.
    head -c 44 "$log" | tail -c +5 > "$WORK/torn"
    cat "$WORK/torn" >> "$log"
}

# At random moments; of every other kill, what was written last in the binary log is no whole event.
random_kills() {
    local round
    for ((round = 1; round <= $1; round++)); do
        kills_tables
        start_load
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        kill_server
        ((!WITH_BINLOG || round % 2)) || tear_log
        after_kill "kill $round$2"
    done
}

# The server ends itself within half a minute; then SERVER is empty.
await_death() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        kill -0 "$SERVER" || { wait "$SERVER" || SERVER=; return 0; }
        sleep 0.1
    done
} 2> /dev/null

# At each place, after it was passed at random often.
kills_at_places() {
    local place round count
    for place in "${PLACES[@]}"; do
        for ((round = 1; round <= $1; round++)); do
            count=$((1 + RANDOM % 200))
            [[ $place != *rotate* ]] || count=$((1 + RANDOM % 8))
            kills_tables
            kill_at "$place:$count"
            start_load
            await_death
            if [ -n "$SERVER" ]; then
                verdict "kill at $place:$count, which was not reached" FAILED
                kill_server
            fi
            after_kill "kill at $place:$count"
        done
    done
}

# As many at random moments, and as many at each place.
kills() {
    local seed=${TREFOIL_KILL_SEED:-$$}
    RANDOM=$seed
    say "kills of seed $seed (TREFOIL_KILL_SEED)"
    WITH_BINLOG=0
    restart_with --innodb=ON --innodb-buffer-pool-size=16M
    random_kills "$((($1 + 1) / 2))" ' without a binary log'
    WITH_BINLOG=1
    restart_with --innodb=ON --innodb-buffer-pool-size=16M --log-bin=binlog --binlog-format=ROW --max-binlog-size=65536
    random_kills "$1" ''
    case ${TREFOIL_PROFILE:-release} in
        release) echo 'skipped: kills at places, which TREFOIL_PROFILE=sim compiles' ;;
        *) kills_at_places "${2:-$1}" ;;
    esac
}
