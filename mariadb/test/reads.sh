# SPDX-License-Identifier: GPL-2.0-only
# What reads give out and lock is what InnoDB's do: the same statements for both engines in one server, their output
# compared. Sourced by smoke.sh.

# Statements of reads.sql, run for the engine given.
reads_of() { client --force --table --unbuffered --init-command="SET default_storage_engine = $1" < "$HERE/test/reads.sql" 2>&1; }

same_as_innodb() {
    reads_of TREFOIL > "$WORK/reads.trefoil"
    reads_of InnoDB > "$WORK/reads.innodb"
    if diff -u "$WORK/reads.innodb" "$WORK/reads.trefoil" > "$WORK/reads.diff" && ! grep ERROR "$WORK/reads.innodb"; then
        verdict reads ok
    else
        head -60 "$WORK/reads.diff"
        verdict reads FAILED
    fi
}

# Sessions a and b of each engine; what they print is compared.
same_in_sessions() {
    local engine
    for engine in TREFOIL InnoDB; do
        client -e "CREATE OR REPLACE DATABASE s; USE s; SET default_storage_engine = $engine;
            CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT, KEY k (k)); CREATE TABLE u LIKE t;
            INSERT INTO t SELECT seq, 50 - seq, seq FROM seq_1_to_40; INSERT INTO u VALUES (1, 1, 1)"
        open_session a
        open_session b
        # Who would wait is told so at once.
        send a 'SET innodb_lock_wait_timeout = 0, trefoil_lock_wait_timeout = 0;'
        send b 'SET innodb_lock_wait_timeout = 0, trefoil_lock_wait_timeout = 0;'
        "sessions_$1" > "$WORK/$1.$engine" 2>&1
        close_sessions
    done
    if diff -u "$WORK/$1.InnoDB" "$WORK/$1.TREFOIL" > "$WORK/$1.diff" && [ -s "$WORK/$1.InnoDB" ]; then
        verdict "reads_$1" ok
    else
        cat "$WORK/$1.diff"
        verdict "reads_$1" FAILED
    fi
}

rows_free() { say_to b 'SELECT GROUP_CONCAT(id ORDER BY id) FROM (SELECT id FROM t FOR UPDATE SKIP LOCKED) AS free;'; }

# What a statement copies from is locked, or under READ COMMITTED read at the statement's moment.
sessions_copies() {
    local statement
    say_to a 'BEGIN;' 'UPDATE t SET v = 10 WHERE id = 1;'
    for statement in 'INSERT INTO u SELECT id + 100, k, v FROM t' 'REPLACE INTO u SELECT * FROM t' \
        'CREATE TABLE w SELECT * FROM t' 'UPDATE u SET v = (SELECT MAX(v) FROM t)' 'DELETE u FROM u JOIN t USING (id)' \
        'INSERT INTO u VALUES (500, 1, (SELECT v FROM t WHERE id = 1))' 'SELECT v FROM t WHERE id = 1' \
        'SET @v = (SELECT v FROM t WHERE id = 1)' 'DO (SELECT v FROM t WHERE id = 1)'; do
        say_to b "$statement;" 2>&1
    done
    say_to b 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'INSERT INTO u SELECT id + 200, k, v FROM t;' \
        'CREATE TABLE x SELECT * FROM t;' 'UPDATE u SET v = (SELECT MAX(v) FROM t) WHERE id = 1;'
    say_to a 'COMMIT;'
    say_to b 'SELECT COUNT(*), SUM(v) FROM u;'
}

# Rows that were looked at and are not wanted are free under READ COMMITTED, also those that a key led to: more of them than
# with InnoDB, which does not unlock entries. Otherwise they stay locked.
check_unwanted() {
    client -e "CREATE OR REPLACE TABLE s.t (id INT PRIMARY KEY, k INT, v INT, KEY k (k)) ENGINE=TREFOIL;
        INSERT INTO s.t SELECT seq, 50 - seq, seq FROM s.seq_1_to_12"
    say_to b "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    unwanted 'READ COMMITTED' 'FORCE INDEX (k) WHERE k < 42 AND v % 2 = 0' 1,2,3,4,5,6,7,8,9,11
    unwanted 'READ COMMITTED' 'FORCE INDEX (k) WHERE k < 42 AND k % 4 = 0 AND v % 3 = 0' 1,2,3,4,5,6,7,8,9,10,11,12
    unwanted 'READ COMMITTED' 'FORCE INDEX (PRIMARY) WHERE id > 4 AND v % 3 = 0' 1,2,3,4,5,7,8,10,11
    unwanted 'REPEATABLE READ' 'FORCE INDEX (k) WHERE k < 42 AND v % 2 = 0' 1,2,3,4,5,6,7,8
    unwanted 'REPEATABLE READ' 'FORCE INDEX (PRIMARY) WHERE id > 4 AND v % 3 = 0' 1,2,3,4
}

unwanted() {
    say_to a "SET SESSION TRANSACTION ISOLATION LEVEL $1;" 'BEGIN;' "SELECT COUNT(v) FROM t $2 FOR UPDATE;" > /dev/null
    expect "$(rows_free)" "$3"
    say_to a 'ROLLBACK;'
}

# No row is locked that a statement with an end did not come to.
sessions_limits() {
    local statement
    say_to a 'DO SLEEP(1.1);' # by then the optimiser knows of the rows
    for statement in 'SELECT id FROM t ORDER BY id LIMIT 3 FOR UPDATE' 'SELECT MIN(k) FROM t FORCE INDEX (k) FOR UPDATE' \
        'SELECT id, v FROM t FORCE INDEX (k) ORDER BY k LIMIT 2 FOR UPDATE' 'UPDATE t SET v = v + 1 ORDER BY id LIMIT 5' \
        'DELETE FROM t ORDER BY id DESC LIMIT 3' 'SELECT COUNT(v) FROM t FORCE INDEX (PRIMARY) WHERE id > 36 FOR UPDATE' \
        'UPDATE t FORCE INDEX (PRIMARY) SET v = 0 WHERE id > 30' 'DELETE t FROM t FORCE INDEX (PRIMARY) WHERE id IN (1, 2, 3) AND v < 100' \
        'SELECT COUNT(v) FROM t WHERE id IN (SELECT id FROM u) FOR UPDATE'; do
        say_to a 'BEGIN;' "$statement;"
        rows_free
        say_to a 'ROLLBACK;'
    done
    say_to b 'BEGIN;' 'UPDATE t SET v = -1 WHERE id = 9;'
    say_to a 'BEGIN;' 'UPDATE t SET v = v + 1;'
    say_to b 'COMMIT;'
    rows_free
    say_to a 'SELECT SUM(v) FROM t;' 'ROLLBACK;'
}

# A statement under READ COMMITTED reads one moment, however long it takes.
sessions_moment() {
    say_to b 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'BEGIN;'
    send b 'SELECT COUNT(*), SUM(v), SUM(k), SUM(SLEEP(0.02)) FROM t FORCE INDEX (k) WHERE k > 0;'
    sleep 0.3
    value 'UPDATE s.t SET v = v + 1000; UPDATE s.t SET k = k + 100 WHERE id < 20; DELETE FROM s.t WHERE id > 38'
    until_done b
    say_to b 'SELECT COUNT(*), SUM(v), SUM(k) FROM t;'
    # And each of the statements that a HANDLER reads its rows with another one.
    say_to b 'HANDLER t OPEN;' 'HANDLER t READ `PRIMARY` FIRST;'
    value 'UPDATE s.t SET v = v + 1000 WHERE id = 2'
    say_to b 'HANDLER t READ `PRIMARY` NEXT;' 'HANDLER t CLOSE;'
}

# Writes of other tables leave what was read ahead as it is: no entry is read, and judged, a second time. Where a
# row voids it few are read for nothing.
check_read_ahead_once() {
    client s -e 'CREATE TABLE w (id INT PRIMARY KEY AUTO_INCREMENT, k INT, v INT, KEY k (k)) ENGINE=TREFOIL;
        INSERT INTO w (k, v) SELECT seq, 0 FROM seq_1_to_400; CREATE TABLE x (id INT PRIMARY KEY) ENGINE=TREFOIL'
    client s --delimiter=// -e 'CREATE FUNCTION to_another(n INT) RETURNS INT DETERMINISTIC BEGIN INSERT INTO x VALUES (n); RETURN n; END//
        CREATE TABLE p (id INT PRIMARY KEY) ENGINE=TREFOIL; CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) ENGINE=TREFOIL//
        INSERT INTO p SELECT seq FROM seq_1_to_400//
        CREATE FUNCTION to_parent(n INT) RETURNS INT DETERMINISTIC BEGIN DELETE FROM p WHERE id = n; RETURN n; END'
    judged_by 'SELECT SUM(to_another(id)), SUM(v) FROM w FORCE INDEX (k) WHERE k > 0 AND k % 3 < 2' 400
    judged_by 'INSERT INTO x SELECT id + 1000 FROM w FORCE INDEX (k) WHERE k > 0 AND k % 3 < 2 AND v = 0' 400
    judged_by 'SELECT SUM(to_parent(id)), SUM(v) FROM w FORCE INDEX (k) WHERE k > 0 AND k % 3 < 2' 1592
    judged_by 'CREATE TABLE y ENGINE=TREFOIL SELECT id, v FROM w FORCE INDEX (k) WHERE k > 0 AND k % 3 < 2' 400
}

# Entries that the server says of whether it wants them.
judged_by() {
    say_to a 'FLUSH STATUS;' "$1;" > "$WORK/judged"
    expect "$(say_to a "SHOW SESSION STATUS LIKE 'Handler_icp_attempts';" | grep -o '[0-9]*$')" "$2"
}
