# SPDX-License-Identifier: GPL-2.0-only
# Sessions beside each other: each is a client that reads statements from a pipe. Sourced by smoke.sh.

declare -A PIPE PID
RACERS=()

open_session() {
    local pipe=$WORK/pipe.$1 fd
    mkfifo "$pipe"
    client --force -N -B --unbuffered s < "$pipe" > "$WORK/out.$1" 2>&1 &
    PID[$1]=$!
    exec {fd}> "$pipe"
    PIPE[$1]=$fd
}

# Sends statements and does not wait.
send() { printf '%s\n' "${@:2}" >&"${PIPE[$1]}"; }

# Sends statements and waits until they are done; prints what came of them.
say_to() {
    send "$@"
    until_done "$1"
}

# What has come since the last time.
until_done() {
    local mark="done $EPOCHREALTIME" tries
    send "$1" "SELECT '$mark';"
    for ((tries = 0; tries < 350; tries++)); do
        if grep -qxF "$mark" "$WORK/out.$1"; then
            awk -v mark="$mark" '$0 == mark { printf "%s", all; exit } /^done / { all = ""; next } !/^-*$/ { all = all $0 "\n" }' \
                "$WORK/out.$1"
            return 0
        fi
        # Most answer at once.
        if ((tries < 50)); then sleep 0.01; else sleep 0.1; fi
    done
    echo 'no answer'
}

close_sessions() {
    local name
    # A client has the pipes of those before it open, too: they end when it does.
    for name in "${!PIPE[@]}"; do exec {PIPE[$name]}>&-; done
    for name in "${!PIPE[@]}"; do
        wait "${PID[$name]}" 2> /dev/null || true
        rm -f "$WORK/pipe.$name"
    done
    PIPE=() PID=()
}

# A check is a function; what it prints is why it failed.
check() {
    local why
    client < "$HERE/test/sessions.sql"
    open_session a
    open_session b
    "check_$1" > "$WORK/why" 2>&1 || echo 'it failed' >> "$WORK/why"
    close_sessions
    why=$(cat "$WORK/why")
    if [ -z "$why" ]; then verdict "$1" ok; else echo "$why"; verdict "$1" FAILED; fi
    # What the engine takes for impossible, with where.
    if [ -n "$why" ]; then grep -A 30 'panicked at' "$ERRORS" || true; fi
}

expect() { [ "$1" = "$2" ] || printf 'expected: %s\nfound: %s\n' "$2" "$1"; }
expect_error() { case $1 in *"ERROR $2"*) ;; *) printf 'expected: ERROR %s\nfound: %s\n' "$2" "$1" ;; esac; }

check_lock_timeout() {
    say_to a 'BEGIN;' 'UPDATE t SET v = 10 WHERE id = 1;'
    say_to b 'SET trefoil_lock_wait_timeout = 1;' 'BEGIN;' 'UPDATE t SET v = 5 WHERE id = 2;'
    expect_error "$(say_to b 'UPDATE t SET v = 11 WHERE id = 1;')" 1205
    say_to b 'COMMIT;'
    say_to a 'COMMIT;'
    expect "$(value 'SELECT GROUP_CONCAT(v ORDER BY id) FROM s.t')" 10,5,3
}

check_nowait_and_skip_locked() {
    say_to a 'BEGIN;' 'UPDATE t SET v = 10 WHERE id = 1;'
    expect_error "$(say_to b 'SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT;')" 1205
    expect "$(say_to b 'SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED;')" $'2\n3'
    expect "$(say_to b 'SELECT v FROM t WHERE id = 1;')" 1
}

# A statement that is to change so many rows locks as many ahead, and none behind the last one: of one range or several, wanted or passed by.
check_limit_locks_no_more() {
    local last
    value 'USE s; CREATE TABLE many (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL; INSERT INTO many SELECT seq, seq % 2 FROM seq_1_to_300'
    while IFS='|' read -r last statement; do
        say_to a 'BEGIN;' "$statement;" > /dev/null
        expect "$statement: $(say_to b 'SELECT id FROM many WHERE id > 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;')" "$statement: $last"
        say_to a 'ROLLBACK;' > /dev/null
    done <<- 'END'
	101|DELETE FROM many WHERE id >= 1 ORDER BY id LIMIT 100
	4|DELETE FROM many WHERE id >= 1 AND v = 1 ORDER BY id LIMIT 2
	41|UPDATE many SET v = 7 WHERE id > 0 ORDER BY id LIMIT 40
	32|DELETE FROM many WHERE id BETWEEN 1 AND 30 OR id BETWEEN 31 AND 200 ORDER BY id LIMIT 31
	END
}

check_kill_query() {
    local id= tries
    say_to a 'BEGIN;' 'UPDATE t SET v = 10 WHERE id = 1;'
    send b 'UPDATE t SET v = 77 WHERE id = 1;'
    for ((tries = 0; tries < 100 && ${#id} == 0; tries++)); do
        sleep 0.1
        id=$(value "SELECT id FROM information_schema.PROCESSLIST WHERE info LIKE 'UPDATE t SET v = 77%'")
    done
    value "KILL QUERY $id"
    expect_error "$(until_done b)" 1317
}

check_deadlock() {
    local both
    say_to a 'BEGIN;' 'UPDATE t SET v = 11 WHERE id = 1;'
    say_to b 'BEGIN;' 'UPDATE t SET v = 22 WHERE id = 2;'
    send a 'UPDATE t SET v = 12 WHERE id = 2;'
    both=$(say_to b 'UPDATE t SET v = 21 WHERE id = 1;')
    both+=$(until_done a)
    expect_error "$both" 1213
    [ "$(grep -c 1213 <<< "$both")" = 1 ] || echo 'both were rolled back'
    say_to a 'COMMIT;'
    say_to b 'COMMIT;'
    case $(value 'SELECT GROUP_CONCAT(v ORDER BY id) FROM s.t') in 11,12,3 | 21,22,3) ;; *) echo 'half of each' ;; esac
}

# Without a search a deadlock lasts until one of the two has waited long enough.
check_deadlock_detect() {
    local both
    value 'SET GLOBAL trefoil_deadlock_detect = OFF'
    say_to a 'SET trefoil_lock_wait_timeout = 30;' 'BEGIN;' 'UPDATE t SET v = 11 WHERE id = 1;'
    say_to b 'SET trefoil_lock_wait_timeout = 1;' 'BEGIN;' 'UPDATE t SET v = 22 WHERE id = 2;'
    send a 'UPDATE t SET v = 12 WHERE id = 2;'
    expect_error "$(say_to b 'UPDATE t SET v = 21 WHERE id = 1;')" 1205
    say_to b 'ROLLBACK;'
    expect "$(until_done a)" ''
    say_to a 'COMMIT;'
    value 'SET GLOBAL trefoil_deadlock_detect = ON'
    check_deadlock
}

# A copy has what was prepared by a session that is gone: it begins when that is decided, or not at all.
check_copy_beside_prepared() {
    local change
    for change in 'ALTER TABLE s.c FORCE, ALGORITHM=COPY' 'OPTIMIZE TABLE s.c' 'ALTER TABLE s.p COALESCE PARTITION 1' \
        'ALTER TABLE s.p REMOVE PARTITIONING'; do
        client s -e 'DROP TABLE IF EXISTS c, p; CREATE TABLE c (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL;
            CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL PARTITION BY HASH(id) PARTITIONS 3;
            INSERT INTO c SELECT seq, seq FROM seq_1_to_100; INSERT INTO p SELECT * FROM c'
        client s -e "XA START 'q'; INSERT INTO c VALUES (500, 1), (501, 1); UPDATE c SET v = 0 WHERE id = 1;
            INSERT INTO p SELECT * FROM c WHERE id >= 500; UPDATE p SET v = 0 WHERE id = 1; XA END 'q'; XA PREPARE 'q'"
        case $(value "SET trefoil_lock_wait_timeout = 0; $change" 2>&1) in
            *1205* | *'Lock wait timeout'*) ;;
            *) echo "$change did not wait" ;;
        esac
        send a "$change;"
        sleep 0.3
        value "XA COMMIT 'q'"
        until_done a > "$WORK/change"
        expect "$change: $(value 'SELECT COUNT(*), SUM(v = 0) FROM s.c') $(value 'SELECT COUNT(*), SUM(v = 0) FROM s.p')" \
            "$change: "$'102\t1 102\t1'
    done
}

# At READ COMMITTED a row that does not match is given back, and no other: a join, or a partition, may have locked the next row
# of another table or partition before the server says so.
check_gives_back_its_own() {
    client s -e 'CREATE TABLE j1 (id INT PRIMARY KEY, k INT, v INT) ENGINE=TREFOIL;
        CREATE TABLE j2 (id INT PRIMARY KEY, ok INT, z VARCHAR(200)) ENGINE=TREFOIL;
        INSERT INTO j1 SELECT seq, seq, seq * 10 FROM seq_1_to_3;
        INSERT INTO j2 SELECT seq, seq > 1, REPEAT("z", 200) FROM seq_1_to_500;
        CREATE TABLE h (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL PARTITION BY HASH(id) PARTITIONS 2;
        INSERT INTO h VALUES (1, 10), (2, 11), (3, 10), (4, 10), (5, 10), (6, 10)'
    say_to a 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'SET join_cache_level = 0;' 'BEGIN;'
    expect "$(say_to a 'SELECT j1.id FROM j1 STRAIGHT_JOIN j2 ON j2.id = j1.k WHERE j2.ok = 1 FOR UPDATE;')" $'2\n3'
    expect_error "$(say_to b 'SELECT v FROM j1 WHERE id = 2 FOR UPDATE NOWAIT;')" 1205
    expect_error "$(say_to b 'SELECT v FROM j1 WHERE id = 3 FOR UPDATE NOWAIT;')" 1205
    say_to a 'COMMIT;' 'BEGIN;'
    expect "$(say_to a 'SELECT id FROM h WHERE v = 10 ORDER BY id LIMIT 2 FOR UPDATE;')" $'1\n3'
    expect_error "$(say_to b 'SELECT v FROM h WHERE id = 3 FOR UPDATE NOWAIT;')" 1205
    say_to a 'COMMIT;'
}

# Where the plan does not ask for the key alone, as when the range is found anew for each row of another table, and the key has all that
# is read, no row is read. A column beside it is.
check_key_has_all() {
    local all='COUNT(t.k), SUM(t.id)' from='FROM bounds JOIN numbers t ON t.k > x AND t.k < y' rows
    client s -e "CREATE TABLE bounds (x INT, y INT) ENGINE=TREFOIL; INSERT INTO bounds VALUES (10, 20), (500, 510), (1000, 1030);
        CREATE TABLE numbers (id INT PRIMARY KEY, k INT, c VARCHAR(9), v INT AS (k + 1), KEY (k), KEY c (c(2))) ENGINE=TREFOIL;
        INSERT INTO numbers (id, k, c) SELECT seq, seq * 7 % 5000, seq FROM seq_1_to_5000"
    of_s() { client -N -B s -e "$1"; }
    rows() { of_s "SELECT POINT_READS FROM information_schema.TREFOIL_INDEXES WHERE TABLE_SCHEMA = 's' AND TABLE_NAME = 'numbers' AND INDEX_NAME = 'PRIMARY'"; }
    grep -q 'Range checked for each record' <<< "$(client s -e "EXPLAIN SELECT $all $from")" || echo 'the plan is another one'
    rows=$(rows)
    expect "$(of_s "SELECT $all $from")" $'47\t103445'
    expect "$(rows)" "$rows"
    expect "$(of_s "SELECT $all, MAX(t.c) $from")" $'47\t103445\t861'
    expect "$(rows)" $((rows + 47))
    expect "$(of_s "SELECT $all, MAX(t.v) $from")" $'47\t103445\t1030'
    expect "$(rows)" $((rows + 94))
    # Of what is changed the whole row is needed. One row had its k in c before.
    expect "$(of_s "UPDATE bounds JOIN numbers t ON t.k > x AND t.k < y SET t.c = t.k; SELECT COUNT(*) FROM numbers WHERE c = k")" 48
}

# What a trigger reads is read as the statement outside reads.
check_reads_of_triggers() {
    client s -e 'CREATE TABLE m (id INT PRIMARY KEY, n INT) ENGINE=TREFOIL; INSERT INTO m VALUES (1, 1);
        CREATE TABLE g (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL; INSERT INTO g VALUES (1, 1);
        CREATE TRIGGER g_sum BEFORE UPDATE ON g FOR EACH ROW SET NEW.v = (SELECT SUM(n) FROM m)'
    say_to a 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'BEGIN;' 'UPDATE g SET v = v + 1;'
    expect "$(say_to b 'SELECT n FROM m WHERE id = 1 FOR UPDATE NOWAIT;')" 1
    say_to a 'COMMIT;' 'SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;' 'BEGIN;' 'UPDATE g SET v = v + 1;'
    expect_error "$(say_to b 'SELECT n FROM m WHERE id = 1 FOR UPDATE NOWAIT;')" 1205
    say_to a 'COMMIT;'
}

# Of partitions, too, a duplicate is told with its key.
check_duplicate_of_partition() {
    client s -e 'CREATE TABLE d (id INT PRIMARY KEY, v INT, UNIQUE u (id, v)) ENGINE=TREFOIL
        PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (3), PARTITION b VALUES LESS THAN (100));
        INSERT INTO d VALUES (1, 1), (2, 2), (3, 3), (4, 4)'
    expect_error "$(say_to a 'UPDATE d SET id = 4 WHERE id = 2;')" 1062
}

# A backup beside writers, out of a transaction that goes on: a server on it has each transaction as a whole or not at all.
check_backup() {
    local to=$WORK/backup writer before tries
    rm -f "$WORK/enough"
    value 'CREATE TABLE s.w (id INT AUTO_INCREMENT PRIMARY KEY, v INT, KEY v (v)) ENGINE=TREFOIL;
        CREATE TABLE s.big (id INT PRIMARY KEY, v VARCHAR(1000)) ENGINE=TREFOIL;
        USE s; INSERT INTO s.big SELECT seq, REPEAT(SHA2(seq, 512), 7) FROM seq_1_to_4000'
    (while [ ! -e "$WORK/enough" ]; do echo 'BEGIN; INSERT INTO s.w (v) VALUES (1); INSERT INTO s.w (v) VALUES (2); COMMIT;'; done) |
        client > /dev/null 2>&1 &
    writer=$!
    for ((tries = 0; tries < 100; tries++)); do [ "$(value 'SELECT COUNT(*) > 0 FROM s.w')" = 0 ] || break; sleep 0.1; done
    say_to a 'BEGIN;' 'INSERT INTO t VALUES (4, 4);' "SET GLOBAL trefoil_backup_dir = '$to';"
    expect "$(say_to a 'SELECT @@GLOBAL.trefoil_backup_dir;')" "$to"
    say_to a 'ROLLBACK;'
    expect "$(value 'SELECT COUNT(*) FROM s.t')" 3
    expect_error "$(say_to a "SET GLOBAL trefoil_backup_dir = '$to';")" 1296
    expect_error "$(say_to a "SET GLOBAL trefoil_backup_dir = 'here';")" 1296
    expect "$(say_to a "SET GLOBAL trefoil_backup_dir = '';" 'SELECT @@GLOBAL.trefoil_backup_dir;')" "$to"
    # A slow one keeps nobody from variables, and is ended with nothing left behind.
    value 'SET GLOBAL trefoil_backup_rate = 20000'
    send b "SET GLOBAL trefoil_backup_dir = '$to.slow';"
    for ((tries = 0; tries < 100; tries++)); do [ ! -e "$to.slow" ] || break; sleep 0.1; done
    value 'SET GLOBAL trefoil_backup_rate = 0'
    value "KILL QUERY $(value "SELECT id FROM information_schema.PROCESSLIST WHERE info LIKE 'SET GLOBAL trefoil_backup_dir%'")"
    expect_error "$(until_done b)" 1317
    [ ! -e "$to.slow" ] || echo "left behind: $(find "$to.slow")"
    expect "$(value 'SELECT @@GLOBAL.trefoil_backup_dir')" "$to"
    touch "$WORK/enough"
    wait "$writer" || true
    before=$DATA
    close_sessions
    end_server
    cp -r "$DATA" "$WORK/restored"
    rm -rf "$WORK/restored/trefoil"
    cp -r "$to" "$WORK/restored/trefoil"
    DATA=$WORK/restored
    # What was between the two phases of a commit then is rolled back; the server ends itself after that.
    (start_server "${SERVER_ARGS[@]}" --tc-heuristic-recover=ROLLBACK) > /dev/null 2>&1 7>&1 || true
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    expect "$(value 'CHECK TABLE s.t, s.w, s.big' | cut -f 4 | sort -u)" OK
    expect "$(value 'SELECT SUM(v = 1) = SUM(v = 2), COUNT(*) > 0 FROM s.w FORCE INDEX (v)')" $'1\t1'
    expect "$(value 'SELECT COUNT(*) FROM s.big') $(value 'SELECT COUNT(*) FROM s.t')" '4000 3'
    end_server
    DATA=$before
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
}

# Numbers move with what is done; the latest deadlock is in the report and, if asked for, in the error log.
status_of() { value "SHOW GLOBAL STATUS LIKE 'Trefoil_$1'" | cut -f 2; }

check_status() {
    local commits rollbacks deadlocks name
    commits=$(status_of commits) rollbacks=$(status_of rollbacks) deadlocks=$(status_of deadlocks)
    value 'SET GLOBAL trefoil_print_all_deadlocks = ON'
    say_to a 'BEGIN;' 'UPDATE t SET v = 1 WHERE id = 1;' 'ROLLBACK;' 'UPDATE t SET v = 5 WHERE id = 1;'
    expect "$(status_of commits) $(status_of rollbacks)" "$((commits + 1)) $((rollbacks + 1))"
    check_deadlock
    expect "$(status_of deadlocks) $(status_of lock_waiting)" "$((deadlocks + 1)) 0"
    value 'SHOW ENGINE TREFOIL STATUS' > "$WORK/report"
    for name in TRANSACTIONS 'LATEST DEADLOCK' MEMORY LOG 'GARBAGE COLLECTION' STORAGE; do
        grep -qF "$name\\n--" "$WORK/report" || echo "no section $name"
    done
    grep -q 'waits for [0-9]* to lock: s/t.primary.*was rolled back' "$WORK/report" || echo 'no deadlock in the report'
    grep -q 'was rolled back' "$ERRORS" || echo 'no deadlock in the error log'
    value 'SET GLOBAL trefoil_print_all_deadlocks = OFF'
}

# What CREATE TABLE does not name is kept with the table, and shown.
check_default_options() {
    say_to a "SET trefoil_default_structure = 'btree', trefoil_default_compression = 'zstd';" \
        'CREATE TABLE o (id INT PRIMARY KEY) ENGINE=TREFOIL;' \
        'CREATE TABLE named (id INT PRIMARY KEY) ENGINE=TREFOIL COMPRESSION=none;'
    say_to b 'INSERT INTO o VALUES (1);' 'FLUSH TABLES;'
    case $(value 'SHOW CREATE TABLE s.o') in *STRUCTURE*btree*COMPRESSION*zstd*) ;; *) value 'SHOW CREATE TABLE s.o' ;; esac
    case $(value 'SHOW CREATE TABLE s.named') in *COMPRESSION*none*) ;; *) value 'SHOW CREATE TABLE s.named' ;; esac
    expect "$(value 'SELECT * FROM s.o')" 1
    say_to a "SET trefoil_default_structure = 'betree', trefoil_default_compression = DEFAULT;" \
        'CREATE TABLE buffered (id INT PRIMARY KEY) ENGINE=TREFOIL;' 'INSERT INTO buffered VALUES (1);'
    case $(value 'SHOW CREATE TABLE s.buffered') in *STRUCTURE*betree*) ;; *) value 'SHOW CREATE TABLE s.buffered' ;; esac
    say_to a "SET trefoil_default_structure = 'lsm';" \
        'CREATE TABLE merged (id INT PRIMARY KEY) ENGINE=TREFOIL;' 'INSERT INTO merged VALUES (1);'
    case $(value 'SHOW CREATE TABLE s.merged') in *STRUCTURE*lsm*) ;; *) value 'SHOW CREATE TABLE s.merged' ;; esac
    expect "$(value 'SELECT * FROM s.merged')" 1
}

check_isolation() {
    say_to a 'BEGIN;' > /dev/null
    expect "$(say_to a 'SELECT v FROM t WHERE id = 1;')" 1
    say_to b 'UPDATE t SET v = 2 WHERE id = 1;' 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'BEGIN;'
    expect "$(say_to a 'SELECT v FROM t WHERE id = 1;')" 1
    expect "$(say_to a 'SELECT v FROM t WHERE id = 1 FOR UPDATE;')" 2
    expect "$(say_to b 'SELECT v FROM t WHERE id = 1;')" 2
    say_to a 'UPDATE t SET v = v + 1 WHERE id = 1;' 'COMMIT;'
    expect "$(say_to b 'SELECT v FROM t WHERE id = 1;')" 3
}

# What is prepared is seen by nobody, outlives its session and the server, and is decided by another session.
check_xa() {
    say_to a "XA START 'one';" 'INSERT INTO t VALUES (8, 8);' "XA END 'one';" "XA PREPARE 'one';"
    say_to b "XA START 'two';" 'INSERT INTO t VALUES (9, 9);' "XA END 'two';" "XA PREPARE 'two';"
    close_sessions
    kill_server
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    expect "$(value 'XA RECOVER' | cut -f 4 | sort | paste -sd,)" one,two
    expect "$(value 'SELECT COUNT(*) FROM s.t')" 3
    value "XA COMMIT 'one'"
    value "XA ROLLBACK 'two'"
    expect "$(value 'SELECT GROUP_CONCAT(id ORDER BY id) FROM s.t')" 1,2,3,8
    expect "$(value 'XA RECOVER')" ''
}

# What is prepared stays beside temporary tables that end with the session, whether it has written to them or not.
check_xa_beside_temporary_tables() {
    say_to a 'CREATE TEMPORARY TABLE tt (a INT PRIMARY KEY) ENGINE=TREFOIL;' "XA START 'one';" 'INSERT INTO t VALUES (8, 8);' \
        'INSERT INTO tt VALUES (1);' "XA END 'one';" "XA PREPARE 'one';"
    say_to b 'CREATE TEMPORARY TABLE tt (a INT PRIMARY KEY) ENGINE=TREFOIL;' "XA START 'two';" 'INSERT INTO t VALUES (9, 9);' \
        "XA END 'two';" "XA PREPARE 'two';"
    close_sessions
    expect "$(value 'XA RECOVER' | cut -f 4 | sort | paste -sd,)" one,two
    value "XA COMMIT 'one'"
    value "XA COMMIT 'two'"
    expect "$(value 'SELECT GROUP_CONCAT(id ORDER BY id) FROM s.t')" 1,2,3,8,9
}

# Who has an older snapshot is told so where a copy has taken a table's place; nobody finds it empty. Temporary tables are the
# session's own. Nothing is wrong with the tables: the error log has no line of it.
check_copies_beside_snapshots() {
    local lines
    lines=$(lines_with 'TREFOIL: table definition')
    say_to b 'CREATE TABLE p (a INT) ENGINE=TREFOIL PARTITION BY HASH (a) PARTITIONS 1;' 'INSERT INTO p VALUES (1), (2);'
    say_to a 'START TRANSACTION WITH CONSISTENT SNAPSHOT;'
    say_to b 'ALTER TABLE t FORCE;' 'ALTER TABLE p ADD PARTITION PARTITIONS 1;' 'CREATE TABLE n (a INT) ENGINE=TREFOIL;'
    expect "$(say_to a 'SELECT id FROM t;' | grep -o 'ERROR [0-9]*')" 'ERROR 1412'
    expect "$(say_to a 'SELECT id FROM t FORCE INDEX (v) WHERE v > 0;' | grep -o 'ERROR [0-9]*')" 'ERROR 1412'
    expect "$(say_to a 'SELECT a FROM p;' | grep -o 'ERROR [0-9]*')" 'ERROR 1412'
    expect "$(say_to a 'SELECT a FROM n;' | grep -o 'ERROR [0-9]*')" 'ERROR 1412'
    expect "$(lines_with 'TREFOIL: table definition')" "$lines"
    say_to a 'CREATE TEMPORARY TABLE tt (a INT) ENGINE=TREFOIL;' 'INSERT INTO tt VALUES (5);'
    expect "$(say_to a 'SELECT a FROM tt;')" 5
    expect "$(say_to a 'COMMIT;' 'SELECT COUNT(*) FROM t;')" 3
    expect "$(say_to a 'SELECT COUNT(*) FROM p;')" 2
}

# Of two who want one long value the second waits for the first, and finds what came of it; who takes a row away has its value.
check_long_unique() {
    local level
    value 'CREATE TABLE s.l (id INT PRIMARY KEY, b BLOB, UNIQUE b (b)) ENGINE=TREFOIL'
    for level in 'READ COMMITTED' 'REPEATABLE READ'; do
        # Who would wait is refused at once.
        say_to b 'SET trefoil_lock_wait_timeout = 0;'
        value "REPLACE INTO s.l VALUES (1, 'here')"
        say_to a "SET SESSION TRANSACTION ISOLATION LEVEL $level;" 'BEGIN;' "INSERT INTO l VALUES (2, 'one');"
        say_to b "SET SESSION TRANSACTION ISOLATION LEVEL $level;"
        expect_error "$(say_to b "INSERT INTO l VALUES (3, 'one');")" 1205
        expect_error "$(say_to b "INSERT IGNORE INTO l VALUES (3, 'one');")" 1205
        expect_error "$(say_to b "UPDATE l SET b = 'one' WHERE id = 1;")" 1205
        expect "$(say_to b "INSERT INTO l VALUES (3, 'two');")" ''
        say_to a 'COMMIT;'
        expect_error "$(say_to b "INSERT INTO l VALUES (4, 'one');")" "1062 (23000) at line"
        say_to a 'BEGIN;' "DELETE FROM l WHERE b = 'here';" "UPDATE l SET b = 'gone' WHERE id = 2;"
        expect_error "$(say_to b "INSERT INTO l VALUES (4, 'here');")" 1205
        expect_error "$(say_to b "REPLACE INTO l VALUES (4, 'one');")" 1205
        send b 'SET trefoil_lock_wait_timeout = 30;' "INSERT INTO l VALUES (4, 'here');"
        running 'INSERT INTO l VALUES (4%' > "$WORK/change"
        expect "$(say_to a "INSERT INTO l VALUES (5, 'here');" 'ROLLBACK;')" ''
        expect_error "$(until_done b)" 1062
        expect "$(say_to b "REPLACE INTO l VALUES (4, 'one');" 'SELECT id, b FROM l ORDER BY id;')" $'1\there\n3\ttwo\n4\tone'
        value 'DELETE FROM s.l'
    done
}

# A long value is had by what is prepared, after a restart too.
check_long_unique_prepared() {
    value 'CREATE OR REPLACE TABLE s.l (id INT PRIMARY KEY, b BLOB, UNIQUE b (b)) ENGINE=TREFOIL'
    say_to a "XA START 'one';" "INSERT INTO l VALUES (1, 'one');" "XA END 'one';" "XA PREPARE 'one';"
    close_sessions
    kill_server
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    open_session a
    expect_error "$(say_to a 'SET trefoil_lock_wait_timeout = 0;' "INSERT INTO l VALUES (2, 'one');")" 1205
    value "XA COMMIT 'one'"
    expect_error "$(say_to a "INSERT INTO l VALUES (2, 'one');")" 1062
}

# Of many who want the same values at once each is had once.
check_long_unique_race() {
    local n level
    value 'CREATE OR REPLACE TABLE s.l (id INT PRIMARY KEY AUTO_INCREMENT, b BLOB, UNIQUE b (b)) ENGINE=TREFOIL'
    for n in 1 2 3 4; do
        level=$([ $((n % 2)) = 0 ] && echo 'READ COMMITTED' || echo 'REPEATABLE READ')
        {
            echo "SET SESSION TRANSACTION ISOLATION LEVEL $level;"
            seq 1 300 | sed "s/.*/INSERT INTO s.l (b) VALUES (REPEAT('&.', 2000));/"
        } | client --force > "$WORK/race.$n" 2>&1 &
        RACERS[n]=$!
    done
    wait "${RACERS[@]}" || true
    expect "$(value 'SELECT COUNT(*), COUNT(DISTINCT b) FROM s.l')" $'300\t300'
    expect "$(cat "$WORK"/race.* | grep -c '^ERROR 1062')" 900
}
