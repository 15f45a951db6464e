# SPDX-License-Identifier: GPL-2.0-only
# A replica that does not read the rows it changes (trefoil_read_free_apply), docs/decisions/0017. Sourced by replication.sh.

# How many reads it has left out since the last time it was asked. Sets LEFT_OUT.
left_out() {
    local now
    now=$(value_at replica "SHOW STATUS LIKE 'Trefoil_apply_reads_left_out'" | cut -f 2)
    LEFT_OUT=$((now - ${LEFT_OUT_BEFORE:-0})) LEFT_OUT_BEFORE=$now
}

# A statement of the primary, applied; both hold the same in table `t`, and so many reads were left out.
left_out_by() {
    local reads=$1
    value_at primary "USE rep; $2"
    wait_for_replica
    left_out
    expect "$2: $LEFT_OUT" "$2: $reads"
    expect "$2: $(rows_at replica t)" "$2: $(rows_at primary t)"
    expect "$2: $(value_at replica 'CHECK TABLE rep.t' | cut -f 4)" "$2: OK"
}

wait_for_replica() {
    [ "$(value_at replica "SELECT MASTER_GTID_WAIT('$(value_at primary 'SELECT @@gtid_binlog_pos')', 60)")" = 0 ] ||
        at replica client -e 'SHOW SLAVE STATUS\G' | grep -E '_Error|Running' | grep -v ': *$'
}

# Under load, with conflicts, on trial: both hold the same, and reads were left out.
unread_under_load() {
    new_pair TREFOIL TREFOIL ROW optimistic --trefoil-read-free-apply=ON
    at primary client < "$HERE/test/replication.sql"
    value_at replica 'START SLAVE'
    start_clients 1
    sleep 3
    end_clients
    check_same
    LEFT_OUT_BEFORE=0
    left_out
    [ "$LEFT_OUT" -gt 100 ] || echo "$LEFT_OUT reads were left out"
}

# Two reads of a row in a table of rows alone, one where entries or children depend on what the row is, none where the log does not have the row
# whole or somebody wants to see it.
unread_where_it_is_sound() {
    local t='DROP TABLE IF EXISTS u, t; CREATE TABLE t' rows='INSERT INTO t (id, v) VALUES (1, 1), (2, 2), (3, 3)'
    local changes='UPDATE t SET v = v + 10 WHERE id < 3; DELETE FROM t WHERE id = 3'
    LEFT_OUT_BEFORE=0
    new_pair TREFOIL TREFOIL ROW conservative --trefoil-read-free-apply=ON --log-bin=binlog --log-slave-updates
    value_at primary 'CREATE DATABASE rep'
    value_at replica 'START SLAVE'
    left_out_by 6 "$t (id INT PRIMARY KEY, v INT, b BLOB DEFAULT REPEAT('b', 9999)); $rows; $changes"
    left_out_by 6 "$t (id INT PRIMARY KEY, v INT) STRUCTURE=lsm; $rows; $changes"
    left_out_by 6 "$t (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT) STRUCTURE=btree; $rows; $changes"
    left_out_by 2 "$t (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT); INSERT INTO t VALUES ('a', 1); UPDATE t SET id = 'A'"
    # A new key has to be free.
    left_out_by 1 "$t (id INT PRIMARY KEY, v INT); $rows; UPDATE t SET id = 7 WHERE id = 1"
    left_out_by 3 "$t (id INT PRIMARY KEY, v INT, k INT, KEY (k), UNIQUE (v)); $rows; $changes"
    left_out_by 3 "$t (id INT PRIMARY KEY, v INT); CREATE TABLE u (id INT REFERENCES t (id) ON DELETE CASCADE); $rows; INSERT INTO u VALUES (3); $changes"
    expect "$(value_at replica 'SELECT COUNT(*) FROM rep.u')" 0
    left_out_by 0 "$t (id INT, v INT, KEY (id)); $rows; $changes"
    left_out_by 0 "$t (id INT PRIMARY KEY, v INT, w INT AS (v + 1) PERSISTENT); $rows; $changes"
    left_out_by 0 "$t (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING; $rows; $changes"
    left_out_by 0 "$t (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 2; $rows; $changes"
    left_out_by 0 "$t (id INT PRIMARY KEY, v INT, w INT DEFAULT 5); SET binlog_row_image = MINIMAL; $rows; UPDATE t SET w = 6; $changes"
    left_out_by 0 "$t (id INT PRIMARY KEY, v INT, b BLOB); SET binlog_row_image = NOBLOB; INSERT INTO t VALUES (1, 1, 'b'), (3, 3, 'c'); $changes"
    # What only the replica has.
    left_out_by 0 "$t (id INT PRIMARY KEY, v INT); $rows"
    value_at replica 'CREATE TABLE rep.seen (v INT); CREATE TRIGGER rep.see BEFORE UPDATE ON rep.t FOR EACH ROW INSERT INTO seen VALUES (OLD.v);
        SET GLOBAL slave_run_triggers_for_rbr = YES'
    left_out_by 0 "$changes"
    expect "$(value_at replica 'SELECT SUM(v) FROM rep.seen')" 3
    value_at replica 'SET GLOBAL slave_run_triggers_for_rbr = NO; DROP TRIGGER rep.see; ALTER TABLE rep.t ADD COLUMN own INT DEFAULT 9; UPDATE rep.t SET own = 8'
    value_at primary 'UPDATE rep.t SET v = 5'
    wait_for_replica
    expect "$(value_at replica 'SELECT * FROM rep.t' | xargs)" '1 5 8 2 5 8'
    value_at replica 'ALTER TABLE rep.t DROP COLUMN own, MODIFY v BIGINT; SET GLOBAL slave_type_conversions = ALL_NON_LOSSY'
    left_out_by 0 'UPDATE t SET v = 6'
    value_at replica 'ALTER TABLE rep.t MODIFY v INT; SET GLOBAL trefoil_read_free_apply = OFF'
    left_out_by 0 'UPDATE t SET v = 7'
}

# A replica that is not what its primary is: what of it the log names is so afterwards, no key leads to a row that is not there, and where there are
# other keys a row that is missing stops it.
unread_where_it_differs() {
    LEFT_OUT_BEFORE=0
    new_pair TREFOIL TREFOIL ROW conservative --trefoil-read-free-apply=ON
    value_at primary 'CREATE DATABASE rep; USE rep; CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE k (id INT PRIMARY KEY, v INT, w INT, KEY (v));
        INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); INSERT INTO k VALUES (1, 1, 1), (2, 2, 2)'
    value_at replica 'START SLAVE'
    wait_for_replica
    value_at replica 'DELETE FROM rep.t WHERE id <> 2; UPDATE rep.t SET v = 99; UPDATE rep.k SET v = 99 WHERE id = 1'
    value_at primary 'UPDATE rep.t SET v = v + 10 WHERE id < 3; DELETE FROM rep.t WHERE id = 3; UPDATE rep.k SET w = 5 WHERE id = 1'
    wait_for_replica
    expect "$(value_at replica 'SELECT * FROM rep.t' | xargs)" '1 11 2 12'
    expect "$(value_at replica 'SELECT * FROM rep.k FORCE INDEX (v) WHERE v BETWEEN 0 AND 100' | xargs)" '1 1 5 2 2 2'
    expect "$(value_at replica 'CHECK TABLE rep.t, rep.k' | cut -f 4 | sort -u)" OK
    value_at replica 'DELETE FROM rep.k WHERE id = 2'
    value_at primary 'UPDATE rep.k SET w = 6 WHERE id = 2'
    expect "$(value_at replica "SELECT MASTER_GTID_WAIT('$(value_at primary 'SELECT @@gtid_binlog_pos')', 60)")" -1
    expect "$(at replica client -e 'SHOW SLAVE STATUS\G' | sed -n 's/ *Last_SQL_Errno: //p')" 1032
    # Who passes over such rows is told of them, in tables of rows alone as well.
    value_at replica "SET GLOBAL slave_exec_mode = IDEMPOTENT; DELETE FROM rep.t WHERE id = 1; START SLAVE"
    value_at primary 'UPDATE rep.t SET v = 0 WHERE id = 1'
    wait_for_replica
    expect "$(value_at replica 'SELECT * FROM rep.t' | xargs)" '2 12'
}

unread_checks() {
    check_of_pair unread_where_it_is_sound
    check_of_pair unread_where_it_differs
    check_of_pair unread_under_load
}
