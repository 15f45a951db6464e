# SPDX-License-Identifier: GPL-2.0-only
# Rows of three tables, two of them with a foreign key between them, that get other settings in place over and over, beside writers,
# XA, snapshots, KILL and backups; the server killed at random moments, and at the steps of the change. Behind each kill the rows are
# those that each writer was told of, or one transaction more. Sourced by mariadb.sh, which also says how long.

ROWS_WRITERS=3
# Where the server dies, if not at any moment.
ROWS_PLACES=(alter.rows alter.made alter.commit alter.committed rows.there rows.switched rows.recorded rows.given_up prepared to_finish to_decide)

random_rows() { awk -v n="$1" -v seed="$ROWS_SEED" -v mode="$2" -v from="${4:-1}" -v upto="$3" -f "$HERE/test/rows.awk"; }

# Between two writers' rows stand some that nobody writes, so that no gap is both's.
random_rows_tables() {
    client <<< "DROP DATABASE IF EXISTS rr; CREATE DATABASE rr CHARACTER SET latin1; USE rr;
        CREATE TABLE t (w INT, id INT, a INT, u INT, b MEDIUMBLOB, g INT AS (a + 1) VIRTUAL, s VARCHAR(30) AS (CONCAT(a, '-', u)) STORED,
            PRIMARY KEY (w, id), KEY a (a), KEY d (a DESC, u), UNIQUE KEY u (u), KEY p (b(7), a), KEY g (g) STRUCTURE=btree, KEY s (s)) ENGINE=TREFOIL;
        CREATE TABLE kid (w INT, id INT, k INT, PRIMARY KEY (w DESC, id, k), KEY fk (w, id),
            FOREIGN KEY (w, id) REFERENCES t (w, id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE=TREFOIL;
        CREATE TABLE nokey (w INT, i INT) ENGINE=TREFOIL;
        INSERT INTO t (w, id) SELECT seq, 1000000 FROM seq_0_to_9; INSERT INTO t (w, id) SELECT seq, -1 FROM seq_0_to_9;
        INSERT INTO kid SELECT w, id, 0 FROM t"
}

# Changes without end.
random_changes() {
    awk -v seed="$1" 'function of(list,   parts, n) { n = split(list, parts, " "); return parts[1 + int(rand() * n)] }
        BEGIN {
            srand(seed)
            for (i = 0; i < 5000; i++) {
                table = of("t t t kid nokey"); structure = of("btree betree lsm lsm")
                with = structure == "lsm" ? " SHAPE=" of("lazy leveled universal") : " SHAPE=DEFAULT"
                more = table == "t" && rand() < 0.3 ? of(", DROP~KEY~d,~ADD~KEY~d~(a~DESC,u) , DROP~KEY~p,~ADD~KEY~p~(b(7),a)~COMPRESSION=zstd") : ""
                if (more == ",") more = ""
                if (more ~ /^DROP/) more = ", " more
                gsub(/~/, " ", more)
                print "ALTER TABLE " table " STRUCTURE=" structure with " COMPRESSION=" of("none lz4 zstd") " NODE_SIZE=" of("8192 16384 32768") more ", ALGORITHM=INPLACE, LOCK=NONE;"
                print "SELECT '"'"'changed'"'"'; DO SLEEP(" of("0 0 0.05 0.3") ");"
            }
        }'
}

# Reads of one moment, from before changes that end meanwhile: the same twice, and no child without its parent.
random_looks() {
    local all='SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS(",", w, id, a, u, b))) FROM t FORCE INDEX (PRIMARY) WHERE w >= 0; SELECT COUNT(*), SUM(k) FROM kid FORCE INDEX (PRIMARY) WHERE w >= 0; SELECT COUNT(*), SUM(i) FROM nokey;'
    while :; do
        printf 'START TRANSACTION WITH CONSISTENT SNAPSHOT; DO SLEEP(0.%d); SELECT "look"; %s DO SLEEP(0.%d); SELECT "again"; %s' $((RANDOM % 10)) "$all" $((RANDOM % 3)) "$all"
        printf 'SELECT "orphans", COUNT(*) FROM kid FORCE INDEX (PRIMARY) LEFT JOIN t FORCE INDEX (PRIMARY) ON t.w = kid.w AND t.id = kid.id WHERE t.id IS NULL; SELECT "end"; COMMIT;\n'
    done
}
bad_looks() {
    awk '/^ERROR [0-9]/ && !/ERROR (1412|1317|20..) / { print; next } /^ERROR/ { bad = 1 } $0 == "look" { side = "a"; a = b = ""; bad = 0; next } $0 == "again" { side = "b"; next }
        $1 == "orphans" { if ($2 != 0) print "children without parents: " $2; next }
        $0 == "end" { if (!bad && a != b) print "one moment is read as " a " and as " b; side = ""; next }
        side == "a" { a = a $0 ";" } side == "b" { b = b $0 ";" }' "$1"
}

# Ends the change that runs, now and then; sometimes with its connection.
random_kills_of_changes() {
    while sleep "0.$((RANDOM % 10))"; do
        printf 'SET @id = (SELECT MIN(id) FROM information_schema.PROCESSLIST WHERE info LIKE "ALTER TABLE%%");
            EXECUTE IMMEDIATE IF(@id IS NULL, "DO 1", CONCAT("KILL %s ", @id));\n' "$([ $((RANDOM % 4)) = 0 ] || echo QUERY)"
    done
}

rows_in_order() {
    client -N -B rr -e "SELECT 't', w, id, IFNULL(a, 'NULL'), IFNULL(u, 'NULL'), LENGTH(b), LEFT(b, 1) FROM t FORCE INDEX (PRIMARY) WHERE w = $1 AND id BETWEEN 0 AND 999999;
        SELECT 'kid', w, id, k FROM kid WHERE w = $1 AND id BETWEEN 0 AND 999999; SELECT 'nokey', w, i FROM nokey WHERE w = $1" | LC_ALL=C sort
}

# What clients had prepared ends as their writer meant it to.
decide_random() {
    local rest name
    while read -r _ _ _ name; do
        if [ "$(random_rows "${name%-*}" kind "${name#*-}")" = 1 ]; then value "XA ROLLBACK '$name'"; else value "XA COMMIT '$name'"; fi
    done < <(value 'XA RECOVER')
}

# Sets CAME to how far each writer came: $2, or one transaction more; or to the first of the next few, with `any`.
writer_came() {
    local n=$1 from=$2 upto=$3 at
    rows_in_order "$n" > "$WORK/found"
    for ((at = from; at <= upto; at++)); do
        random_rows "$n" rows "$at" | LC_ALL=C sort > "$WORK/meant"
        if cmp -s "$WORK/meant" "$WORK/found"; then CAME[n]=$at; return 0; fi
        ((at != from)) || cp "$WORK/meant" "$WORK/meant.first"
    done
    echo "writer $n: its rows are not those of $from to $upto; of $from (<) and found (>):"
    diff "$WORK/meant.first" "$WORK/found" | head -8
}

# What the rows of a table are kept in, and what its definition says.
structure_kept() {
    value "SELECT structure FROM information_schema.TREFOIL_INDEXES WHERE table_schema = 'rr' AND table_name = '$1' AND index_name = 'PRIMARY'"
}
structure_said() {
    local said
    said=$(value "SHOW CREATE TABLE rr.$1" | sed 's/.*) ENGINE=//' | grep -o 'STRUCTURE.=[a-z]*')
    case ${said#*=} in '' | auto) echo betree ;; *) echo "${said#*=}" ;; esac
}

check_random_rows() {
    local n last
    decide_random
    for ((n = 1; n <= ROWS_WRITERS; n++)); do
        last=$(grep -x '[0-9][0-9]*' "$WORK/rows.$n" | tail -n 1)
        last=${last:-${CAME[n]}}
        writer_came "$n" "$last" "$((last + 1))"
        # A transaction may meet a change, by the server's locks of tables: then it is over, and the writer goes no further.
        grep '^ERROR [0-9]* ' "$WORK/rows.$n" | grep -v 'ERROR \(1213\|20[0-9][0-9]\) '
    done
    expect "$(value 'CHECK TABLE rr.t, rr.kid, rr.nokey EXTENDED' | cut -f 4 | sort -u)" OK
    expect "$(value "SELECT COUNT(*) FROM rr.t WHERE b <> REPEAT(LEFT(b, 1), LENGTH(b)) OR NOT g <=> a + 1 OR NOT s <=> CONCAT(a, '-', u)")" 0
    for n in t kid nokey; do expect "$n $(structure_kept $n)" "$n $(structure_said $n)"; done
    CHANGES=$((CHANGES + $(awk '/^ERROR/ { bad = 1 } $0 == "changed" { n += !bad; bad = 0 } END { print n + 0 }' "$WORK/rows.changes")))
    grep '^ERROR [0-9]* ' "$WORK/rows.changes" | grep -v "ERROR \(1205\|1317\|1927\|20..\)"
    bad_looks "$WORK/rows.looks"
    grep -a 'panicked\|TREFOIL:.*damage' "$ERRORS"
    return 0
}

# Clients that a loop feeds go on when the server is gone: they are ended by their numbers.
start_random_load() {
    local n
    PIDS=() FED=()
    for ((n = 1; n <= ROWS_WRITERS; n++)); do
        random_rows "$n" sql $((CAME[n] + 5000)) $((CAME[n] + 1)) | client -N -B --unbuffered rr > "$WORK/rows.$n" 2>&1 &
        PIDS+=($!)
    done
    random_changes "$RANDOM" | exec_fed changes &
    FED+=($!)
    random_looks 2> /dev/null | exec_fed looks &
    FED+=($!)
    ((RANDOM % 2)) || return 0
    random_kills_of_changes 2> /dev/null | exec_fed kills &
    FED+=($!)
}
exec_fed() {
    exec "$ROOT/bin/mariadb" --no-defaults --socket="$SOCKET" --user=root --force --reconnect --unbuffered -N -B rr > "$WORK/rows.$1" 2>&1
}

# The server ends at one of the places, if it comes to that within some seconds, or whenever it may be.
die_at_random() {
    local tries
    if ((RANDOM % 2)); then
        kill_at "${ROWS_PLACES[RANDOM % ${#ROWS_PLACES[@]}]}:$((1 + RANDOM % 6))"
        for ((tries = 0; tries < 40; tries++)); do
            kill -0 "$SERVER" || break
            sleep 0.1
        done
    else
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
    fi
    rm -f "$WORK/crash"
    kill_server
} 2> /dev/null

# A backup from beside all that, if there is a whole one, shows each writer's rows behind some transaction.
check_backup_of_rows() {
    local n from
    [ -e "$WORK/rows.backed" ] || return 0
    end_server
    mv "$DATA/trefoil" "$WORK/trefoil.kept"
    cp -r "$WORK/rows.backup" "$DATA/trefoil"
    (start_server "${SERVER_ARGS[@]}" --tc-heuristic-recover=ROLLBACK) > /dev/null 2>&1 7>&1 || true
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    decide_random
    for ((n = 1; n <= ROWS_WRITERS; n++)); do
        from=$(value "SELECT IFNULL(MAX(i), 0) FROM rr.nokey WHERE w = $n")
        (writer_came "$n" "$from" "$((from + 40))") | sed 's/^/the backup: /'
    done
    expect "of the backup $(value 'CHECK TABLE rr.t, rr.kid, rr.nokey EXTENDED' | cut -f 4 | sort -u)" 'of the backup OK'
    end_server
    rm -rf "$DATA/trefoil"
    mv "$WORK/trefoil.kept" "$DATA/trefoil"
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
}

rows_round() {
    local tries
    start_random_load
    rm -rf "$WORK/rows.backup" "$WORK/rows.backed"
    if ((RANDOM % 3 == 0)); then
        sleep "0.$((RANDOM % 10))"
        value "SET GLOBAL trefoil_backup_dir = '$WORK/rows.backup'" 2> /dev/null && touch "$WORK/rows.backed"
    fi
    die_at_random
    kill -KILL "${FED[@]}" 2> /dev/null || true
    wait "${PIDS[@]}" "${FED[@]}" 2> /dev/null || true
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    check_random_rows
    check_backup_of_rows
}

# So many seconds. Before each round the seed of its chance; CAME: how far each writer's rows are.
rows_random() {
    local until=$((SECONDS + $1)) round n
    ROWS_SEED=${TREFOIL_ROWS_SEED:-$$}
    RANDOM=$ROWS_SEED
    say "rows by chance of seed $ROWS_SEED (TREFOIL_ROWS_SEED)"
    SERVER_ARGS+=(--trefoil-buffer-size=16M --trefoil-log-capacity=4M --trefoil-lock-wait-timeout=20 --trefoil-print-all-deadlocks=ON)
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    check_engine
    CAME=() CHANGES=0
    random_rows_tables
    for ((n = 1; n <= ROWS_WRITERS; n++)); do CAME[n]=0; done
    for ((round = 1; SECONDS < until; round++)); do
        touch "$WORK/came_to"
        rows_round "$round" > "$WORK/why" 2>&1 || echo 'it failed' >> "$WORK/why"
        if [ -s "$WORK/why" ]; then
            head -40 "$WORK/why"
            verdict "rows by chance, round $round of seed $ROWS_SEED" FAILED
            return
        fi
    done
    verdict "rows by chance, $((round - 1)) rounds, $CHANGES changes, writers came to ${CAME[*]}" ok
}
