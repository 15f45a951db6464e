# SPDX-License-Identifier: GPL-2.0-only
# Tables changed beside writers, and servers killed while they change tables. Sourced by smoke.sh.

# Writers of other sessions know nothing of the index: what they write is in it. Their statements do not wait.
check_index_beside_writers() {
    local n pids=()
    client s -e 'CREATE TABLE s.b (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARBINARY(40)) ENGINE=TREFOIL;
        INSERT INTO s.b (a, b) SELECT seq, MD5(seq) FROM seq_1_to_60000'
    for n in 1 2; do
        for ((i = 0; i < 2000; i++)); do
            printf 'INSERT INTO b (a, b) VALUES (%d, UUID()); UPDATE b SET a = a + 1000000 WHERE id = %d;' $((i % 50)) $((i * 17 + n))
            printf 'DELETE FROM b WHERE id = %d;\n' $((i * 13 + n))
        done | client --force -N -B s > "$WORK/writer.$n" 2>&1 &
        pids+=($!)
    done
    value 'ALTER TABLE s.b ADD KEY ka (a), ADD UNIQUE KEY kb (b), ALGORITHM=INPLACE, LOCK=NONE' || echo 'it was not added'
    value 'ALTER TABLE s.b RENAME INDEX ka TO k2, ADD COLUMN c INT DEFAULT 5 AFTER id, ALGORITHM=INSTANT, LOCK=NONE'
    value 'ALTER TABLE s.b DROP INDEX k2, ADD INDEX k2 (a) COMPRESSION=zstd, ALGORITHM=INPLACE, LOCK=NONE'
    wait "${pids[@]}"
    expect "$(cat "$WORK"/writer.*)" ''
    expect "$(value 'CHECK TABLE s.b' | cut -f 4)" OK
    expect "$(value 'SELECT COUNT(*) FROM s.b FORCE INDEX (k2) WHERE a > 0 OR a <= 0')" "$(value 'SELECT COUNT(*) FROM s.b FORCE INDEX (PRIMARY) WHERE c = 5')"
    expect "$(value 'SELECT COUNT(*) FROM s.b FORCE INDEX (kb) WHERE b IS NOT NULL')" "$(value 'SELECT COUNT(*) FROM s.b')"
}

# A build that finds a value twice, or is killed, leaves nothing behind.
check_build_that_fails() {
    local id= tries
    client s -e 'CREATE TABLE s.b (id INT PRIMARY KEY, a INT, b INT) ENGINE=TREFOIL;
        INSERT INTO s.b SELECT seq, seq, seq % 40000 FROM seq_1_to_60000'
    expect_error "$(value 'ALTER TABLE s.b ADD UNIQUE KEY kb (b), ADD KEY (a), LOCK=NONE' 2>&1)" 1062
    say_to b 'BEGIN;' 'INSERT INTO b VALUES (70000, 1, 1);'
    send a 'ALTER TABLE b ADD KEY ka (a), ALGORITHM=INPLACE, LOCK=NONE;'
    for ((tries = 0; tries < 100 && ${#id} == 0; tries++)); do
        sleep 0.1
        id=$(value "SELECT id FROM information_schema.PROCESSLIST WHERE info LIKE 'ALTER TABLE b%'")
    done
    value "KILL QUERY $id"
    expect_error "$(until_done a)" 1317
    say_to b 'COMMIT;'
    expect "$(value 'SHOW INDEX FROM s.b' | cut -f 3)" PRIMARY
    expect "$(value 'CHECK TABLE s.b' | cut -f 4)" OK
    value 'ALTER TABLE s.b ADD KEY ka (a), ALGORITHM=INPLACE, LOCK=NONE'
    expect "$(value 'SELECT COUNT(*) FROM s.b FORCE INDEX (ka) WHERE a > 0')" 60001
}

# Points at which the server is killed (`mariadb/capi/src/crash.rs`), and what it is doing then.
CHANGES=(
    'alter.build alter.built alter.commit alter.committed: ALTER TABLE c ADD KEY kb (b), ADD UNIQUE KEY ku (u)'
    'alter.built alter.commit alter.committed: ALTER TABLE c DROP KEY ka, ADD KEY ka (a) COMPRESSION=zstd, ADD KEY kb (b)'
    'alter.rows alter.made alter.commit rows.there rows.switched rows.recorded alter.committed: ALTER TABLE c STRUCTURE=lsm COMPRESSION=zstd'
    'alter.built rows.switched rows.recorded alter.committed: ALTER TABLE c STRUCTURE=lsm COMPRESSION=zstd, ADD KEY kb (b), DROP KEY ka, ADD UNIQUE KEY ka (u)'
    'rows.switched rows.recorded: ALTER TABLE c STRUCTURE=btree COMPRESSION=zstd, ADD KEY kb (b), DROP KEY ka, ADD KEY ka (a) STRUCTURE=lsm'
    'rows.switched alter.committed rename renamed: ALTER TABLE c STRUCTURE=lsm COMPRESSION=zstd, RENAME TO c2'
    'alter.commit alter.committed: ALTER TABLE c ADD COLUMN x INT DEFAULT 5 AFTER id, DROP COLUMN b'
    'alter.committed rename renamed: ALTER TABLE c RENAME COLUMN b TO x, RENAME INDEX ka TO kx, RENAME TO c2'
    'create created rename renamed rename:2 renamed:2 drop dropped: ALTER TABLE c MODIFY a BIGINT, ADD KEY kb (b)'
    'rename renamed: ALTER TABLE c MODIFY b BIGINT /* of a parent */'
    'rename renamed: RENAME TABLE c TO c2'
    'truncate truncated: TRUNCATE TABLE c'
    'drop dropped: DROP TABLE c'
    'create created: CREATE TABLE c2 ENGINE=TREFOIL AS SELECT * FROM c'
)

# What is in the engine is what the definition says: each key's settings and columns are those of before, or of behind.
check_same_in_engine() {
    local says has
    says=$(value "SHOW CREATE TABLE kd.$1" | grep -c 'COMPRESSION`=zstd' || true)
    has=$(value "SELECT GROUP_CONCAT(DISTINCT compression = 'zstd') FROM information_schema.TREFOIL_INDEXES
        WHERE table_schema = 'kd' AND table_name = '$1'")
    [ "$says" = "$has" ] || echo "SHOW CREATE TABLE $1 says $says of COMPRESSION=zstd, the engine has $has"
    says=$(value "SHOW INDEX FROM kd.$1" | cut -f 3 | sort -u | paste -sd ' ')
    has=$(value "SELECT index_name FROM information_schema.TREFOIL_INDEXES WHERE table_schema = 'kd' AND table_name = '$1'" | sort | paste -sd ' ')
    [ "$says" = "$has" ] || echo "SHOW INDEX FROM $1 says $says, the engine has $has"
}

# Definitions are old or new, nothing is lost, and nothing is left behind.
check_after_change() {
    local statement=$1 tables table count
    tables=$(value 'SHOW TABLES FROM kd' | paste -sd ' ')
    case $statement in
        CREATE*) [[ $tables == c || $tables == 'c c2' ]] || echo "there is $tables" ;;
        DROP*) [[ $tables == c || $tables == '' ]] || echo "there is $tables" ;;
        *c2) [[ $tables == c || $tables == c2 ]] || echo "there is $tables" ;;
        *) [ "$tables" = c ] || echo "there is $tables" ;;
    esac
    for table in $tables; do
        count=$(value "SELECT COUNT(*) FROM kd.$table") || { echo "$table does not open"; continue; }
        [ "$count" = 500 ] || [[ "$statement $count" == 'TRUNCATE TABLE c 0' ]] || echo "$table has $count rows"
        [ "$(value "CHECK TABLE kd.$table" | cut -f 4)" = OK ] || echo "$table is not sound"
        [[ $statement != *STRUCTURE=* ]] || check_same_in_engine "$table"
        value "INSERT INTO kd.$table () VALUES ()" || echo "$table takes no row"
    done
    [ -z "$(find "$DATA/kd" -name '#sql*')" ] || echo "left behind: $(find "$DATA/kd" -name '#sql*')"
    # Nor in the engine.
    value "SELECT table_name FROM information_schema.TREFOIL_INDEXES WHERE table_schema = 'kd' AND table_name LIKE '#sql%'"
    grep -a 'TREFOIL:' "$ERRORS" || true
    value 'DROP DATABASE IF EXISTS kd_child; DROP DATABASE kd; CREATE DATABASE kd; CREATE TABLE kd.c (a INT) ENGINE=TREFOIL; CREATE TABLE kd.c2 (a INT) ENGINE=TREFOIL' ||
        echo 'a name is taken'
}

# True if the server got to the point.
killed_within() {
    client <<< 'DROP DATABASE IF EXISTS kd_child; DROP DATABASE IF EXISTS kd; CREATE DATABASE kd; USE kd;
        CREATE TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b INT, u INT, KEY ka (a)) ENGINE=TREFOIL;
        INSERT INTO c (a, b, u) SELECT seq % 10, seq, seq FROM seq_1_to_500'
    [[ $2 != *parent* ]] || client -e 'CREATE DATABASE kd_child; CREATE TABLE kd_child.d (id INT REFERENCES kd.c (id)) ENGINE=TREFOIL'
    [[ $1 == *:* ]] || set -- "$1:1" "$2"
    kill_at "$1"
    client kd -e "$2" > "$WORK/said" 2>&1 || true
    # The client hears of the end at once.
    if client -e 'DO 1' > /dev/null 2>&1; then
        rm -f "$WORK/crash"
        end_server
        start_server "${SERVER_ARGS[@]}" 2> /dev/null
        return 1
    fi
    wait "$SERVER" 2> /dev/null || true
    : > "$ERRORS"
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
}

# Points are known to builds with debug assertions alone: others skip this. $1: how often at each.
killed_in_changes() {
    local change statement point round points=0 why=$WORK/why
    for change in "${CHANGES[@]}"; do
        statement=${change#*: }
        for point in $(for ((round = 0; round < ${1:-1}; round++)); do printf '%s ' "${change%%: *}"; done); do
            : > "$why"
            if killed_within "$point" "$statement"; then
                check_after_change "$statement" > "$why" 2>&1
                points=$((points + 1))
            elif [ "$points" = 0 ]; then
                echo 'skipped: servers killed within changes, build with TREFOIL_PROFILE=sim'
                return
            else
                echo "it did not get to $point: $(cat "$WORK/said")" > "$why"
            fi
            [ -s "$why" ] || continue
            cat "$why"
            verdict "killed_in_changes, at $point of $statement" FAILED
        done
    done
    verdict "killed_in_changes, $points times" ok
}
