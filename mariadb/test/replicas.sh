# SPDX-License-Identifier: GPL-2.0-only
# Replicas in moments that luck seldom brings: an earlier transaction that waits for a later one, logs that an isolation level does
# not allow; and replicas that begin with a backup. Sourced by replication.sh.

# A check of a pair; what it prints is why it failed.
check_of_pair() {
    "$@" > "$WORK/why" 2>&1 || echo 'it failed' >> "$WORK/why"
    if [ -s "$WORK/why" ]; then cat "$WORK/why"; verdict "$*" FAILED; else verdict "$*" ok; fi
}

# A pair of TREFOIL whose replica has everything and is stopped.
pair_at_rest() {
    new_pair TREFOIL TREFOIL ROW "$1" --trefoil-lock-wait-timeout=600
    at primary client < "$HERE/test/replication.sql"
    value_at replica 'START SLAVE'
    check_same
    value_at replica 'STOP SLAVE'
}

# Somebody outside has a row of the replica, account 1, and then it goes on.
start_behind_another() {
    local tries
    side replica
    (echo 'BEGIN; UPDATE acc SET v = 0 WHERE id = 1;'; until [ -e "$WORK/enough" ]; do sleep 0.1; done; echo 'ROLLBACK;') |
        client --unbuffered rep &
    HOLDER=$!
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value_at replica 'SELECT COUNT(*) FROM information_schema.TREFOIL_TRX')" = 0 ] || break
        sleep 0.1
    done
    value_at replica 'START SLAVE'
}

let_them_go_on() {
    touch "$WORK/enough"
    wait "$HOLDER"
    rm "$WORK/enough"
    REPLICATION_PATIENCE=30 check_same
}

# The replica's first transaction waits for somebody outside; meanwhile the second takes a row that the first comes to. It must be
# taken from it: it may not commit before.
later_gives_way() {
    local mode=$1 tries
    pair_at_rest "$mode"
    value_at primary 'USE rep; BEGIN; UPDATE acc SET v = 1 WHERE id = 1; UPDATE acc SET v = 1 WHERE id = 2; COMMIT;
        UPDATE acc SET v = 2 WHERE id = 2; UPDATE acc SET v = 3 WHERE id = 2'
    start_behind_another
    # The first one waits, a later one has the row.
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value_at replica "SELECT COUNT(*) FROM information_schema.TREFOIL_TRX WHERE trx_state <> 'LOCK WAIT'")" -lt 2 ] || break
        sleep 0.1
    done
    let_them_go_on
    [ "$(value_at replica "SHOW STATUS LIKE 'Slave_retried_transactions'" | cut -f 2)" != 0 ] || echo 'nobody gave way'
}

# A transaction that has waited for another one's row says so in the binary log: a replica does not begin it on trial beside those before.
# One that waited for nobody does not.
waits_are_marked() {
    local tries
    new_side primary TREFOIL --server-id=1 --log-bin=binlog --binlog-format=ROW
    start_side primary
    side primary
    client -e 'CREATE DATABASE f; CREATE TABLE f.t (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL; INSERT INTO f.t VALUES (1, 0), (2, 0); RESET MASTER'
    (echo 'BEGIN; UPDATE t SET v = 1 WHERE id = 1;'; until [ -e "$WORK/enough" ]; do sleep 0.1; done; echo 'COMMIT;') | client --unbuffered f &
    local holder=$! waiter
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value 'SELECT COUNT(*) FROM information_schema.TREFOIL_LOCKS')" = 0 ] || break
        sleep 0.1
    done
    client f -e 'UPDATE t SET v = 2 WHERE id = 1' &
    waiter=$!
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value 'SELECT COUNT(*) FROM information_schema.TREFOIL_LOCK_WAITS')" = 0 ] || break
        sleep 0.1
    done
    touch "$WORK/enough"
    wait "$holder" "$waiter"
    rm "$WORK/enough"
    client f -e 'UPDATE t SET v = 3 WHERE id = 2; FLUSH BINARY LOGS'
    expect "$("$ROOT/bin/mariadb-binlog" --no-defaults "$DATA/binlog.000001" | sed -n 's/.*GTID \(0-1-[0-9]*\)\(.*\)$/\1 \2/p' |
        awk '{ print $1, (/ waited/ ? "waited" : "-") }' | xargs)" '0-1-1 - 0-1-2 waited 0-1-3 -'
}

# The primary is killed when the engine has changed a table and the log does not say so yet. It finishes that when it starts, and logs it: as a
# change of a table, so that a replica lets nothing that comes behind go on beside it. There what comes would hold the table and wait for the
# change, which waits for the table.
finished_change_stands_alone() {
    TREFOIL_PAUSE_AT=alter.build:2000 new_pair TREFOIL TREFOIL STATEMENT optimistic
    at primary client < "$HERE/test/replication.sql"
    kill_at alter.committed:1
    {
        at primary client rep -e 'ALTER TABLE items ADD KEY finished (pad)' > "$WORK/said" 2>&1 || true
        wait "${SIDE_SERVER[primary]}" || true
    } 2> /dev/null
    SIDE_SERVER[primary]=
    # 2026 is what a client says of 11.8.
    grep -q 'ERROR 20[012]' "$WORK/said" || echo 'the primary was not killed'
    start_side primary
    grep -q 'Crash recovery executed' "$WORK/primary/error.log" || echo 'there was nothing to finish'
    value_at primary 'INSERT INTO rep.items (pad) VALUES (1); INSERT INTO rep.items (pad) VALUES (2); INSERT INTO rep.items (pad) VALUES (3)'
    value_at replica 'START SLAVE'
    REPLICATION_PATIENCE=60 check_same
    expect "$(value_at replica 'SHOW INDEX FROM rep.items' | cut -f 3 | tail -n 1)" finished
}

# A group of commits that waits for one more goes on as soon as somebody waits for a row of it.
group_that_is_waited_for() {
    local began waiter
    new_side primary TREFOIL --server-id=1 --log-bin=binlog --binlog-format=ROW --binlog-commit-wait-usec=8000000
    start_side primary
    side primary
    client -e 'CREATE DATABASE f; CREATE TABLE f.t (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL;
        INSERT INTO f.t VALUES (1, 0); SET GLOBAL binlog_commit_wait_count = 2'
    began=$EPOCHREALTIME
    client f -e 'UPDATE t SET v = v + 1 WHERE id = 1' &
    waiter=$!
    sleep 1
    # It waits for the row, and so the first one is committed.
    client f -e 'BEGIN; UPDATE t SET v = v + 1 WHERE id = 1; ROLLBACK'
    wait "$waiter"
    awk -v began="$began" -v now="$EPOCHREALTIME" 'BEGIN { if (now - began > 5) print "the group waited for", now - began, "seconds" }'
    expect "$(value 'SELECT v FROM f.t')" 1
}

# Three transactions that the primary committed as one group: the replica's first waits for somebody outside, and meanwhile the others have
# done all of theirs but the commit.
group_is_applied_at_once() {
    local mode=$1 n tries clients=() waits="SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE state LIKE 'Waiting for prior transaction to commit%'"
    pair_at_rest "$mode"
    value_at primary 'SET GLOBAL binlog_commit_wait_usec = 8000000'
    side primary
    for n in 1 2 3; do
        client rep -e "UPDATE acc SET v = 1 WHERE id = $n" &
        clients+=("$!")
        sleep 0.3
    done
    wait "${clients[@]}"
    start_behind_another
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value_at replica "$waits")" -lt 2 ] || break
        sleep 0.1
    done
    expect "$(value_at replica "$waits")" 2
    expect "$(value_at replica 'SELECT COUNT(*) FROM information_schema.TREFOIL_LOCK_WAITS')" 1
    let_them_go_on
}

# What a log of statements would repeat otherwise is refused as with InnoDB, and a log that may choose has its rows.
formats_as_innodb() {
    local engine isolation
    new_side primary TREFOIL --server-id=1 --log-bin=binlog
    start_side primary
    side primary
    for engine in InnoDB TREFOIL; do
        client -e "DROP DATABASE IF EXISTS f; CREATE DATABASE f; CREATE TABLE f.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=$engine"
        for isolation in 'READ UNCOMMITTED' 'READ COMMITTED' 'REPEATABLE READ' SERIALIZABLE; do
            client --force f 2>&1 <<< "
                SET SESSION TRANSACTION ISOLATION LEVEL $isolation; RESET MASTER;
                SET binlog_format = STATEMENT;
                INSERT INTO t (v) VALUES (1); UPDATE t SET v = v + 1; DELETE FROM t WHERE v > 3;
                SET binlog_format = MIXED;
                INSERT INTO t (v) VALUES (1); UPDATE t SET v = v + 1; DELETE FROM t WHERE v > 3;
                SET binlog_format = ROW;
                INSERT INTO t (v) VALUES (1); UPDATE t SET v = v + 1; DELETE FROM t WHERE v > 3;" | sed -n 's/^\(ERROR [0-9]*\).*/\1/p'
            value 'SHOW BINLOG EVENTS' | awk -F '\t' '$3 != "Gtid" && $3 !~ /Xid|list|desc|Start_|Binlog/ { print $3 }'
        done > "$WORK/formats.$engine"
    done
    expect "$(cat "$WORK/formats.TREFOIL")" "$(cat "$WORK/formats.InnoDB")"
    expect "$(grep -c 'ERROR 1665' "$WORK/formats.TREFOIL")" 6
}

# Numbers of rows of which nobody knows how many come: the log has the rows, unless it may have statements alone. Of INSERT … SELECT
# the server says so of any engine, of LOAD DATA only the engine does.
numbers_are_logged_as_rows() {
    new_side primary TREFOIL --server-id=1 --log-bin=binlog --binlog-format=MIXED
    start_side primary
    side primary
    seq 9 > "$WORK/numbers"
    client -e "CREATE DATABASE f; USE f; CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT); INSERT INTO t (v) VALUES (1), (2);
        RESET MASTER; INSERT INTO t (v) VALUES (3); LOAD DATA INFILE '$WORK/numbers' INTO TABLE t (v)"
    expect "$(value 'SHOW BINLOG EVENTS' | awk -F '\t' '$3 ~ /Query|rows/ { print $3 }' | sort | uniq -c | xargs)" '1 Annotate_rows 1 Query 1 Write_rows_v1'
}

# A backup of the primary, with the files that the server has for its tables.
take_backup() {
    value_at primary "SET GLOBAL trefoil_backup_dir = '$WORK/backup'"
    cp -a "$WORK/primary/rep" "$WORK/backup.frm"
}

# The replica begins with the backup and goes on from the place in it, named by `how`: gtid or offset.
begin_with_backup() {
    local how=$1 file offset gtids
    IFS=$'\t' read -r file offset gtids < "$WORK/backup/binlog_position"
    new_side replica TREFOIL --server-id=2 --relay-log=relay --gtid-pos-auto-engines=TREFOIL
    mv "$WORK/backup" "$WORK/replica/trefoil"
    mv "$WORK/backup.frm" "$WORK/replica/rep"
    # It ends itself, once what was between the two phases of its commit is rolled back.
    (SIDE_ARGS[replica]+=' --tc-heuristic-recover=ROLLBACK'; start_side replica) > /dev/null 2>&1 || true
    start_side replica
    [ "$(rows_at replica journal)" != "$(rows_at primary journal)" ] || echo 'nothing was written behind the backup'
    if [ "$how" = gtid ]; then
        value_at replica "SET GLOBAL gtid_slave_pos = '$gtids'"
        change_master 'MASTER_USE_GTID=slave_pos'
    else
        change_master "MASTER_USE_GTID=no, MASTER_LOG_FILE='$file', MASTER_LOG_POS=$offset"
    fi
    value_at replica 'START SLAVE'
    check_same
}

# A backup of a primary that is written to, made a replica. Behind `how`: more arguments of the primary.
replica_from_backup() {
    local how=$1
    shift
    PRIMARY_ARGS="$*" new_pair TREFOIL TREFOIL ROW conservative
    at primary client < "$HERE/test/replication.sql"
    if [[ $* = *AFTER_SYNC* ]]; then value_at replica 'SET GLOBAL rpl_semi_sync_slave_enabled = ON; START SLAVE'; fi
    start_clients 1 0
    sleep 1
    take_backup
    # Without a replica that answers nobody waits for one.
    if [[ $* = *AFTER_SYNC* ]]; then
        expect "$(value_at primary "SHOW STATUS LIKE 'Rpl_semi_sync_master_status'" | cut -f 2)" ON
        [ "$(value_at primary "SHOW STATUS LIKE 'Rpl_semi_sync_master_yes_tx'" | cut -f 2)" != 0 ] || echo 'no commit waited for the replica'
    fi
    sleep 1
    end_clients
    begin_with_backup "$how"
}

# A backup while a transaction is in the binary log and not in the engine: one that its client prepared and another one commits. Nobody
# orders these two, so only who waits for all commits has a place where they are the same.
backup_between_log_and_engine() {
    local committer
    TREFOIL_PAUSE_AT=to_decide:3000 new_pair TREFOIL TREFOIL ROW conservative
    at primary client < "$HERE/test/replication.sql"
    value_at primary "USE rep; XA START 'one'; INSERT INTO journal VALUES (1, 1); XA END 'one'; XA PREPARE 'one'"
    side primary
    client rep -e "XA COMMIT 'one'" &
    committer=$!
    sleep 1
    value 'SELECT COUNT(*) FROM rep.journal' > "$WORK/during"
    take_backup
    wait "$committer"
    expect "$(cat "$WORK/during")" 0
    value_at primary 'INSERT INTO rep.journal VALUES (2, 2)'
    begin_with_backup gtid
}

# A backup does not wait for ever for who is in between, holds the others up for moments only, and leaves nothing behind.
backup_gives_up() {
    local holder began=$SECONDS
    TREFOIL_PAUSE_AT=to_decide:9000 new_pair TREFOIL TREFOIL ROW conservative
    at primary client < "$HERE/test/replication.sql"
    value_at primary "USE rep; XA START 'one'; INSERT INTO journal VALUES (1, 1); XA END 'one'; XA PREPARE 'one'"
    side primary
    client rep -e "XA COMMIT 'one'" &
    holder=$!
    sleep 1
    (client -e "SET lock_wait_timeout = 4; SET GLOBAL trefoil_backup_dir = '$WORK/backup'" > "$WORK/gave_up" 2>&1 || true) &
    local backup=$!
    while kill -0 "$backup" 2> /dev/null; do
        value "INSERT INTO rep.counts (n, i) SELECT 0, COUNT(*) FROM rep.counts"
        sleep 0.1
    done
    wait "$backup"
    expect_error "$(cat "$WORK/gave_up")" 1205
    [ ! -e "$WORK/backup" ] || echo 'something was left behind'
    [ "$(value 'SELECT COUNT(*) FROM rep.counts')" -ge 2 ] || echo 'nobody committed meanwhile'
    wait "$holder"
    ((SECONDS - began < 60)) || echo "it took $((SECONDS - began)) seconds"
}

# Whoever is held up by BACKUP STAGE holds nobody up, and without a log there is no place in it.
backups_beside_others() {
    new_side primary TREFOIL
    start_side primary
    side primary
    client -e "CREATE DATABASE rep; CREATE TABLE rep.t (id INT PRIMARY KEY); BACKUP STAGE START; BACKUP STAGE FLUSH; BACKUP STAGE BLOCK_DDL;
        BACKUP STAGE BLOCK_COMMIT; SET lock_wait_timeout = 5; SET GLOBAL trefoil_backup_dir = '$WORK/backup'; BACKUP STAGE END"
    expect "$(find "$WORK/backup" -name binlog_position)" ''
    rm -rf "$WORK/backup"
}

# $1: short leaves out what is another form of the same.
replica_checks() {
    check_of_pair later_gives_way optimistic
    check_of_pair group_is_applied_at_once conservative
    check_of_pair formats_as_innodb
    check_of_pair numbers_are_logged_as_rows
    if fetch_tools; then check_of_pair waits_are_marked; else echo 'skipped: waits_are_marked, which needs the package mariadb-client'; fi
    check_of_pair group_that_is_waited_for
    check_of_pair replica_from_backup gtid
    check_of_pair backups_beside_others
    unread_checks
    case ${TREFOIL_PROFILE:-release} in
        release) echo 'skipped: finished_change_stands_alone and backup_between_log_and_engine, which TREFOIL_PROFILE=sim compiles' ;;
        *) check_of_pair finished_change_stands_alone; check_of_pair backup_between_log_and_engine; check_of_pair backup_gives_up ;;
    esac
    [ "${1:-}" != short ] || return 0
    check_of_pair later_gives_way aggressive
    check_of_pair replica_from_backup offset
    check_of_pair replica_from_backup offset --binlog-optimize-thread-scheduling=OFF --max-binlog-size=65536
    check_of_pair replica_from_backup gtid --rpl-semi-sync-master-enabled=ON --rpl-semi-sync-master-wait-point=AFTER_SYNC
}
