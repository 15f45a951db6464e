# SPDX-License-Identifier: GPL-2.0-only
# Tables of INFORMATION_SCHEMA, and how far long statements are. Sourced by smoke.sh.

# A view's columns of the rows that are asked for, one line each.
view() { value "SELECT $2 FROM information_schema.TREFOIL_$1 ${3:-}"; }
connection_of() { say_to "$1" 'SELECT CONNECTION_ID();'; }

# Waits until a query answers so.
wait_for() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value "$1")" != "$2" ] || return 0
        sleep 0.1
    done
    printf 'never: %s is %s but %s\n' "$1" "$2" "$(value "$1")"
}

# Two sessions of which one waits for the other: who, for whom, on which key, and what both have locked and written.
check_views_of_waits() {
    local a b
    a=$(connection_of a) b=$(connection_of b)
    say_to a 'BEGIN;' 'UPDATE t SET v = v + 10 WHERE id <= 2;'
    say_to b 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'BEGIN;'
    send b 'UPDATE t SET v = 5 WHERE id = 2;'
    wait_for "SELECT COUNT(*) FROM information_schema.TREFOIL_LOCK_WAITS" 1
    expect "$(view LOCK_WAITS 'WAITING_THREAD_ID, WAITING_QUERY, BLOCKING_THREAD_ID, BLOCKING_QUERY, TABLE_SCHEMA, TABLE_NAME,
        INDEX_NAME, LOCK_TYPE, LOCK_MODE, LOCK_KEY')" \
        "$b"$'\tUPDATE t SET v = 5 WHERE id = 2\t'"$a"$'\tNULL\ts\tt\tPRIMARY\tROW\tEXCLUSIVE\t80000002'
    expect "$(view TRX 'TRX_STATE, TRX_THREAD_ID, TRX_ISOLATION_LEVEL, TRX_ROWS_WRITTEN, TRX_ROWS_LOCKED >= 2, WAITS_FOR_THREAD_ID,
        WAITS_MS >= 0, TRX_SECONDS < 60' "WHERE TRX_THREAD_ID = $a")" $'RUNNING\t'"$a"$'\tREPEATABLE READ\t2\t1\tNULL\tNULL\t1'
    expect "$(view TRX 'TRX_STATE, TRX_QUERY, TRX_ISOLATION_LEVEL, TRX_ROWS_WRITTEN, WAITS_FOR_THREAD_ID, WAITS_MS >= 0' \
        "WHERE TRX_THREAD_ID = $b")" $'LOCK WAIT\tUPDATE t SET v = 5 WHERE id = 2\tREAD COMMITTED\t0\t'"$a"$'\t1'
    expect "$(view LOCKS 'THREAD_ID, INDEX_NAME, LOCK_MODE, WAITERS' "WHERE LOCK_KEY = '80000002'")" "$a"$'\tPRIMARY\tEXCLUSIVE\t1'
    expect "$(view TRX COUNT\(\*\) 'JOIN information_schema.TREFOIL_LOCK_WAITS ON TRX_ID = WAITING_TRX_ID')" 1
    say_to a 'COMMIT;'
    until_done b
    expect "$(view LOCK_WAITS 'COUNT(*)') $(view STALLS 'COUNT > 0 AND SUM_US > 0 AND WORST_US > 0' "WHERE REASON = 'row locks'")" '0 1'
    say_to b 'ROLLBACK;'
    # A range that is read under locks, and who would insert there.
    say_to a 'BEGIN;' 'SELECT id FROM t WHERE id > 2 FOR UPDATE;' > /dev/null
    expect "$(view LOCKS 'INDEX_NAME, LOCK_KEY_END' "WHERE LOCK_TYPE = 'RANGE' AND THREAD_ID = $a")" $'PRIMARY\tNULL'
    send b 'INSERT INTO t VALUES (7, 7);'
    wait_for 'SELECT LOCK_TYPE FROM information_schema.TREFOIL_LOCK_WAITS' RANGE
    say_to a 'COMMIT;'
    until_done b
    expect "$(view TRX 'COUNT(*)') $(view LOCKS 'COUNT(*)')" '0 0'
}

check_view_of_deadlocks() {
    check_deadlock
    expect "$(view DEADLOCKS 'COUNT(*), SUM(WAITING_TRX_ID = ROLLED_BACK_TRX_ID), MIN(TABLE_NAME), MIN(INDEX_NAME),
        COUNT(DISTINCT LOCK_KEY), MAX(ENDED) > NOW() - INTERVAL 60 SECOND' 'WHERE DEADLOCK = 1')" $'2\t1\tt\tPRIMARY\t2\t1'
}

# Who keeps old versions, and how far behind; what is prepared is there after its connection.
check_view_of_snapshots() {
    local a
    a=$(connection_of a)
    wait_for 'SELECT HOLDER FROM information_schema.TREFOIL_GC' nobody
    say_to a 'START TRANSACTION WITH CONSISTENT SNAPSHOT;' 'DO 1;'
    say_to b 'UPDATE t SET v = v + 1;' 'UPDATE t SET v = v + 1;'
    expect "$(view GC 'HOLDER, HOLDER_THREAD_ID, OLDEST_SNAPSHOT_BEHIND_BYTES > 0, SNAPSHOTS, HOLDER_SECONDS < 60')" \
        $'transaction\t'"$a"$'\t1\t1\t1'
    expect "$(view TRX 'TRX_SNAPSHOT_BEHIND_BYTES > 0' "WHERE TRX_THREAD_ID = $a")" 1
    say_to a 'COMMIT;'
    expect "$(view GC 'HOLDER, HOLDER_THREAD_ID, OLDEST_SNAPSHOT_BEHIND_BYTES')" $'nobody\tNULL\tNULL'
    say_to a "XA START 'one';" 'INSERT INTO t VALUES (8, 8);' "XA END 'one';" "XA PREPARE 'one';"
    close_sessions
    expect "$(view TRX "TRX_STATE, TRX_THREAD_ID, TRX_ROWS_WRITTEN, TRX_XID LIKE CONCAT('%', HEX('one'), '%')")" \
        $'PREPARED\tNULL\t2\t1'
    expect "$(view LOCKS 'COUNT(*) > 0')" 1
    value "XA ROLLBACK 'one'"
}

# Settings and sizes of keys under the names that users gave; levels of a tree that has flushed; bytes by cause.
check_views_of_storage() {
    local args=("${SERVER_ARGS[@]}") changes=1
    restart_with "${args[@]}" --trefoil-buffer-size=16M
    # What is said of t below is said of a tree.
    [ "${TREFOIL_DEFAULT_STRUCTURE:-}" != lsm ] || { client s -e 'ALTER TABLE t STRUCTURE=betree'; changes=4; }
    client s -e "CREATE TABLE \`odd a.b\` (id INT PRIMARY KEY, v INT, KEY \`k.v\` (v) STRUCTURE=btree COMPRESSION=zstd) ENGINE=TREFOIL
            STRUCTURE=lsm;
        CREATE TABLE \`part,ed\` (id INT PRIMARY KEY) ENGINE=TREFOIL COMPRESSION=none PARTITION BY HASH(id) PARTITIONS 2;
        CREATE TABLE big (id BINARY(16) PRIMARY KEY, v VARBINARY(400)) ENGINE=TREFOIL STRUCTURE=lsm COMPRESSION=none;
        INSERT INTO big SELECT UNHEX(MD5(seq)), REPEAT(UNHEX(MD5(seq)), 20) FROM seq_1_to_40000;
        INSERT INTO big SELECT UNHEX(MD5(seq)), REPEAT(UNHEX(MD5(seq)), 20) FROM seq_40001_to_80000;
        DELETE FROM t WHERE id = 1"
    expect "$(view INDEXES 'TABLE_NAME, INDEX_NAME, STRUCTURE, SHAPE, COMPRESSION, NODE_SIZE, STATE' \
        "WHERE TABLE_SCHEMA = 's' AND TABLE_NAME = 'odd a.b'")" \
        $'odd a.b\tPRIMARY\tlsm\tlazy\tlz4\t16384\tsound\nodd a.b\tk.v\tbtree\tNULL\tzstd\t16384\tsound'
    expect "$(view INDEXES 'TABLE_NAME, COMPRESSION' "WHERE TABLE_NAME LIKE 'part%' ORDER BY 1")" \
        $'part,ed#P#p0\tnone\npart,ed#P#p1\tnone'
    expect "$(view INDEXES 'LIVE_KEYS, CHANGES' "WHERE TABLE_NAME = 't' AND INDEX_NAME = 'v'")" $'2\t'$changes
    # What holds no name of a user's is shown as it is.
    expect "$(value "CREATE TEMPORARY TABLE s.passing (id INT) ENGINE=TREFOIL;
        SELECT COUNT(*) FROM information_schema.TREFOIL_INDEXES WHERE TABLE_NAME LIKE '#sql-temptable-%'")" 1
    wait_for "SELECT COUNT(*) > 0 AND SUM(RUNS) > 0 AND SUM(DISK_BYTES) > 8000000 AND SUM(LIVE_KEYS) BETWEEN 20000 AND 80000
        FROM information_schema.TREFOIL_LEVELS WHERE TABLE_NAME = 'big'" 1
    expect "$(view IO "SUM(CAUSE = 'all' AND BYTES > 8000000), SUM(IF(CAUSE IN ('flushes', 'merges'), BYTES, 0)) > 8000000" \
        "WHERE FILE = 'data' AND OPERATION = 'write'")" $'1\t1'
    expect "$(view IO 'COUNT > 0' "WHERE OPERATION = 'sync'")" 1
    expect "$(view INDEXES 'WRITE_AMPLIFICATION >= 0.4 AND DISK_BYTES > 8000000' "WHERE TABLE_NAME = 'big'")" 1
    expect "$(view INDEXES 'SPACE_AMPLIFICATION BETWEEN 1 AND 2, LEAF_BYTES, MESSAGE_BYTES, LARGE_VALUE_BYTES,
        FLUSHED_BYTES + MERGED_BYTES > 8000000, FLUSHED_BYTES + MERGED_BYTES = WRITTEN_BYTES' "WHERE TABLE_NAME = 'big'")" $'1\tNULL\tNULL\tNULL\t1\t1'
    expect "$(view INDEXES 'SPACE_AMPLIFICATION >= 1, MERGED_BYTES, LEAF_BYTES + INNER_BYTES + MESSAGE_BYTES + LARGE_VALUE_BYTES = WRITTEN_BYTES' \
        "WHERE TABLE_NAME = 't' AND INDEX_NAME = 'PRIMARY'")" $'1\tNULL\t1'
    expect "$(view ADVICE 'STRUCTURE, OTHER_STRUCTURE, SPACE_AMPLIFICATION BETWEEN 0.1 AND 1.5, WRITE_AMPLIFICATION >= 0.4, OTHER_SPACE_AMPLIFICATION,
        VERDICT' "WHERE TABLE_NAME = 'big'")" $'lsm\tNULL\t1\t1\tNULL\tcompared with none'
    expect "$(view ADVICE 'OTHER_STRUCTURE, VERDICT' "WHERE TABLE_NAME = 't' AND INDEX_NAME = 'v'")" $'btree\tnot enough measured'
    restart_with "${args[@]}"
}

# Each of them is PROCESS's, as InnoDB's are.
check_views_need_process() {
    local name names
    names=$(value "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'information_schema'
        AND TABLE_NAME LIKE 'TREFOIL%'")
    expect "$(wc -w <<< "$names")" 10
    value "CREATE USER low@localhost; GRANT SELECT ON *.* TO low@localhost"
    for name in $names; do
        expect_error "$(client --user=low -N -B -e "SELECT * FROM information_schema.$name" 2>&1)" 1227
        value "SELECT * FROM information_schema.$name" > /dev/null
    done
    value 'DROP USER low@localhost'
}

# While a statement runs it is looked at again and again: it has been seen between its beginning and its end.
seen_halfway() {
    local what=$1 seen
    send a "$what;"
    seen=$(client -N -B << END
        SET @seen = 0, @began = 0, @turns = 0;
DELIMITER ;;
        BEGIN NOT ATOMIC
          DECLARE at DECIMAL(7,3);
          REPEAT
            SET @turns = @turns + 1;
            SET at = (SELECT MAX(progress) FROM information_schema.PROCESSLIST WHERE info = '$what');
            SET @began = @began OR at IS NOT NULL, @seen = IFNULL(at > 0 AND at < 100, 0);
          UNTIL @seen OR @began AND at IS NULL OR @turns > 1000000 END REPEAT;
          SELECT @seen;
        END;;
END
    )
    expect "$what: $seen" "$what: 1"
}

check_progress() {
    local id
    client s -e 'CREATE TABLE long_one (id INT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=TREFOIL;
        INSERT INTO long_one SELECT seq, seq * 7 % 100000, SHA2(seq, 256) FROM seq_1_to_300000'
    seen_halfway 'ALTER TABLE s.long_one ADD KEY b (b), ALGORITHM=NOCOPY'
    expect "$(until_done a)" ''
    seen_halfway 'ALTER TABLE s.long_one STRUCTURE=lsm COMPRESSION=zstd, ALGORITHM=INPLACE, LOCK=NONE'
    expect "$(until_done a)" ''
    seen_halfway 'CHECK TABLE s.long_one EXTENDED'
    until_done a > /dev/null
    seen_halfway 'OPTIMIZE TABLE s.long_one'
    until_done a > /dev/null
    value 'SET GLOBAL trefoil_backup_rate = 5000000'
    seen_halfway "SET GLOBAL trefoil_backup_dir = \"$WORK/half\""
    id=$(running 'SET GLOBAL trefoil_backup_dir%')
    [ -z "$id" ] || value "KILL QUERY $id"
    until_done a > /dev/null
    value 'SET GLOBAL trefoil_backup_rate = 0'
}
