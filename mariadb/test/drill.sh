# SPDX-License-Identifier: GPL-2.0-only
# What docs/OPERATING.md says of backups: a backup, or a full one and increments, more writes, the data directory lost, restored, and
# brought forward by one file of the binary log or some, to a place or a moment. Sourced by smoke.sh.

# A writer beside what is tested: transactions of two rows, whose sum is 0.
start_writer() {
    rm -f "$WORK/enough"
    (while [ ! -e "$WORK/enough" ]; do
        echo 'BEGIN; INSERT INTO s.acc (v) VALUES (7); INSERT INTO s.acc (v) VALUES (-7); UPDATE s.cnt SET n = n + 1; COMMIT;'
    done) | client > /dev/null 2>&1 &
    WRITER=$!
    wait_for 'SELECT COUNT(*) > 20 FROM s.acc' 1
}

stop_writer() {
    touch "$WORK/enough"
    wait "$WRITER" || true
}

state_of_drill() { value 'SELECT COUNT(*), IFNULL(SUM(v), 0), (SELECT n FROM s.cnt) FROM s.acc'; }

# Commits are held while the backup is made, so that its place in the binary log is known. Sets BINLOG and POSITION.
backup_with_position() {
    say_to a 'BACKUP STAGE START;' 'BACKUP STAGE FLUSH;' 'BACKUP STAGE BLOCK_DDL;' 'BACKUP STAGE BLOCK_COMMIT;'
    read -r BINLOG POSITION _ <<< "$(say_to a 'SHOW MASTER STATUS;')"
    # From here: to any other connection BACKUP STAGE lets no backup begin.
    say_to a "SET GLOBAL trefoil_backup_dir = '$1';"
    # The .frm files and the server's own tables, at the same moment.
    mkdir "$1.frm"
    cp -r "$DATA/s" "$1.frm/"
    say_to a 'BACKUP STAGE END;'
}

# Files of the binary log, one behind the other, from a place in the first on, up to what the second argument says.
go_forward() {
    local from=$1 until=$2
    shift 2
    "$ROOT/bin/mariadb-binlog" --no-defaults --start-position="$from" "$until" "$@" | client
}

tables_of_drill() {
    client s -e 'CREATE TABLE acc (id INT AUTO_INCREMENT PRIMARY KEY, v INT, KEY v (v)) ENGINE=TREFOIL;
        CREATE TABLE cnt (n INT PRIMARY KEY) ENGINE=TREFOIL STRUCTURE=lsm; INSERT INTO cnt VALUES (0)'
}

check_drill() {
    local there behind
    tables_of_drill
    start_writer
    backup_with_position "$WORK/drill"
    sleep 1
    stop_writer
    there=$(state_of_drill)
    read -r _ behind _ <<< "$(value 'SHOW MASTER STATUS')"
    value 'DELETE FROM s.acc'   # what must not have happened
    close_sessions
    end_server
    mkdir -p "$WORK/kept"
    cp "$DATA/$BINLOG" "$WORK/kept/"
    rm -rf "$DATA/trefoil" "$DATA"/s
    cp -r "$WORK/drill" "$DATA/trefoil"
    cp -r "$WORK/drill.frm/s" "$DATA/s"
    (start_server "${SERVER_ARGS[@]}" --tc-heuristic-recover=ROLLBACK) > /dev/null 2>&1 7>&1 || true
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    [ "$(state_of_drill)" != "$there" ] || echo 'nothing was written behind the backup'
    expect "$(value 'SELECT SUM(v) = 0 AND COUNT(*) = 2 * (SELECT n FROM s.cnt) FROM s.acc')" 1
    go_forward "$POSITION" "--stop-position=$behind" "$WORK/kept/$BINLOG"
    expect "$(state_of_drill)" "$there"
    expect "$(value 'CHECK TABLE s.acc, s.cnt' | cut -f 4 | sort -u)" OK
    rm -rf "$WORK/drill" "$WORK/drill.frm" "$WORK/kept"
}

# The same from a dump, which has its place in the binary log inside and holds nobody up.
check_dump_drill() {
    local there behind
    tables_of_drill
    start_writer
    "$ROOT/bin/mariadb-dump" --no-defaults --socket="$SOCKET" --user=root --single-transaction --master-data=2 --databases s \
        > "$WORK/dump.sql"
    read -r BINLOG POSITION <<< "$(sed -n "s/^-- CHANGE MASTER TO MASTER_LOG_FILE='\(.*\)', MASTER_LOG_POS=\([0-9]*\);/\1 \2/p" \
        "$WORK/dump.sql")"
    sleep 1
    stop_writer
    there=$(state_of_drill)
    read -r _ behind _ <<< "$(value 'SHOW MASTER STATUS')"
    value 'DROP DATABASE s'
    mkdir -p "$WORK/kept"
    cp "$DATA/$BINLOG" "$WORK/kept/"
    client < "$WORK/dump.sql"
    [ "$(state_of_drill)" != "$there" ] || echo 'nothing was written behind the dump'
    expect "$(value 'SELECT SUM(v) = 0 AND COUNT(*) = 2 * (SELECT n FROM s.cnt) FROM s.acc')" 1
    go_forward "$POSITION" "--stop-position=$behind" "$WORK/kept/$BINLOG"
    expect "$(state_of_drill)" "$there"
    rm -rf "$WORK/kept" "$WORK/dump.sql"
}

# A full backup and two increments to it beside a writer, the data lost, a database made of the three, and brought forward.
check_increments() {
    local there behind offset trefoil
    trefoil=$(build_program)
    tables_of_drill
    client s -e 'CREATE TABLE still (id INT PRIMARY KEY, v VARCHAR(1000)) ENGINE=TREFOIL COMPRESSION=none;
        INSERT INTO still SELECT seq, CONCAT("it stays", REPEAT(SHA2(seq, 512), 7)) FROM seq_1_to_20000'
    all_in_the_file 'it stays' 20000
    start_writer
    say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.0';"
    sleep 1
    say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.1 SINCE $WORK/inc.0';"
    sleep 1
    say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.2 SINCE $WORK/inc.1';"
    expect "$(value 'SELECT @@GLOBAL.trefoil_backup_dir')" "$WORK/inc.2 SINCE $WORK/inc.1"
    # What is no base is named, and nothing is left behind.
    expect_error "$(say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.x SINCE $WORK/nothing';")" 1296
    expect_error "$(say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.x SINCE inc.0';")" 1296
    expect_error "$(say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.1 SINCE $WORK/inc.0';")" 1296
    [ ! -e "$WORK/inc.x" ] || echo 'something was left behind'
    (($(stat -c %b "$WORK/inc.2/extents.trefoil") * 2 < $(stat -c %b "$WORK/inc.0/data.trefoil"))) || echo 'the increment has more than what changed'
    sleep 1
    stop_writer
    there=$(state_of_drill)
    read -r _ behind _ <<< "$(value 'SHOW MASTER STATUS')"
    value 'DELETE FROM s.acc'   # what must not have happened
    close_sessions
    end_server
    mkdir -p "$WORK/kept"
    # Neither without the one in between, nor by the increment alone.
    ! "$trefoil" restore "$WORK/inc.0" "$WORK/inc.2" "$WORK/no" > /dev/null 2>&1 || echo 'an increment was missing'
    ! "$trefoil" restore "$WORK/inc.2" "$WORK/no" > /dev/null 2>&1 || echo 'an increment is no backup by itself'
    rm -rf "$DATA/trefoil" "$WORK/no"
    "$trefoil" restore "$WORK/inc.0" "$WORK/inc.1" "$WORK/inc.2" "$DATA/trefoil" > "$WORK/restored.out" 2>&1 || cat "$WORK/restored.out"
    read -r BINLOG offset _ < "$DATA/trefoil/binlog_position"
    cp "$DATA/$BINLOG" "$WORK/kept/"
    (start_server "${SERVER_ARGS[@]}" --tc-heuristic-recover=ROLLBACK) > /dev/null 2>&1 7>&1 || true
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    [ "$(state_of_drill)" != "$there" ] || echo 'nothing was written behind the backup'
    expect "$(value 'SELECT SUM(v) = 0 AND COUNT(*) = 2 * (SELECT n FROM s.cnt) FROM s.acc')" 1
    go_forward "$offset" "--stop-position=$behind" "$WORK/kept/$BINLOG"
    expect "$(state_of_drill)" "$there"
    expect "$(value 'CHECK TABLE s.acc, s.cnt, s.still' | cut -f 4 | sort -u)" OK
    rm -rf "$WORK"/inc.* "$WORK/kept" "$WORK/restored.out"
}

# A table is dropped by mistake, when the binary log has come to another file some times since the backup and its increment. All is back as
# it was right before that, by the moment and by the place in the last file, and nothing of what came behind.
check_drill_before_drop() {
    local trefoil there moment place way n first offset files
    trefoil=$(build_program)
    tables_of_drill
    start_writer
    say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.0';"
    mkdir "$WORK/inc.frm"
    cp -r "$DATA/s" "$WORK/inc.frm/"
    value 'FLUSH BINARY LOGS'
    sleep 0.3
    say_to a "SET GLOBAL trefoil_backup_dir = '$WORK/inc.1 SINCE $WORK/inc.0';"
    for n in 1 2 3; do
        sleep 0.3
        value 'FLUSH BINARY LOGS'
    done
    sleep 0.3
    stop_writer
    there=$(state_of_drill)
    read -r BINLOG place _ <<< "$(value 'SHOW MASTER STATUS')"
    # The log tells whole seconds.
    sleep 1.1
    moment=$(date '+%F %T')
    value 'DROP TABLE s.acc; UPDATE s.cnt SET n = -1; FLUSH BINARY LOGS; CREATE TABLE s.later (id INT PRIMARY KEY) ENGINE=TREFOIL'
    close_sessions
    mkdir -p "$WORK/kept"
    cp "$DATA"/binlog.*[0-9] "$WORK/kept/"
    for way in "--stop-datetime=$moment" "--stop-position=$place"; do
        end_server
        rm -rf "$DATA/trefoil" "$DATA/s"
        "$trefoil" restore "$WORK/inc.0" "$WORK/inc.1" "$DATA/trefoil" > "$WORK/restored.out" 2>&1 || cat "$WORK/restored.out"
        cp -r "$WORK/inc.frm/s" "$DATA/s"
        read -r first offset _ < "$DATA/trefoil/binlog_position"
        (start_server "${SERVER_ARGS[@]}" --tc-heuristic-recover=ROLLBACK) > /dev/null 2>&1 7>&1 || true
        start_server "${SERVER_ARGS[@]}" 2> /dev/null
        [ "$(state_of_drill)" != "$there" ] || echo 'nothing was written behind the backup'
        # A moment ends all files, a place the last that is named.
        mapfile -t files < <(cd "$WORK/kept" && printf '%s\n' binlog.*[0-9] | awk -v first="$first" -v last="$BINLOG" -v way="$way" \
            '$0 >= first && ($0 <= last || way ~ /datetime/)')
        expect "$(printf '%s\n' "${files[@]}" | awk -v last="$BINLOG" '$0 <= last' | wc -l)" 4
        go_forward "$offset" "$way" "${files[@]/#/$WORK/kept/}"
        expect "$(state_of_drill)" "$there"
        expect "$(value 'SELECT SUM(v) = 0 AND COUNT(*) = 2 * (SELECT n FROM s.cnt) FROM s.acc')" 1
        expect "$(value "SHOW TABLES FROM s LIKE 'later'")" ''
        expect "$(value 'CHECK TABLE s.acc, s.cnt' | cut -f 4 | sort -u)" OK
    done
    rm -rf "$WORK"/inc.* "$WORK/kept" "$WORK/restored.out"
}

drills() {
    if ! fetch_tools; then
        echo 'skipped: drill, increments, drill_before_drop, dump_drill, which need the package mariadb-client'
        return
    fi
    check drill
    check increments
    check drill_before_drop
    check dump_drill
}
