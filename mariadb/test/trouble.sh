# SPDX-License-Identifier: GPL-2.0-only
# What a server does when the disk is full, a write fails, files are damaged, missing or too new, and when the engine is taken away. Sourced by
# smoke.sh.

# The engine's directory is a file system of so many MiB; the server runs with an empty database.
on_small_disk() {
    end_server
    mv "$DATA/trefoil" "$WORK/trefoil.kept"
    mkdir "$DATA/trefoil"
    mount -t tmpfs -o "size=$1m" none "$DATA/trefoil"
    start_server "${SERVER_ARGS[@]}" --trefoil-buffer-size=16M --trefoil-log-capacity=4M --trefoil-disk-reserve=8M 2> /dev/null
}

off_small_disk() {
    client -e "DROP DATABASE fd"
    end_server
    umount "$DATA/trefoil"
    rmdir "$DATA/trefoil"
    mv "$WORK/trefoil.kept" "$DATA/trefoil"
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
}

# Inserts until a statement fails; prints what it says, and whether it was a COMMIT. $1: before each row, $2: behind it.
until_full() {
    local n
    for ((n = 0; n < 60; n++)); do
        printf '%s INSERT INTO t (b) SELECT RANDOM_BYTES(1000) FROM seq_1_to_1000; %s\n' "$1" "$2"
    done | client fd 2>&1 | grep -m 1 ERROR
}

# Lines of the error log with this in them.
lines_with() { grep -c "$1" "$ERRORS" || true; }

check_full_disk_statements() {
    local rows before began=$SECONDS full='TREFOIL: .*disk full: .*make room on the disk of the data directory'
    before=$(lines_with "$full")
    client -e 'CREATE DATABASE fd; CREATE TABLE fd.t (id INT PRIMARY KEY AUTO_INCREMENT, b VARBINARY(1000)) ENGINE=TREFOIL'
    expect_error "$(until_full '' '')" 1021
    rows=$(value 'SELECT COUNT(*) FROM fd.t')
    [ "$rows" -gt 1000 ] && [ $((rows % 1000)) = 0 ] || echo "$rows rows: a statement is there by half"
    expect_error "$(value 'UPDATE fd.t SET b = RANDOM_BYTES(1000)' 2>&1)" 1021
    expect_error "$(until_full 'BEGIN;' 'COMMIT;')" 1021
    # Numbers of AUTO_INCREMENT, kept on disk ahead of their use, are refused for the same reason as rows.
    expect "$(seq 40 | sed 's/.*/INSERT INTO t (b) SELECT RANDOM_BYTES(1000) FROM seq_1_to_1000;/' | client --force fd 2>&1 |
        grep -o '^ERROR [0-9]*' | sort -u)" 'ERROR 1021'
    rows=$(value 'SELECT COUNT(*) FROM fd.t')
    [ $((rows % 1000)) = 0 ] || echo "$rows rows: a transaction is there by half"
    expect "$(value 'CHECK TABLE fd.t' | cut -f 4)" OK
    # The disk gets larger.
    mount -o remount,size=400m "$DATA/trefoil"
    client fd -e 'INSERT INTO t (b) SELECT RANDOM_BYTES(1000) FROM seq_1_to_1000' || echo 'no row behind that'
    expect "$(value 'SELECT COUNT(*) FROM fd.t')" "$((rows + 1000))"
    # However many were refused.
    before=$(($(lines_with "$full") - before))
    [ "$before" -ge 1 ] && [ "$before" -le $((1 + (SECONDS - began) / 60)) ] || echo "the error log has $before lines of it"
}

# A row comes in again before long, and the table is whole. $1: behind what.
expect_room() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        value 'INSERT INTO fd.t (b) VALUES (RANDOM_BYTES(1000))' 2> /dev/null && break
        sleep 0.1
    done
    [ "$tries" -lt 100 ] || echo "no room behind $1"
    expect "$(value 'CHECK TABLE fd.t' | cut -f 4)" OK
}

# Space that a drop gives back is room again.
check_full_disk_drop() {
    client -e 'CREATE DATABASE fd; USE fd; CREATE TABLE fd.t (id INT PRIMARY KEY AUTO_INCREMENT, b VARBINARY(1000)) ENGINE=TREFOIL;
        CREATE TABLE fd.old (id INT PRIMARY KEY, b VARBINARY(1000)) ENGINE=TREFOIL;
        INSERT INTO fd.old SELECT seq, RANDOM_BYTES(1000) FROM seq_1_to_8000'
    expect_error "$(until_full '' '')" 1021
    value 'DROP TABLE fd.old' || echo 'nothing can be dropped'
    expect_room 'a drop'
}

# Rows can be deleted, some at a time, though not one comes in; then there is room again.
check_full_disk_delete() {
    local rows
    client -e 'CREATE DATABASE fd; CREATE TABLE fd.t (id INT PRIMARY KEY AUTO_INCREMENT, b VARBINARY(1000), KEY (b) STRUCTURE=betree)
        ENGINE=TREFOIL STRUCTURE=betree'
    expect_error "$(until_full '' '')" 1021
    rows=$(value 'SELECT COUNT(*) FROM fd.t')
    expect "$(for ((n = 0; n < rows; n += 100)); do
        echo 'DELETE FROM t ORDER BY b LIMIT 100;'
    done | client --force fd 2>&1)" ''
    expect "$(value 'SELECT COUNT(*) FROM fd.t')" 0
    expect_room 'the deletes'
}

full_disk() {
    local name
    mkdir "$WORK/mount"
    if ! mount -t tmpfs none "$WORK/mount" 2> /dev/null; then
        echo 'skipped: full_disk, which mounts a tmpfs'
        return
    fi
    umount "$WORK/mount"
    for name in statements drop delete; do
        on_small_disk 64
        check "full_disk_$name"
        off_small_disk
    done
}

# A write of the background fails, of which no statement hears: what a commit does not wait for is written within a second, behind
# the place in the log up to which files may go. Those of the server are shorter.
check_writes_refused() {
    local n said line='TREFOIL: writes are refused from now on: write .*/trefoil/wal/.*os error 27.* reading goes on.* restart the server'
    close_sessions
    end_server
    # Of this signal the server would end; without it the write is an error.
    trap '' XFSZ
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    trap - XFSZ
    : > "$ERRORS"
    client s -e "SET sql_log_bin = 0; CREATE TABLE kept (id INT PRIMARY KEY, b VARBINARY(1000)) ENGINE=TREFOIL;
        INSERT INTO kept SELECT seq, RANDOM_BYTES(500) FROM seq_1_to_1000; INSERT INTO kept SELECT seq, RANDOM_BYTES(500) FROM seq_1001_to_2000;
        INSERT INTO kept SELECT seq, RANDOM_BYTES(500) FROM seq_2001_to_3000; INSERT INTO kept SELECT seq, RANDOM_BYTES(500) FROM seq_3001_to_4000"
    open_session a
    say_to a 'BEGIN;' 'INSERT INTO t VALUES (8, 8);'
    prlimit --pid "$SERVER" --fsize=$((1 << 20)):
    client s -e 'SET sql_log_bin = 0; SET GLOBAL trefoil_flush_log_at_commit = 0; INSERT INTO kept VALUES (0, 0)' || echo 'a statement met it'
    for ((n = 0; n < 100 && $(lines_with "$line") == 0; n++)); do sleep 0.1; done
    expect "$(lines_with "$line")" 1
    expect "$(value 'SELECT COUNT(*) FROM s.kept')" 4001
    for n in 'COMMIT' 'INSERT INTO t VALUES (9, 9)' "UPDATE kept SET b = 'newer'" 'CREATE TABLE more (a INT) ENGINE=TREFOIL' \
        'ALTER TABLE kept ADD KEY (b)' 'TRUNCATE TABLE kept' 'RENAME TABLE kept TO moved' 'OPTIMIZE TABLE kept' 'DROP TABLE kept'; do
        said=$(say_to a "$n;")
        case $said in *'writes are refused until the server is restarted'*'/trefoil/wal/'*) ;; *) printf '%s: %s\n' "$n" "$said" ;; esac
    done
    value 'CREATE TABLE s.other (a INT) ENGINE=MyISAM; INSERT INTO s.other VALUES (1)' || echo "another engine's tables are not written"
    expect "$(lines_with 'TREFOIL: writes are refused from now on')" 1
    close_sessions
    end_server
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    expect "$(value 'SELECT COUNT(*) FROM s.kept WHERE id > 0')" 4000
    expect "$(value 'CHECK TABLE s.kept' | cut -f 4)" OK
    value 'INSERT INTO s.t VALUES (9, 9); DROP TABLE s.kept' || echo 'it does not write again'
}

# Taken away beside transactions, the engine goes when they have ended; then it is there again with its tables.
check_uninstall() {
    local tries
    say_to a 'BEGIN;' 'INSERT INTO t VALUES (4, 4);' 'HANDLER t OPEN;' > /dev/null
    expect "$(say_to b "UNINSTALL PLUGIN trefoil;" 'SHOW WARNINGS;' | grep -o 'busy')" busy
    expect "$(say_to a 'UPDATE t SET v = 5 WHERE id = 4;' 'HANDLER t CLOSE;' 'COMMIT;' 'SELECT v FROM t WHERE id = 4;')" 5
    close_sessions
    value 'FLUSH TABLES'
    for ((tries = 0; tries < 100; tries++)); do
        value "INSTALL PLUGIN trefoil SONAME 'ha_trefoil'" 2> /dev/null && break
        sleep 0.1
    done
    [ "$tries" -lt 100 ] || value "INSTALL PLUGIN trefoil SONAME 'ha_trefoil'"
    expect "$(value 'SELECT GROUP_CONCAT(v ORDER BY id) FROM s.t')" 1,2,3,5
    value 'INSERT INTO s.t VALUES (5, 6)'
    expect "$(value 'CHECK TABLE s.t' | cut -f 4)" OK
    value 'UNINSTALL PLUGIN trefoil' 2> /dev/null
    # The engine goes with the last table that the server keeps open.
    value 'FLUSH TABLES'
    for ((tries = 0; tries < 100; tries++)); do
        [ "$(value 'SELECT COUNT(*) FROM information_schema.TREFOIL_INDEXES')" != 0 ] || break
        sleep 0.1
    done
    [ "$tries" -lt 100 ] || echo 'the tables about an engine that is gone have rows'
    restart_with "${SERVER_ARGS[@]}"
    expect "$(value 'SELECT COUNT(*) FROM s.t')" 5
}

# all_in_the_file TEXT COUNT: until the data file has the text so many times. A backup begins with a checkpoint; what one statement
# has put by the thousand comes to it when its index has taken it in, and is in the log till then.
all_in_the_file() {
    local tries found
    for ((tries = 0; tries < 100; tries++)); do
        value "SET GLOBAL trefoil_backup_dir = '$WORK/aside'"
        found=$(grep -ao "$1" "$WORK/aside/data.trefoil" | wc -l)
        rm -r "$WORK/aside"
        [ "$found" -lt "$2" ] || return 0
        sleep 0.1
    done
    echo "only $found of $2 are there"
}

# Each five-hundredth place of the data file with this text, wherever its block is.
damage_some() {
    local at damaged=0
    while IFS=: read -r at _; do
        printf 'damage' | dd of="$DATA/trefoil/data.trefoil" bs=1 seek="$at" conv=notrunc status=none
        damaged=$((damaged + 1))
    done < <(grep -abo "$1" "$DATA/trefoil/data.trefoil" | awk 'NR % 500 == 250')
    [ "$damaged" -ge 5 ] || echo "only $damaged places are damaged"
}

# Blocks of a table are damaged while the server is down: CHECK TABLE says where, others go on.
check_damaged_table() {
    local at
    close_sessions
    client s -e "CREATE TABLE broken (id INT PRIMARY KEY, b VARBINARY(1000)) ENGINE=TREFOIL COMPRESSION=none"
    for ((at = 1; at < 10000; at += 500)); do
        echo "INSERT INTO broken SELECT seq, CONCAT('to be broken', RANDOM_BYTES(980)) FROM seq_${at}_to_$((at + 499));"
    done | client s
    all_in_the_file 'to be broken' 10000
    end_server
    damage_some 'to be broken'
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    case $(value 'CHECK TABLE s.broken') in *broken*orrupt*) ;; *) echo "CHECK TABLE says: $(value 'CHECK TABLE s.broken' | head -5)" ;; esac
    case $(value 'SELECT SUM(LENGTH(b)) FROM s.broken' 2>&1) in *'ERROR'*) ;; *) echo 'what is damaged is read' ;; esac
    grep -q 'TREFOIL: damage: .*CHECK TABLE says where; REPAIR TABLE' "$ERRORS" || echo 'no remedy of damage in the error log'
    expect "$(value 'REPAIR TABLE s.broken' | tail -n 1 | cut -f 4)" Corrupt
    expect "$(value 'SELECT COUNT(*) FROM s.t')" 3
    value 'INSERT INTO s.t VALUES (9, 9); DROP TABLE s.broken' || echo 'the others do not go on'
}

# What a query by the key answers, and whether it takes the key.
by_key() { value "SELECT COUNT(*), SUM(n) FROM s.broken FORCE INDEX (v) WHERE v BETWEEN '0' AND '~'" 2>&1 | grep -o 'ERROR [0-9]*\|^[0-9].*' | xargs; }
plan_by_key() { value "EXPLAIN SELECT COUNT(*), SUM(n) FROM s.broken FORCE INDEX (v) WHERE v BETWEEN '0' AND '~'" | cut -f 6; }
state_of_key() {
    value "SELECT i.STATE, s.VARIABLE_VALUE FROM information_schema.TREFOIL_INDEXES i, information_schema.GLOBAL_STATUS s
        WHERE i.TABLE_NAME = 'broken' AND i.INDEX_NAME = 'v' AND s.VARIABLE_NAME = 'TREFOIL_INDEXES_DAMAGED'" | xargs
}

# Blocks of a key, whose values are computed and nowhere else, are damaged while the server is down. Once somebody has met them it is set
# aside, queries and changes go on without it, and REPAIR TABLE makes it anew.
damaged_key() {
    local structure=$1 at said
    client s -e "CREATE TABLE broken (id INT PRIMARY KEY, n INT, v VARBINARY(40) AS (CONCAT(REVERSE(LPAD(id, 6, '0')), ' to be broken')) VIRTUAL,
        KEY v (v) STRUCTURE=$structure COMPRESSION=none) ENGINE=TREFOIL"
    for ((at = 1; at < 10000; at += 500)); do
        echo "INSERT INTO broken (id, n) SELECT seq, 1 FROM seq_${at}_to_$((at + 499));"
    done | client s
    all_in_the_file ' to be broken' 10000
    end_server
    damage_some ' to be broken'
    : > "$ERRORS"
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    said=$(by_key)
    case $said in 'ERROR 1034' | '10000 10000') ;; *) echo "the first query says $said" ;; esac
    for ((at = 0; at < 100; at++)); do
        [ "$(state_of_key)" != 'set aside 1' ] || break
        sleep 0.1
    done
    expect "$(state_of_key)" 'set aside 1'
    expect "$(by_key)" '10000 10000'
    client s -e 'INSERT INTO broken (id, n) VALUES (20000, 1); UPDATE broken SET n = 2 WHERE id = 7; UPDATE broken SET id = 20001 WHERE id = 8;
        DELETE FROM broken WHERE id = 9' || echo 'rows are not changed'
    expect "$(by_key)" '10000 10001'
    expect "$(value 'CHECK TABLE s.broken' | tail -n 1 | cut -f 4)" Corrupt
    at=$(lines_with 'TREFOIL: .*key v is damaged, is not used any more; REPAIR TABLE')
    [ "$at" = 1 ] || echo "the error log has $at lines of it"
    restart_with "${SERVER_ARGS[@]}"
    expect "$(state_of_key) $(by_key)" 'set aside 1 10000 10001'
    expect "$(value 'REPAIR TABLE s.broken' | cut -f 3,4 | xargs)" 'Warning key v was made anew from the rows status OK'
    expect "$(state_of_key) $(by_key) $(plan_by_key)" 'sound 0 10000 10001 v'
    expect "$(value 'CHECK TABLE s.broken' | cut -f 4)" OK
    expect "$(value 'REPAIR TABLE s.broken' | cut -f 3,4 | xargs)" 'status OK'
    value 'DROP TABLE s.broken'
}

check_damaged_key() {
    local structure
    close_sessions
    for structure in btree betree lsm; do
        damaged_key "$structure" > "$WORK/of_key"
        sed "s/^/$structure: /" "$WORK/of_key"
    done
}

# Settings of a table without a primary key are those of its rows: uncompressed they are found in the file as they are.
check_hidden_settings() {
    close_sessions
    client s -e "CREATE TABLE plain (b VARCHAR(1000)) ENGINE=TREFOIL COMPRESSION=none;
        INSERT INTO plain SELECT REPEAT('as it is', 50) FROM seq_1_to_1000"
    all_in_the_file 'as it is' 50000
    value 'DROP TABLE s.plain'
}

# The checksum of a header behind its format.
crc32c() {
    perl -0777 -ne 'my $crc = 0xFFFFFFFF;
        for (unpack "C*", substr($_, 0, 4092)) { $crc ^= $_; $crc = $crc & 1 ? ($crc >> 1) ^ 0x82F63B78 : $crc >> 1 for 1 .. 8 }
        print pack "V", $crc ^ 0xFFFFFFFF' "$1"
}

damage_newer() {
    local header=$DATA/trefoil/TREFOIL
    printf '\xe7\x03\0\0' | dd of="$header" bs=1 seek=16 conv=notrunc status=none
    crc32c "$header" | dd of="$header" bs=1 seek=4092 conv=notrunc status=none
}
damage_header() { printf 'damage' | dd of="$DATA/trefoil/TREFOIL" bs=1 seek=100 conv=notrunc status=none; }
damage_no_data() { rm "$DATA/trefoil/data.trefoil"; }
damage_no_header() { rm "$DATA/trefoil/TREFOIL"; }
damage_manifest() { for file in "$DATA"/trefoil/MANIFEST-*; do printf 'damage' | dd of="$file" conv=notrunc status=none; done; }
# A file is in the way.
damage_no_directory() { rm -r "$DATA/trefoil"; : > "$DATA/trefoil"; }

# A database that cannot be opened leaves the server running, and the error log says why.
started_without() {
    local what=$1 why=$2
    end_server
    cp -a "$DATA/trefoil" "$WORK/sound"
    "damage_$what"
    : > "$ERRORS"
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    if [ "$(value "SELECT COUNT(*) FROM information_schema.ENGINES WHERE engine = 'TREFOIL'")" = 0 ] &&
        [ "$(value 'SELECT COUNT(*) FROM information_schema.TREFOIL_TRX')" = 0 ] &&
        grep -q "TREFOIL: the engine does not start: .*$why" "$ERRORS" &&
        grep -q 'TREFOIL: the server goes on without it.*restart the server' "$ERRORS"; then
        verdict "started_without, $what" ok
    else
        grep TREFOIL "$ERRORS" || true
        verdict "started_without, $what" FAILED
    fi
    end_server
    rm -rf "$DATA/trefoil"
    mv "$WORK/sound" "$DATA/trefoil"
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    [ "$(value 'SELECT COUNT(*) FROM s.t')" = 3 ] || verdict "started again behind $what" FAILED
}

trouble() {
    full_disk
    if command -v prlimit > /dev/null; then check writes_refused; else echo 'skipped: writes_refused, which needs prlimit (util-linux)'; fi
    check uninstall
    check foreign_any_case
    check damaged_table
    check damaged_key
    check hidden_settings
    client < "$HERE/test/sessions.sql"
    started_without newer 'newer\|format'
    started_without header 'checksum'
    started_without manifest 'corruption in'
    started_without no_data 'data.trefoil'
    started_without no_header 'TREFOIL is missing'
    started_without no_directory 'trefoil'
}
