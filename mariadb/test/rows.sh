# SPDX-License-Identifier: GPL-2.0-only
# Rows of a table that get other settings in place. Sourced by checks.sh.

# What the keys of a table of `s` are kept in, each such name once; and names of what is beside them.
kept_in() {
    value "SELECT GROUP_CONCAT(DISTINCT structure ORDER BY structure) FROM information_schema.TREFOIL_INDEXES
        WHERE table_schema = 's' AND table_name = '$1' AND index_name NOT LIKE '%(%'"
}
beside_keys() {
    value "SELECT GROUP_CONCAT(index_name ORDER BY index_name) FROM information_schema.TREFOIL_INDEXES
        WHERE table_schema = 's' AND table_name = '$1' AND index_name LIKE '%(%'"
}

# Waits until such an index of a table of `s` is there.
await_index() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        [[ $(beside_keys "$1") != *"$2"* ]] || return 0
        sleep 0.02
    done
    echo "there is no $2 of $1"
}

# What was there before goes once nobody needs it: the engine looks now and then.
await_single() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(beside_keys "$1")" != NULL ] || return 0
        sleep 0.1
    done
    echo "beside $1 stays $(beside_keys "$1")"
}

# From each structure to each other, with the keys that have the table's, beside writers whose statements do not wait.
check_rows_beside_writers() {
    local n to pids=()
    client s -e 'CREATE TABLE s.b (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARBINARY(40), KEY ka (a), UNIQUE KEY kb (b),
        KEY fixed (a, b) STRUCTURE=btree) ENGINE=TREFOIL STRUCTURE=betree; INSERT INTO s.b (a, b) SELECT seq, MD5(seq) FROM seq_1_to_20000'
    for n in 1 2; do
        for ((i = 0; i < 4000; i++)); do
            printf 'INSERT INTO b (a, b) VALUES (%d, UUID()); UPDATE b SET a = a + 1000000 WHERE id = %d;' $((i % 50)) $((i * 17 + n))
            printf 'DELETE FROM b WHERE id = %d;\n' $((i * 13 + n))
        done | client --force -N -B s > "$WORK/writer.$n" 2>&1 &
        pids+=($!)
    done
    for to in lsm btree lsm betree btree betree; do
        value "ALTER TABLE s.b STRUCTURE=$to, ALGORITHM=INPLACE, LOCK=NONE" || echo "not to $to"
        expect "$(value 'SHOW CREATE TABLE s.b' | grep -o 'STRUCTURE`=[a-z]*$')" "STRUCTURE\`=$to"
        expect "$(kept_in b)" "$(printf '%s\n' btree "$to" | sort -u | paste -sd ,)"
        await_single b
    done
    wait "${pids[@]}"
    expect "$(cat "$WORK"/writer.*)" ''
    expect "$(value 'CHECK TABLE s.b EXTENDED' | cut -f 4)" OK
    expect "$(value 'SELECT COUNT(*) FROM s.b FORCE INDEX (ka) WHERE a > 0 OR a <= 0')" "$(value 'SELECT COUNT(*) FROM s.b FORCE INDEX (PRIMARY) WHERE id > 0')"
    restart_with "${SERVER_ARGS[@]}"
    expect "$(value 'CHECK TABLE s.b EXTENDED' | cut -f 4)" OK
    expect "$(kept_in b)" betree,btree
    expect "$(beside_keys b)" NULL
}

# What comes with it in one statement is done as a whole, or by a copy, which says why it is one.
check_rows_in_one_statement() {
    local with
    client s -e "CREATE TABLE s.b (id INT PRIMARY KEY, a INT, b INT, KEY ka (a), KEY kb (b) STRUCTURE=btree) ENGINE=TREFOIL STRUCTURE=betree;
        INSERT INTO s.b SELECT seq, seq % 7, seq FROM seq_1_to_500;
        CREATE TABLE s.p (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=TREFOIL STRUCTURE=betree PARTITION BY HASH (id) PARTITIONS 2;
        INSERT INTO s.p SELECT seq, seq FROM seq_1_to_50;
        CREATE TABLE s.n (a INT) ENGINE=TREFOIL STRUCTURE=btree; INSERT INTO s.n SELECT seq FROM seq_1_to_50"
    expect_error "$(value 'ALTER TABLE s.b STRUCTURE=lsm, ALGORITHM=NOCOPY' 2>&1)" 1845
    expect_error "$(value 'ALTER TABLE s.b STRUCTURE=lsm, ALGORITHM=INSTANT' 2>&1)" 1845
    for with in 'ADD COLUMN c INT' 'DROP KEY ka' 'RENAME KEY ka TO k2' 'RENAME COLUMN a TO x'; do
        expect "$(value "ALTER TABLE s.b STRUCTURE=lsm, $with, ALGORITHM=INPLACE" 2>&1 | grep -o 'Reason: .*')" \
            'Reason: settings of the rows change in place by themselves, or with keys that are added or made anew. Try ALGORITHM=COPY'
    done
    expect_error "$(value 'ALTER TABLE s.p STRUCTURE=lsm, ALGORITHM=INPLACE' 2>&1)" 1846
    value 'ALTER TABLE s.p STRUCTURE=lsm'
    expect "$(value 'SELECT COUNT(*), SUM(id) FROM s.p')" $'50\t1275'
    value 'ALTER TABLE s.b STRUCTURE=lsm, ADD KEY kab (a, b), DROP KEY kb, ADD KEY kb (b) STRUCTURE=betree COMPRESSION=zstd, ALGORITHM=INPLACE, LOCK=NONE'
    expect "$(value "SELECT index_name, structure, compression FROM information_schema.TREFOIL_INDEXES WHERE table_name = 'b' AND index_name NOT LIKE '%(%' ORDER BY 1")" \
        $'ka\tlsm\tlz4\nkab\tlsm\tlz4\nkb\tbetree\tzstd\nPRIMARY\tlsm\tlz4'
    # An option alone; the same in other words, which is nothing to do; one structure for all that have it by default.
    await_single b
    value 'ALTER TABLE s.b SHAPE=universal COMPRESSION=zstd, ALGORITHM=INPLACE, LOCK=NONE'
    await_single b
    expect "$(value "SELECT DISTINCT shape, compression FROM information_schema.TREFOIL_INDEXES WHERE table_name = 'b' AND structure = 'lsm'")" $'universal\tzstd'
    value "ALTER TABLE s.b STRUCTURE=betree SHAPE=DEFAULT COMPRESSION=none, ALGORITHM=INPLACE; ALTER TABLE s.b STRUCTURE=auto, ALGORITHM=NOCOPY"
    value "ALTER TABLE s.b COMMENT='c', ALGORITHM=INSTANT; ALTER TABLE s.b ADD KEY last (b, a), ALGORITHM=NOCOPY"
    expect "$(value 'SELECT COUNT(*), SUM(b) FROM s.b FORCE INDEX (last) WHERE b > 0')" $'500\t125250'
    value 'ALTER TABLE s.n STRUCTURE=lsm, ALGORITHM=INPLACE; INSERT INTO s.n VALUES (51); FLUSH TABLES; ALTER TABLE s.n STRUCTURE=betree, ALGORITHM=INPLACE'
    expect "$(value 'SELECT COUNT(*), SUM(a) FROM s.n')" $'51\t1326'
    # By a copy: a hash that the server keeps. In place, or not: a temporary table that its transaction has written to.
    client s -e "CREATE TABLE s.h (id INT PRIMARY KEY, t BLOB, g INT AS (id + 1), UNIQUE KEY (t), KEY (g)) ENGINE=TREFOIL STRUCTURE=btree;
        INSERT INTO s.h (id, t) SELECT seq, seq FROM seq_1_to_50; ALTER TABLE s.h STRUCTURE=lsm;
        CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=TREFOIL STRUCTURE=btree; SET trefoil_lock_wait_timeout = 1;
        BEGIN; INSERT INTO tmp VALUES (1, 1); ALTER TABLE tmp STRUCTURE=lsm; INSERT INTO tmp VALUES (2, 1); COMMIT;"
    expect_error "$(value 'INSERT INTO s.h (id, t) VALUES (51, 7)' 2>&1)" 1062
    # A replica gets the statement as it was given.
    expect "$(binlog_events "$(value 'SHOW MASTER STATUS' | cut -f 1)" | grep -c 'ALTER TABLE s.n STRUCTURE=lsm, ALGORITHM=INPLACE')" 1
    expect "$(value 'SELECT id FROM s.h FORCE INDEX (g) WHERE g = 8') $(kept_in h)" '7 lsm'
    expect "$(value 'CHECK TABLE s.b, s.p, s.n, s.h EXTENDED' | cut -f 4 | sort -u)" OK
}

# A snapshot from before reads the rows as they were, which are kept for it, and told; until then they do not change again. A key that
# was made anew it cannot use, as one that is added.
check_rows_as_they_were() {
    client s -e 'CREATE TABLE s.b (id INT PRIMARY KEY, v INT, w INT, KEY v (v), KEY w (w) STRUCTURE=betree) ENGINE=TREFOIL STRUCTURE=betree;
        INSERT INTO s.b SELECT seq, seq, seq FROM seq_1_to_1000'
    say_to a 'START TRANSACTION WITH CONSISTENT SNAPSHOT;' > /dev/null
    expect "$(say_to b 'ALTER TABLE b STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE;' 'UPDATE b SET v = v + 1;' 'DELETE FROM b WHERE id < 11;' \
        'INSERT INTO b VALUES (2000, 0, 1000);')" ''
    expect "$(say_to a 'SELECT COUNT(*), SUM(v) FROM b FORCE INDEX (PRIMARY) WHERE id > 0;' 'SELECT v FROM b WHERE id = 1;')" $'1000\t500500\n1'
    expect "$(say_to a 'SELECT COUNT(*), SUM(v) FROM b FORCE INDEX (w) WHERE w > 0;')" $'1000\t500500'
    expect_error "$(say_to a 'SELECT COUNT(*) FROM b FORCE INDEX (v) WHERE v > 0;')" 1412
    expect "$(beside_keys b)" 'PRIMARY (as it was)'
    say_to a 'COMMIT;' 'START TRANSACTION WITH CONSISTENT SNAPSHOT;' > /dev/null
    expect "$(say_to b 'ALTER TABLE b STRUCTURE=btree, ALGORITHM=INPLACE, LOCK=NONE;' 'SET trefoil_lock_wait_timeout = 1;')" ''
    takes_at_most 3 expect_error "$(say_to b 'ALTER TABLE b STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE;')" 1205
    expect "$(say_to b 'SHOW WARNINGS;' | grep -c 'as it was before its last change of structure')" 1
    # That is waited for before keys are built: else this were a value that w has twice.
    expect_error "$(say_to b 'ALTER TABLE b STRUCTURE=lsm, ADD UNIQUE KEY once (w), ALGORITHM=INPLACE, LOCK=NONE;')" 1205
    expect "$(value 'SHOW CREATE TABLE s.b' | grep -o 'STRUCTURE`=[a-z]*$')" 'STRUCTURE`=btree'
    send b 'SET trefoil_lock_wait_timeout = 50;' 'ALTER TABLE b STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE;'
    running 'ALTER TABLE b STRUCTURE=lsm%' > /dev/null
    expect "$(say_to a 'COMMIT;' 'SELECT COUNT(*), SUM(v) FROM b;')" $'991\t501435'
    expect "$(until_done b)" ''
    expect "$(kept_in b)" betree,lsm
    expect "$(value 'CHECK TABLE s.b EXTENDED' | cut -f 4)" OK
}

# A change that is killed, waits in vain for what is prepared, or for who reads the table at its end, leaves nothing. What is prepared
# holds it where it is wanted: at the first key that is built, or, of a table whose keys stay as they are, at the rows.
check_rows_given_up() {
    local id change='ALTER TABLE t STRUCTURE=lsm COMPRESSION=zstd, ALGORITHM=INPLACE, LOCK=NONE' before
    before=$(value 'SHOW CREATE TABLE s.t')
    client s -e "CREATE TABLE s.b (id INT PRIMARY KEY, v VARCHAR(100), KEY v (v) STRUCTURE=btree COMPRESSION=zstd) ENGINE=TREFOIL STRUCTURE=betree;
        INSERT INTO s.b SELECT seq, SHA2(seq, 256) FROM seq_1_to_30000"
    say_to a "XA START 'two';" 'INSERT INTO b VALUES (0, 0);' "XA END 'two';" "XA PREPARE 'two';"
    close_sessions
    open_session a
    leave_prepared
    send a "$change;"
    id=$(running "$change")
    await_index t 'v (being built)'
    value "KILL QUERY $id"
    takes_at_most 2 expect_error "$(until_done a)" 1317
    takes_at_most 3 expect_error "$(say_to a 'SET trefoil_lock_wait_timeout = 1;' "$change;")" 1205
    expect "$(value 'SHOW CREATE TABLE s.t')" "$before"
    expect "$(beside_keys t)" NULL
    value "XA COMMIT 'one'"
    expect "$(say_to a "$change;" 'SELECT COUNT(*) FROM t;' 'SET trefoil_lock_wait_timeout = 50;')" 4
    before=$(value 'SHOW CREATE TABLE s.b')
    change='ALTER TABLE b STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE'
    send a "$change;"
    id=$(running "$change")
    await_index b 'PRIMARY (being built)'
    value "KILL QUERY $id"
    takes_at_most 2 expect_error "$(until_done a)" 1317
    expect "$(beside_keys b)" NULL
    change='ALTER TABLE b STRUCTURE=lsm, ADD KEY more (v), ALGORITHM=INPLACE, LOCK=NONE'
    send a 'SET lock_wait_timeout = 3;' "$change;"
    await_index b 'more (being built)'
    expect "$(say_to b 'BEGIN;' 'SELECT COUNT(*) FROM b WHERE id BETWEEN 1 AND 9;')" 9
    value "XA COMMIT 'two'"
    expect_error "$(until_done a)" 1205
    expect "$(value 'SHOW CREATE TABLE s.b')" "$before"
    expect "$(kept_in b) $(beside_keys b)" 'betree,btree NULL'
    expect "$(say_to b 'COMMIT;' 'INSERT INTO b VALUES (-1, 0);' 'SELECT COUNT(*) FROM b;')" 30002
    expect "$(say_to a 'SET lock_wait_timeout = 50;' "$change;")" ''
    expect "$(kept_in b)" btree,lsm
    expect "$(value 'CHECK TABLE s.b' | cut -f 4)" OK
}

# Both sides of a foreign key, in either order; who refers to rows finds them meanwhile.
check_rows_of_parent_and_child() {
    local table
    client s -e 'CREATE TABLE s.dad (id INT PRIMARY KEY, u INT, UNIQUE KEY u (u)) ENGINE=TREFOIL STRUCTURE=betree;
        CREATE TABLE s.kid (id INT PRIMARY KEY, d INT, KEY d (d), FOREIGN KEY (d) REFERENCES dad (u) ON DELETE CASCADE) ENGINE=TREFOIL STRUCTURE=btree;
        INSERT INTO s.dad SELECT seq, seq FROM seq_1_to_100; INSERT INTO s.kid SELECT seq, 1 + seq % 100 FROM seq_1_to_1000'
    for table in dad kid; do
        value "ALTER TABLE s.$table STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE"
        expect "$(kept_in $table)" lsm
        expect_error "$(value 'INSERT INTO s.kid VALUES (2000, 2000)' 2>&1)" 1452
        value "DELETE FROM s.dad WHERE id = (SELECT * FROM (SELECT MIN(id) FROM s.dad) one)"
    done
    expect "$(value 'SELECT COUNT(*), MIN(d) FROM s.kid')" $'980\t3'
    expect "$(value 'CHECK TABLE s.dad, s.kid EXTENDED' | cut -f 4 | sort -u)" OK
    value 'DROP TABLE s.kid, s.dad'
}

# Partitions are copied, and a table takes the place of one once its rows have the settings of those.
check_rows_of_partitions() {
    client s -e 'CREATE TABLE s.p (id INT PRIMARY KEY, a INT, KEY a (a)) ENGINE=TREFOIL STRUCTURE=lsm PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200));
        INSERT INTO s.p SELECT seq, seq FROM seq_1_to_150; CREATE TABLE s.b (id INT PRIMARY KEY, a INT, KEY a (a)) ENGINE=TREFOIL STRUCTURE=btree;
        INSERT INTO s.b SELECT seq, -seq FROM seq_1_to_50'
    expect "$(value 'ALTER TABLE s.p STRUCTURE=btree, ALGORITHM=INPLACE' 2>&1 | grep -o 'Reason: .*')" 'Reason: partitions cannot be changed all at once. Try ALGORITHM=COPY'
    expect_error "$(value 'ALTER TABLE s.p EXCHANGE PARTITION p0 WITH TABLE s.b' 2>&1)" 1736
    value 'ALTER TABLE s.b STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE; ALTER TABLE s.p EXCHANGE PARTITION p0 WITH TABLE s.b'
    expect "$(value 'SELECT COUNT(*), SUM(a) FROM s.p FORCE INDEX (a) WHERE a <> 0; SELECT COUNT(*), SUM(a) FROM s.b FORCE INDEX (a) WHERE a <> 0')" $'101\t5100\n99\t4950'
    value 'ALTER TABLE s.b STRUCTURE=betree, ALGORITHM=INPLACE, LOCK=NONE; ALTER TABLE s.p TRUNCATE PARTITION p0; ALTER TABLE s.p STRUCTURE=btree'
    expect "$(value 'SELECT COUNT(*), SUM(a) FROM s.p; SELECT COUNT(*), SUM(a) FROM s.b')" $'51\t6375\n99\t4950'
    expect "$(value 'CHECK TABLE s.p, s.b EXTENDED' | cut -f 4 | sort -u)" OK
}

# What is prepared beside the change, and behind it, is there behind a kill, to be committed to the rows as they are kept then.
check_rows_beside_prepared() {
    client s -e 'CREATE TABLE s.b (id INT PRIMARY KEY, v INT, KEY v (v) STRUCTURE=btree) ENGINE=TREFOIL STRUCTURE=betree; INSERT INTO s.b SELECT seq, seq FROM seq_1_to_1000'
    say_to b "XA START 'before';" 'INSERT INTO b VALUES (2001, 1);' 'DELETE FROM b WHERE id = 1;' "XA END 'before';" "XA PREPARE 'before';"
    close_sessions
    open_session a
    send a 'ALTER TABLE b STRUCTURE=lsm, ALGORITHM=INPLACE, LOCK=NONE;'
    await_index b 'PRIMARY (being built)'
    # It may not have the session of who waits: until that ends, it has the table.
    client s -e "XA START 'beside'; INSERT INTO b VALUES (2002, 1); UPDATE b SET v = 0 WHERE id = 2; DELETE FROM b WHERE id = 3; XA END 'beside'; XA PREPARE 'beside'"
    value "XA COMMIT 'before'"
    expect "$(until_done a)" ''
    client s -e "XA START 'behind'; INSERT INTO b VALUES (2003, 1); UPDATE b SET id = 2004 WHERE id = 4; XA END 'behind'; XA PREPARE 'behind'"
    expect "$(value 'SELECT COUNT(*) FROM s.b')" 1000
    close_sessions
    kill_server 2> /dev/null
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    value "XA COMMIT 'behind'; XA COMMIT 'beside'"
    expect "$(value 'SELECT COUNT(*), SUM(v) FROM s.b FORCE INDEX (PRIMARY) WHERE id > 0; SELECT COUNT(*), SUM(v) FROM s.b FORCE INDEX (v) WHERE v >= 0')" $'1001\t500497\n1001\t500497'
    expect "$(value 'SELECT GROUP_CONCAT(id ORDER BY id) FROM s.b WHERE id < 6 OR id > 1000')" 2,5,2001,2002,2003,2004
    value 'ALTER TABLE s.b STRUCTURE=btree, ALGORITHM=INPLACE, LOCK=NONE'
    expect "$(kept_in b) $(value 'CHECK TABLE s.b EXTENDED' | cut -f 4)" 'btree OK'
}

# A backup waits for those who commit, and for no statement that runs, or change of a table that has begun: these wait for nothing else
# than its end.
check_backup_beside_statements() {
    local to=$WORK/beside other=lsm
    [ "${TREFOIL_DEFAULT_STRUCTURE:-}" != lsm ] || other=btree
    leave_prepared
    send a "ALTER TABLE t STRUCTURE=$other, ALGORITHM=INPLACE, LOCK=NONE;"
    await_index t 'v (being built)'
    client s -e 'CREATE TABLE s.b (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL; INSERT INTO s.b VALUES (1, 1)'
    send b 'UPDATE b SET v = v + SLEEP(6);'
    running 'UPDATE b%' > /dev/null
    takes_at_most 4 value "SET GLOBAL trefoil_backup_dir = '$to'"
    [ -s "$to/binlog_position" ] || echo 'there is no backup'
    value "XA COMMIT 'one'"
    expect "$(until_done a)$(until_done b)" ''
    expect "$(kept_in t) $(value 'SELECT COUNT(*) FROM s.t')" "$other 4"
    rm -rf "$to"
}
