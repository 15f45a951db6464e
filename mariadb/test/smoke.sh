# SPDX-License-Identifier: GPL-2.0-only
# The smoke test of ENGINE=TREFOIL: SQL with its expected output, sessions beside each other, a server killed under load.
# Sourced by mariadb.sh; `TREFOIL_RECORD=1 mariadb/mariadb.sh test` writes the expected output anew.

# A script's output, errors in their places.
script() {
    local name=$1 expected=$HERE/test/$1.expected out=$WORK/$1.out
    client --force --table --unbuffered < "$HERE/test/$name.sql" 2>&1 | grep -v '^--------------$' |
        sed 's/^\(ERROR .*\) at line [0-9]*:/\1:/' > "$out" || true
    [ -z "${TREFOIL_RECORD:-}" ] || cp "$out" "$expected"
    if diff -u "$expected" "$out" > "$WORK/$name.diff"; then
        verdict "$name" ok
    else
        cat "$WORK/$name.diff"
        verdict "$name" FAILED
    fi
}

# Transfers between accounts with two rows of a journal each; the number of a transaction is printed once it is committed.
load() {
    local n=$1 i
    for ((i = 1; i <= 100000; i++)); do
        printf 'BEGIN; UPDATE acc SET v = v - 1 WHERE id = %d; UPDATE acc SET v = v + 1 WHERE id = %d;' \
            $((i % 10)) $((10 + (i + n) % 10))
        printf 'INSERT INTO left_side VALUES (%d, %d); INSERT INTO right_side VALUES (%d, %d, %d); COMMIT; SELECT %d;\n' \
            "$n" "$i" "$n" "$i" $((i % 7)) "$i"
    done
}

# Transactions in the binary log.
logged() {
    local log
    for log in $(value 'SHOW BINARY LOGS' | cut -f 1); do
        value "SHOW BINLOG EVENTS IN '$log'"
    done | awk -F '\t' '$3 == "Xid"' | wc -l
}

# What was acknowledged is there, what is there is whole, a key agrees with its rows and the binary log with the tables.
check_after_kill() {
    local n acknowledged there
    [ "$(value 'SELECT SUM(v) FROM kill_test.acc')" = 2000 ] || { echo 'money was made or lost'; return 1; }
    [ "$(value 'SELECT COUNT(*) FROM kill_test.left_side l LEFT JOIN kill_test.right_side r USING (n, i) WHERE r.i IS NULL')" = 0 ] ||
        { echo 'half a transaction'; return 1; }
    [ "$(value 'SELECT COUNT(*) FROM kill_test.right_side FORCE INDEX (k) WHERE k >= 0')" = \
        "$(value 'SELECT COUNT(*) FROM kill_test.left_side')" ] || { echo 'a key and its rows differ'; return 1; }
    [ "$(logged)" = "$(value 'SELECT COUNT(*) FROM kill_test.left_side')" ] || { echo 'the binary log differs'; return 1; }
    for n in 1 2 3; do
        acknowledged=$(tail -n 1 "$WORK/acknowledged.$n")
        there=$(value "SELECT COALESCE(MAX(i), 0) FROM kill_test.left_side WHERE n = $n")
        [ "$there" -ge "${acknowledged:-0}" ] || { echo "client $n: $acknowledged was acknowledged, $there is there"; return 1; }
        [ "$(value "SELECT COUNT(*) FROM kill_test.left_side WHERE n = $n")" = "$there" ] || { echo "a gap of client $n"; return 1; }
    done
}

kills() {
    local round n pids
    for round in 1 2 3; do
        client < "$HERE/test/kill.sql"
        pids=()
        for n in 1 2 3; do
            load "$n" | client -N -B --unbuffered kill_test > "$WORK/acknowledged.$n" 2> /dev/null &
            pids+=($!)
        done
        sleep "$((round + 1))"
        kill_server
        wait "${pids[@]}" 2> /dev/null || true
        start_server "${SERVER_ARGS[@]}"
        if check_after_kill; then
            verdict "kill_$round, with $(cat "$WORK"/acknowledged.* | wc -l) commits acknowledged" ok
        else
            verdict "kill_$round" FAILED
        fi
    done
}

beside_innodb() {
    end_server
    start_server "${SERVER_ARGS[@]/--innodb=OFF/--innodb=ON}" 2> /dev/null
    same_as_innodb
    same tables
}

SERVER_ARGS=(--innodb=OFF --default-storage-engine=Aria --character-set-server=latin1 --collation-server=latin1_swedish_ci
    --default-time-zone=+00:00 --log-bin=binlog --binlog-format=ROW)
. "$HERE/test/sessions.sh"
. "$HERE/test/reads.sh"
. "$HERE/test/tables.sh"
scratch
start_server "${SERVER_ARGS[@]}"
check_engine
script smoke
script keys
for name in lock_timeout nowait_and_skip_locked kill_query deadlock isolation xa; do
    check "$name"
done
kills
beside_innodb
anomalies
damaged
verdicts
