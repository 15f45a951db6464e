# SPDX-License-Identifier: GPL-2.0-only
# A server whose tables are Bε-trees by default, and larger than its memory: changes all over them wait in buffers. Each
# transaction does the same to an InnoDB table: what statements answer, and what is there in the end and after kills, is the same.
# Sourced by mariadb.sh.

BUFFERED_ROWS=60000

# So many transactions of `seed`, by chance but each time the same; behind each of their statements what came of it.
buffered_load() {
    awk -v seed="$1" -v count="$2" -v rows="$BUFFERED_ROWS" '
        function r(n) { return int(rand() * n) }
        function row() { return sprintf("(%d, %d, %s, MD5(%d))", r(rows * 1.2), r(rows * 1.2), r(20) ? r(5000) : "NULL", r(1e6)) }
        function some(n,   all) { all = row(); while (--n > 0) all = all ", " row(); return all }
        function both(statement,   own) {
            own = statement; sub(/@T@/, "t", own); print own "; SELECT \"t\", ROW_COUNT();"
            sub(/@T@/, "i", statement); print statement "; SELECT \"i\", ROW_COUNT();"
        }
        function one(   at, n) {
            at = r(rows * 1.2); n = r(14)
            if (n == 0) return "INSERT IGNORE INTO @T@ VALUES " some(5)
            if (n == 1) return "INSERT INTO @T@ VALUES " some(3) " ON DUPLICATE KEY UPDATE k = k + 1, v = CONCAT(LEFT(v, 90), u)"
            if (n == 2) return "INSERT INTO @T@ VALUES " some(2) " ON DUPLICATE KEY UPDATE u = VALUES(u) + 1"
            if (n == 3) return "REPLACE INTO @T@ VALUES " some(4)
            if (n == 4) return "INSERT INTO @T@ VALUES " some(2)
            if (n == 5) return "UPDATE @T@ SET u = u + 1 WHERE id = " at
            if (n == 6) return "UPDATE IGNORE @T@ SET u = u + 2 WHERE id BETWEEN " at " AND " at + 9 " ORDER BY id"
            if (n == 7) return "UPDATE @T@ SET id = id + 1 WHERE id = " at
            if (n == 8) return "UPDATE @T@ SET k = " r(5000) ", v = REVERSE(v) WHERE k = " r(5000)
            if (n == 9) return "UPDATE @T@ SET k = (k * 31 + " r(99) ") % 5000 WHERE id % 1999 = " r(1999)
            if (n == 10) return "DELETE FROM @T@ WHERE k = " r(5000)
            if (n == 11) return "DELETE FROM @T@ WHERE u BETWEEN " at " AND " at + 2
            if (n == 12) return "DELETE FROM @T@ WHERE id = " at
            return "UPDATE @T@ SET v = CONCAT(MD5(k), v) WHERE id BETWEEN " at " AND " at + 3 " AND LENGTH(v) < 150"
        }
        BEGIN {
            srand(seed)
            for (n = 1; n <= count; n++) {
                print "BEGIN;"
                for (left = 1 + r(4); left > 0; left--) both(one())
                if (!r(8)) { print "SAVEPOINT s;"; both(one()); both(one()); print "ROLLBACK TO SAVEPOINT s;" }
                print r(8) ? "COMMIT;" : "ROLLBACK;"
            }
        }'
}

# Prints where a statement answered otherwise for TREFOIL than for InnoDB, and fails if there is no answer.
other_answers() {
    sed -n 's/^\(ERROR .*\) at line [0-9]*:/\1:/p; /^[ti]\t/p' "$1" |
        awk -F '\t' '$1 == "t" { t = said $2; said = ""; next }
            $1 == "i" { if (said $2 != t) print "InnoDB: " said $2 "\nTREFOIL: " t; said = ""; n++; next }
            { said = said $0 " " } END { if (!n) print "nothing was answered" }'
}

# What is in a table, read in the order of each key, with its rows and from the key alone, and a few pieces both ways.
buffered_rows() {
    local key from
    for key in PRIMARY u k kv ${2:-}; do
        printf 'SELECT "%s", COUNT(*), SUM(id), BIT_XOR(CRC32(CONCAT_WS(",", id, u, k, v))) FROM %s FORCE INDEX (%s) WHERE id + u IS NOT NULL;' \
            "$key" "$1" "$key"
    done
    printf 'SELECT COUNT(*), SUM(id), SUM(k) FROM %s FORCE INDEX (k) WHERE k >= 0 OR k IS NULL;' "$1"
    printf 'SELECT COUNT(*), SUM(id), SUM(u) FROM %s FORCE INDEX (u) WHERE u > -9;' "$1"
    for from in 0 777 4321; do
        printf 'SELECT id, k FROM %s FORCE INDEX (k) WHERE k >= %d ORDER BY k, id LIMIT 20;' "$1" "$from"
        printf 'SELECT id, k FROM %s FORCE INDEX (k) WHERE k < %d ORDER BY k DESC, id DESC LIMIT 20;' "$1" "$from"
        printf 'SELECT * FROM %s WHERE u BETWEEN %d AND %d ORDER BY u;' "$1" "$((from * 7))" "$((from * 7 + 20))"
    done
}

# Prints how the two differ; the second argument is a key that both have beside the others.
differ_in_rows() {
    diff <(buffered_rows i "${1:-}" | client --force -N -B bu 2>&1) <(buffered_rows t "${1:-}" | client --force -N -B bu 2>&1) | head -20
}

buffered_messages() { value "SHOW GLOBAL STATUS LIKE 'Trefoil_buffer_message_bytes'" | cut -f 2; }

buffered_tables() {
    local n table columns='(id INT PRIMARY KEY, u INT NOT NULL, k INT, v VARCHAR(200), UNIQUE KEY u (u), KEY k (k), KEY kv (v(30), k))'
    value "CREATE OR REPLACE DATABASE bu CHARACTER SET latin1; USE bu; CREATE TABLE t $columns ENGINE=TREFOIL;
        CREATE TABLE i $columns ENGINE=InnoDB"
    # In pieces, since all at once would be one transaction larger than memory.
    for ((n = 0; n < BUFFERED_ROWS; n += 3000)); do
        printf 'INSERT INTO @T@ SELECT seq, seq * 7 %% %d, seq * 7919 %% 5000, REPEAT(MD5(seq), 5) FROM seq_%d_to_%d;\n' \
            "$BUFFERED_ROWS" "$((n + 1))" "$((n + 3000))"
    done > "$WORK/rows"
    for table in i t; do sed "s/@T@/$table/" "$WORK/rows" | client bu; done
    case $(value 'SHOW CREATE TABLE bu.t') in *STRUCTURE*betree*) ;; *) echo 'the default is not betree' ;; esac
    [ "$(value "SELECT SUM(LENGTH(v) + 8) > @@trefoil_buffer_size FROM bu.t")" = 1 ] ||
        echo 'the table fits into memory'
}

check_buffered() {
    local messages=0 n load
    # A server that is started here would hold their pipes.
    close_sessions
    : > "$WORK/was"
    buffered_tables
    # One moment of both, from before all that follows.
    client -N -B --unbuffered bu < <(echo 'START TRANSACTION WITH CONSISTENT SNAPSHOT; DO 1;'; buffered_rows i; echo 'SELECT "as it was";'
        until [ -e "$WORK/written" ]; do sleep 0.1; done; buffered_rows t) > "$WORK/was" 2>&1 &
    local snapshot=$!
    for ((n = 0; n < 300; n++)); do
        if grep -q 'as it was' "$WORK/was"; then break; fi
        sleep 0.1
    done
    buffered_load 1 250 | client --default-character-set=latin1 --force -N -B --unbuffered bu > "$WORK/answers" 2>&1 || true
    other_answers "$WORK/answers" | head -20
    messages=$(buffered_messages)
    touch "$WORK/written"
    wait "$snapshot"
    diff <(sed '/as it was/,$d' "$WORK/was") <(sed '1,/as it was/d' "$WORK/was") | head -20
    differ_in_rows
    # A key is added beside the writer.
    buffered_load 2 200 | client --default-character-set=latin1 --force -N -B --unbuffered bu > "$WORK/answers" 2>&1 &
    load=$!
    value 'ALTER TABLE bu.t ADD KEY k2 (u, k), ALGORITHM=INPLACE, LOCK=NONE' || echo 'no key beside the writer'
    wait "$load" || true
    value 'ALTER TABLE bu.i ADD KEY k2 (u, k)'
    other_answers "$WORK/answers" | head -20
    differ_in_rows k2
    for n in 3 4; do
        buffered_load "$n" 5000 | client --default-character-set=latin1 --skip-reconnect --force -N -B --unbuffered bu > "$WORK/answers" 2>&1 &
        load=$!
        sleep "$((n - 1)).5"
        [ "$(buffered_messages)" -le "$messages" ] || messages=$(buffered_messages)
        kill_server
        wait "$load" || true
        start_server "${SERVER_ARGS[@]}" 2> /dev/null
    expect "$(value 'CHECK TABLE bu.t EXTENDED' | cut -f 4 | head -5)" OK
        # Until the server was gone.
        sed '/^ERROR 20/,$d' "$WORK/answers" > "$WORK/until"
        other_answers "$WORK/until" | head -20
        differ_in_rows k2
    done
    [ "$messages" -gt 0 ] || echo 'no message ever waited'
    value 'DROP DATABASE bu'
}

# In a server of its own arguments.
buffers() {
    restart_with --innodb=ON --log-bin=binlog --binlog-format=ROW --trefoil-default-structure=betree --trefoil-buffer-size=8M \
        --trefoil-log-capacity=8M --trefoil-flush-log-at-commit=2 --innodb-flush-log-at-trx-commit=2 --innodb-buffer-pool-size=64M
    check buffered
}
