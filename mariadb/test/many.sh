# SPDX-License-Identifier: GPL-2.0-only
# Many connections and many tables: what one more of each takes, by the server's own counts and by what the system says of the process.
# Sourced by mariadb.sh. docs/OPERATING.md states the bounds; here they are held.

# KiB of one more, at most. A connection, idle, that has read the engine's tables: what the server takes for it, and the engine's part
# of that; within a transaction that has written a row. A table with a key that nobody has open, and one that is open, both without
# the pages of their rows, which the buffer bounds in sum and which are read by whoever asks first.
MANY_CONNECTION_KIB=200
MANY_SESSION_KIB=32
MANY_TRANSACTION_KIB=16
MANY_TABLE_KIB=48
MANY_OPEN_TABLE_KIB=48

resident_kib() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$SERVER/status"; }
files_open() { find "/proc/$SERVER/fd" -mindepth 1 | wc -l; }
threads_there() { find "/proc/$SERVER/task" -mindepth 1 -maxdepth 1 | wc -l; }
# Of that what is not pages of rows and keys.
without_pages_kib() { echo $(($(resident_kib) - $(global_status Trefoil_buffer_page_bytes) / 1024)); }
global_status() { value "SHOW GLOBAL STATUS LIKE '$1'" | cut -f 2; }

# Says what each of `count` took between two looks, in KiB, and whether that is within `most`.
each_took() {
    local what=$1 count=$2 before=$3 after=$4 most=$5 each
    each=$(awk -v a="$before" -v b="$after" -v n="$count" 'BEGIN { printf "%.1f", (b - a) / n }')
    if awk -v each="$each" -v most="$most" 'BEGIN { exit !(each <= most) }'; then
        verdict "$what: $each KiB each of $count, at most $most" ok
    else
        verdict "$what: $each KiB each of $count, at most $most" FAILED
    fi
}

is_same() { if [ "$2" = "$3" ]; then verdict "$1" ok; else verdict "$1: $3, not $2" FAILED; fi; }

at_most() { if (($2 <= $3)); then verdict "$1" ok; else verdict "$1: $2, more than $3" FAILED; fi; }

# Each of so many connections sends its statements and is answered.
everybody_says() {
    local n
    for ((n = 1; n <= $1; n++)); do send "m$n" "${@:2}"; done
    for ((n = 1; n <= $1; n++)); do until_done "m$n" > /dev/null; done
}

many_connections() {
    local count=$1 n bare idle read within files threads
    client -e 'CREATE DATABASE IF NOT EXISTS s; USE s; CREATE TABLE s.t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=TREFOIL;
        INSERT INTO s.t SELECT seq, seq FROM seq_1_to_10000'
    client -e 'SELECT COUNT(*) FROM s.t' > /dev/null
    bare=$(resident_kib) files=$(files_open) threads=$(threads_there)
    for ((n = 1; n <= count; n++)); do open_session "m$n"; done
    everybody_says "$count" 'DO 1;'
    idle=$(resident_kib)
    at_most 'files for each connection: 1, and a few' "$(($(files_open) - files))" "$((count + 5))"
    at_most 'threads for each connection: 1, and a few' "$(($(threads_there) - threads))" "$((count + 5))"
    for ((n = 1; n <= count; n++)); do send "m$n" "SELECT v FROM t WHERE id = $n;"; done
    everybody_says "$count" 'DO 1;'
    read=$(resident_kib)
    each_took 'a connection that has read, the server and the engine' "$count" "$bare" "$read" "$MANY_CONNECTION_KIB"
    each_took 'of that the engine and the open table' "$count" "$idle" "$read" "$MANY_SESSION_KIB"
    for ((n = 1; n <= count; n++)); do send "m$n" "BEGIN;" "UPDATE t SET v = v + 1 WHERE id = $n;"; done
    everybody_says "$count" 'DO 1;'
    within=$(resident_kib)
    is_same 'all are within a transaction' "$count" "$(value 'SELECT COUNT(*) FROM information_schema.TREFOIL_TRX')"
    is_same 'each has its row locked' "$count" "$(value "SELECT COUNT(*) FROM information_schema.TREFOIL_LOCKS WHERE INDEX_NAME = 'PRIMARY'")"
    each_took 'a transaction that has written' "$count" "$read" "$within" "$MANY_TRANSACTION_KIB"
    everybody_says "$count" 'ROLLBACK;'
    close_sessions
    is_same 'what they held is given back' 0 "$(value 'SELECT COUNT(*) FROM information_schema.TREFOIL_LOCKS')"
}

many_tables() {
    local count=$1 none there opened of_server files
    restart_with "${SERVER_ARGS[@]}"
    client -e 'SELECT COUNT(*) FROM s.t' > /dev/null
    none=$(without_pages_kib)
    client -e 'CREATE DATABASE m'
    awk -v n="$count" 'BEGIN { for (i = 1; i <= n; i++)
        printf "CREATE TABLE t%d (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=TREFOIL; INSERT INTO t%d VALUES (1, 1);\n", i, i }' | client m
    restart_with "${SERVER_ARGS[@]}"
    client -e 'SELECT COUNT(*) FROM s.t' > /dev/null
    there=$(without_pages_kib) files=$(files_open) of_server=$(global_status Memory_used)
    each_took 'a table that nobody has open' "$count" "$none" "$there" "$MANY_TABLE_KIB"
    awk -v n="$count" 'BEGIN { for (i = 1; i <= n; i++) printf "SELECT v FROM t%d WHERE id = 1;\n", i }' | client m > /dev/null
    opened=$(without_pages_kib)
    is_same 'all are open' 1 "$(value "SELECT VARIABLE_VALUE >= $count FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'OPEN_TABLES'")"
    each_took 'a table that is open' "$count" "$there" "$opened" "$MANY_OPEN_TABLE_KIB"
    printf 'of that the server by its own count: %s KiB\n' \
        "$(awk -v a="$of_server" -v b="$(global_status Memory_used)" -v n="$count" 'BEGIN { printf "%.1f", (b - a) / n / 1024 }')"
    at_most 'files for all tables: a few' "$(($(files_open) - files))" 5
    is_same 'they hold what they held' "$count" "$(value "SELECT COUNT(*) FROM information_schema.TREFOIL_INDEXES
        WHERE TABLE_SCHEMA = 'm' AND INDEX_NAME = 'PRIMARY' AND LIVE_KEYS = 1")"
}

# $1: connections; $2: tables.
many() {
    local connections=${1:-100} tables=${2:-1000}
    scratch
    SERVER_ARGS=(--innodb=OFF --default-storage-engine=Aria --trefoil-buffer-size=64M --max-connections=$((connections + 50))
        --table-open-cache=$((2 * tables + connections + 100)) --table-definition-cache=$((tables + 600)) --performance-schema=OFF)
    start_server "${SERVER_ARGS[@]}"
    check_engine
    many_connections "$connections"
    many_tables "$tables"
}
