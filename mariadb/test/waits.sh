# SPDX-License-Identifier: GPL-2.0-only
# Whom changes of tables wait for, how long, and who waits for them. Sourced by smoke.sh.

# Prints the connection that runs such a statement, once one does.
running() {
    local id= tries
    for ((tries = 0; tries < 100 && ${#id} == 0; tries++)); do
        sleep 0.1
        id=$(value "SELECT id FROM information_schema.PROCESSLIST WHERE info LIKE '$1'")
    done
    printf '%s' "$id"
}

# What is printed if these take more than so many seconds.
takes_at_most() {
    local began=$EPOCHREALTIME most=$1
    shift
    "$@"
    awk -v began="$began" -v now="$EPOCHREALTIME" -v most="$most" -v what="$*" \
        'BEGIN { if (now - began > most) print what, "took", now - began, "seconds" }'
}

# A transaction that nobody's connection has any more, prepared, with a row in t.
leave_prepared() {
    say_to a "XA START 'one';" 'INSERT INTO t VALUES (8, 8);' "XA END 'one';" "XA PREPARE 'one';"
    close_sessions
    open_session a
    open_session b
}

change_others() {
    expect "$(say_to b 'CREATE TABLE o (a INT PRIMARY KEY, b INT) ENGINE=TREFOIL;' 'INSERT INTO o VALUES (1, 1);' \
        'ALTER TABLE o ADD COLUMN c INT, ALGORITHM=INSTANT;' 'ALTER TABLE o ADD KEY (b), ALGORITHM=INPLACE;' \
        'RENAME TABLE o TO o2;' 'TRUNCATE TABLE o2;' 'DROP TABLE o2;')" ''
}

# Each kind of change of t waits for what is prepared; others go on beside it; it ends by KILL, with its client, and in time.
check_changes_beside_prepared() {
    local change id
    leave_prepared
    for change in 'ALTER TABLE t ADD KEY k2 (v, id), ALGORITHM=INPLACE, LOCK=NONE' 'ALTER TABLE t ADD COLUMN x INT, ALGORITHM=INSTANT' \
        'TRUNCATE TABLE t' 'DROP TABLE t'; do
        send a "$change;"
        id=$(running "$change")
        takes_at_most 3 change_others
        [ "$(running "$change")" = "$id" ] || echo "$change did not wait"
        value "KILL QUERY $id"
        takes_at_most 2 expect_error "$(until_done a)" 1317
    done
    say_to a 'SET trefoil_lock_wait_timeout = 1;' > /dev/null
    for change in 'ALTER TABLE t ADD KEY k2 (v, id), ALGORITHM=INPLACE, LOCK=NONE' 'DROP TABLE t' 'TRUNCATE TABLE t'; do
        takes_at_most 3 expect_error "$(say_to a "$change;")" 1205
    done
    expect_error "$(say_to b 'ALTER TABLE t NOWAIT ADD COLUMN x INT;')" 1205
    value "XA COMMIT 'one'"
    expect "$(say_to a 'ALTER TABLE t ADD KEY k2 (v, id), ALGORITHM=INPLACE, LOCK=NONE;' 'SELECT COUNT(*) FROM t FORCE INDEX (k2);')" 4
}

# A change whose client is gone ends, and so does what it waited for.
check_change_without_client() {
    local id tries
    leave_prepared
    send a 'ALTER TABLE t ADD COLUMN x INT, ALGORITHM=INSTANT;'
    id=$(running 'ALTER TABLE t%')
    kill -KILL "$(pgrep -P "${PID[a]}")"
    wait "${PID[a]}" 2> /dev/null || true
    exec {PIPE[a]}>&-
    unset 'PIPE[a]' 'PID[a]'
    rm "$WORK/pipe.a"
    for ((tries = 0; tries < 30; tries++)); do
        [ -n "$(value "SELECT id FROM information_schema.PROCESSLIST WHERE id = $id")" ] || break
        sleep 0.1
    done
    [ "$tries" -lt 30 ] || echo 'it waits on'
    value "XA ROLLBACK 'one'"
    expect "$(say_to b 'SELECT * FROM t WHERE id = 1;')" $'1\t1'
}

# Behind ROLLBACK TO SAVEPOINT a transaction that holds nothing keeps nobody from changing a table, and finds it as it is then;
# one that has locks keeps it. The binary log would keep the table for InnoDB too.
check_savepoint_gives_back() {
    say_to a 'SET sql_log_bin = 0;' > /dev/null
    say_to a 'BEGIN;' 'SAVEPOINT s;' > /dev/null
    expect "$(say_to a 'SELECT * FROM t WHERE id = 1;' 'ROLLBACK TO s;')" $'1\t1'
    expect "$(say_to b 'SET lock_wait_timeout = 1;' 'ALTER TABLE t ADD COLUMN n INT DEFAULT 5 FIRST, ALGORITHM=INSTANT;')" ''
    expect "$(say_to a 'SELECT * FROM t WHERE id = 1;' 'INSERT INTO t VALUES (6, 4, 4);' 'COMMIT;' 'SELECT * FROM t WHERE id = 4;')" \
        $'5\t1\t1\n6\t4\t4'
    say_to a 'CREATE TABLE o (a INT) ENGINE=TREFOIL;' 'BEGIN;' 'SELECT * FROM o;' 'SAVEPOINT s;' \
        'INSERT INTO t VALUES (6, 5, 5);' 'ROLLBACK TO s;' > /dev/null
    expect_error "$(say_to b 'ALTER TABLE t DROP COLUMN n, ALGORITHM=INSTANT;')" 1205
    say_to a 'COMMIT;' > /dev/null
    expect "$(say_to b 'ALTER TABLE t DROP COLUMN n, ALGORITHM=INSTANT;' 'SELECT * FROM t WHERE id = 4;')" $'4\t4'
    say_to a 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;' 'BEGIN;' 'SELECT * FROM o;' 'SAVEPOINT s;' > /dev/null
    expect "$(say_to a 'SELECT * FROM t WHERE v + 0 = 99 FOR UPDATE;' 'ROLLBACK TO s;')" ''
    expect "$(say_to b 'ALTER TABLE t ADD COLUMN n INT DEFAULT 7 FIRST, ALGORITHM=INSTANT;')" ''
    expect "$(say_to a 'UPDATE t SET v = n WHERE id = 1;' 'SELECT * FROM t WHERE id = 1;' 'COMMIT;')" $'7\t1\t7'
}

# WAIT n is how long its statement waits, whatever the variable says, and whenever the transaction began.
check_wait_says_how_long() {
    say_to a 'BEGIN;' 'UPDATE t SET v = 10 WHERE id = 1;' > /dev/null
    say_to b 'SET trefoil_lock_wait_timeout = 1;' 'BEGIN;' 'SELECT v FROM t WHERE id = 2 FOR UPDATE;' > /dev/null
    send b 'SELECT v FROM t WHERE id = 1 FOR UPDATE WAIT 30;'
    running 'SELECT v FROM t WHERE id = 1%' > /dev/null
    sleep 2
    say_to a 'COMMIT;' > /dev/null
    expect "$(until_done b)" 10
    say_to a 'BEGIN;' > /dev/null
    takes_at_most 4 expect_error "$(say_to a 'SELECT v FROM t WHERE id = 1 FOR UPDATE WAIT 1;')" 1205
    say_to a 'SET trefoil_lock_wait_timeout = 1;' > /dev/null
    takes_at_most 4 expect_error "$(say_to a 'UPDATE t SET v = 11 WHERE id = 1;')" 1205
    expect_error "$(say_to a 'SET STATEMENT lock_wait_timeout = 0 FOR SELECT v FROM t WHERE id = 1 FOR UPDATE;')" 1205
}

# Under LOCK TABLES too rows are locked if the statement says so.
check_shared_under_lock_tables() {
    leave_prepared
    say_to a 'SET trefoil_lock_wait_timeout = 0;' 'SET autocommit = 0;' 'LOCK TABLES t READ;' > /dev/null
    expect "$(say_to a 'SELECT COUNT(*) FROM t;')" 3
    expect_error "$(say_to a 'SELECT COUNT(*) FROM t LOCK IN SHARE MODE;')" 1205
    expect "$(say_to a 'SELECT COUNT(*) FROM t LOCK IN SHARE MODE SKIP LOCKED;')" 3
    say_to a 'UNLOCK TABLES;' > /dev/null
    value "XA COMMIT 'one'"
}
