# SPDX-License-Identifier: GPL-2.0-only
# What a statement is told: which error, and at once; what KILL does; options however they are written; how many rows the
# optimiser takes a range for; one moment for all engines. Sourced by checks.sh.

# Errors come at the statement that meets them, with the number that applications look for, and COMMIT behind them has nothing left
# to say. Run with InnoDB and TREFOIL: what of the transaction is left is the same.
sessions_errors() {
    local statement
    say_to a 'ALTER TABLE t ADD UNIQUE KEY u (v);' 'SET innodb_snapshot_isolation = ON, trefoil_snapshot_isolation = ON;'
    for statement in 'UPDATE t SET v = v + 1 WHERE id = 3' 'DELETE FROM t WHERE id = 3' 'SELECT v FROM t WHERE id = 3 FOR UPDATE' \
        'SELECT v FROM t WHERE id = 3 LOCK IN SHARE MODE' 'UPDATE t SET k = 0 WHERE v = 103' 'REPLACE INTO t VALUES (3, 0, 0)' \
        'INSERT INTO t VALUES (3, 0, 0) ON DUPLICATE KEY UPDATE v = 0' 'INSERT INTO t VALUES (2, 0, 0)' 'INSERT INTO t VALUES (99, 0, 5)'; do
        say_to a 'BEGIN;' 'SELECT COUNT(*) FROM t;' 'UPDATE t SET k = -1 WHERE id = 1;'
        say_to b 'UPDATE t SET v = 103 WHERE id = 3;'
        # A line behind each statement, so that its error is seen at it.
        say_to a "$statement;" 'SELECT @@in_transaction;' 'SELECT k FROM t WHERE id = 1;' 'COMMIT;' 'SELECT k, COUNT(*) FROM t WHERE id = 1;'
        say_to b 'UPDATE t SET v = 3 WHERE id = 3;' 'UPDATE t SET k = 49 WHERE id = 1;'
    done
    say_to a 'SET innodb_snapshot_isolation = OFF, trefoil_snapshot_isolation = OFF;' 'BEGIN;' 'UPDATE t SET k = -1 WHERE id = 1;'
    say_to b 'BEGIN;' 'UPDATE t SET k = -2 WHERE id = 2;' 'UPDATE t SET k = -2 WHERE id = 1;' 'SELECT @@in_transaction;' \
        'SELECT k FROM t WHERE id = 2;' 'COMMIT;'
    say_to a 'ROLLBACK;'
}

# Who waits is ended with what he holds; a statement that is killed half-way has done nothing.
check_kill_connection() {
    local id tries
    client s -e 'CREATE TABLE long_one (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=TREFOIL;
        INSERT INTO long_one SELECT seq, seq FROM seq_1_to_300000'
    send b 'UPDATE long_one SET v = v + 1;'
    id=$(running 'UPDATE long_one SET v%')
    value "KILL QUERY $id"
    expect_error "$(until_done b)" 1317
    expect "$(value 'SELECT SUM(v - id) FROM s.long_one')" 0
    say_to a 'BEGIN;' 'UPDATE t SET v = 10 WHERE id = 1;'
    say_to b 'BEGIN;' 'UPDATE t SET v = 20 WHERE id = 2;'
    send b 'UPDATE t SET v = 77 WHERE id = 1;'
    id=$(running 'UPDATE t SET v = 77%')
    value "KILL $id"
    for ((tries = 0; tries < 50; tries++)); do
        [ -n "$(value "SELECT id FROM information_schema.PROCESSLIST WHERE id = $id")" ] || break
        sleep 0.1
    done
    expect "$(value 'SELECT v FROM s.t WHERE id = 2 FOR UPDATE NOWAIT')" 2
    say_to a 'COMMIT;'
    expect "$(value 'SELECT GROUP_CONCAT(v ORDER BY id) FROM s.t')" 10,2,3
}

# Names and values of options in any case, on tables and on keys; what a definition shows is what the engine has.
check_options_any_case() {
    local shown option
    client s -e "CREATE TABLE o (id INT PRIMARY KEY, a INT, b INT, KEY ka (a) StRuCtUrE=LSM shape=Leveled compression='ZSTD',
        KEY kb (b) clustering=YES Node_Size=8192, KEY kc (a, b) structure='BeTree' COMPRESSION=None) ENGINE=trefoil structure=BTree Compression=LZ4"
    value 'FLUSH TABLES'
    # As they were written, but for quotes.
    shown=$(value 'SHOW CREATE TABLE s.o' | tr -d "\`'")
    for option in StRuCtUrE=LSM shape=Leveled compression=ZSTD clustering=YES Node_Size=8192 structure=BeTree COMPRESSION=None \
        structure=BTree Compression=LZ4; do
        [[ $shown == *" $option"* ]] || echo "no $option in $shown"
    done
    expect "$(value "SELECT GROUP_CONCAT(LOWER(CONCAT(index_name, ' ', structure)) ORDER BY index_name) FROM information_schema.TREFOIL_INDEXES
        WHERE table_schema = 's' AND table_name = 'o'")" 'ka lsm,kb btree,kc betree,primary btree'
    for option in STRUCTURE=heap COMPRESSION=gzip NODE_SIZE=5000 NODE_SIZE=-1 SHAPE=flat NONSENSE=1; do
        case $(value "CREATE TABLE s.bad (a INT PRIMARY KEY) ENGINE=TREFOIL $option" 2>&1) in *ERROR*) ;; *) echo "$option of a table was taken" ;; esac
        case $(value "CREATE TABLE s.bad (a INT, KEY (a) $option) ENGINE=TREFOIL" 2>&1) in *ERROR*) ;; *) echo "$option of a key was taken" ;; esac
    done
    case $(value 'CREATE TABLE s.bad (a INT, KEY (a) CLUSTERING=5) ENGINE=TREFOIL' 2>&1) in *ERROR*) ;; *) echo 'CLUSTERING=5 was taken' ;; esac
}

# Of values of which a few are in most rows, and most in few; what statements of few rows have written, and what one of all has,
# a run that may not be drained yet.
check_estimates() {
    local structure low n rows
    RANDOM=5
    for structure in btree betree lsm; do
        for rows in 500 30000; do
            {
                echo "CREATE OR REPLACE TABLE e (id INT PRIMARY KEY, k INT, KEY k (k)) ENGINE=TREFOIL STRUCTURE=$structure;"
                for ((n = 1; n < 30000; n += rows)); do
                    echo "INSERT INTO e SELECT seq, POW(seq * 7919 % 30011 / 30011.0, 8) * 1000000 FROM seq_${n}_to_$((n + rows - 1));"
                done
                echo 'ANALYZE TABLE e;'
            } | client s > "$WORK/analyzed"
            for ((n = 0; n < 50; n++)); do
                low=$((RANDOM * RANDOM % (1 << (n % 20 + 1))))
                printf '%s;\n' "EXPLAIN SELECT COUNT(*) FROM e FORCE INDEX (k) WHERE k BETWEEN $low AND $((low + 1 + RANDOM % (1 << (n % 15 + 1))))"
            done > "$WORK/explains"
            sed 'p; s/^EXPLAIN //' "$WORK/explains" | client -N -B s | awk -F '\t' -v "of=$structure, $rows rows a statement" '
                NF > 8 { rows = $9; ranges += $4 == "range"; next }
                { if (rows > 2 * $1 + 1 || 2 * rows + 1 < $1) print of ": a range of " $1 " rows is taken for " rows; most = $1 > most ? $1 : most }
                END { if (ranges < 50 || most < 5000) print of ": " ranges " ranges, the longest of " most " rows" }'
        done
    done
}

# A snapshot has of each commit both engines' part, or neither. Run beside InnoDB.
check_one_moment() {
    local n tries writer
    value 'CREATE TABLE s.one (n INT PRIMARY KEY) ENGINE=TREFOIL; CREATE TABLE s.other (n INT PRIMARY KEY) ENGINE=InnoDB;
        INSERT INTO s.one VALUES (0); INSERT INTO s.other VALUES (0)'
    rm -f "$WORK/enough"
    (while [ ! -e "$WORK/enough" ]; do
        echo 'BEGIN; UPDATE s.one SET n = n + 1; UPDATE s.other SET n = n + 1; COMMIT; BEGIN; UPDATE s.other SET n = n + 1; UPDATE s.one SET n = n + 1; COMMIT;'
    done) | client > /dev/null 2>&1 &
    writer=$!
    wait_for 'SELECT COUNT(*) FROM s.one WHERE n > 5' 1
    : > "$WORK/moments"
    # On a slow machine until the writer has come to something.
    for ((tries = 0; tries < 20; tries++)); do
        for ((n = 0; n < 300; n++)); do
            echo 'START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT (SELECT n FROM s.one) AS a, (SELECT n FROM s.other) AS b; COMMIT;'
        done | client -N -B --unbuffered >> "$WORK/moments"
        [ "$(cut -f 1 "$WORK/moments" | sort -u | wc -l)" -lt 10 ] || break
    done
    touch "$WORK/enough"
    wait "$writer" || true
    awk '$1 != $2 { print "one engine at " $1 ", the other at " $2 } { seen[$1] } END { if (length(seen) < 10) print length(seen) " moments" }' "$WORK/moments"
}

# A plugin is for one version of the server.
check_other_version() {
    local why
    mkdir -p "$WORK/other"
    echo 10.11.1 > "$WORK/other/built-for"
    why=$( (PLUGINS=$WORK/other; check_version) 2>&1) && echo 'a plugin of another version is taken'
    case $why in *"built for MariaDB 10.11.1, the server is $VERSION"*'mariadb.sh build'*) ;; *) printf '%s\n' "$why" ;; esac
}

# What --help prints is text: nothing of it is run.
check_help_is_text() { sed -n '/cat <<END/,/^END$/p' "$HERE/mariadb.sh" | grep -E '(^|[^\])`|\$\(' || true; }
