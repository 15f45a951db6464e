# SPDX-License-Identifier: GPL-2.0-only
# A primary and a replica, each with the engine that a pair names, under load, killed at random moments. Afterwards both hold the
# same rows; and after each kill of the replica its rows are those of exactly the place that it says it has reached.
# Sourced by mariadb.sh, which also says how long.
#
#   WORK/SIDE       the data directory of `primary` and `replica`
#   at SIDE CMD...  CMD with the server of that side: DATA, SOCKET, SERVER are its

REPLICATION_CLIENTS=4
# Engines of primary and replica, format of the binary log, how the replica applies, which side is killed how often.
REPLICATION_ROUNDS=(
    'TREFOIL InnoDB ROW conservative replica primary'
    'InnoDB TREFOIL MIXED optimistic replica'
    'TREFOIL TREFOIL STATEMENT optimistic replica primary'
    'InnoDB TREFOIL STATEMENT conservative replica'
    'TREFOIL TREFOIL ROW aggressive replica primary replica'
    'TREFOIL InnoDB MIXED optimistic primary'
    'InnoDB TREFOIL ROW optimistic replica replica'
)

REPLICATION_STRUCTURES=(betree lsm btree)

declare -A SIDE_SERVER SIDE_PORT SIDE_ARGS

side() {
    DATA=$WORK/$1 SOCKETS=$SIDES/$1 SOCKET=$SIDES/$1/socket ERRORS=$WORK/$1/error.log SERVER=${SIDE_SERVER[$1]:-}
}

at() {
    local name=$1
    shift
    side "$name"
    "$@"
    SIDE_SERVER[$name]=$SERVER
}

end_sides() {
    local name
    [ -z "${LOAD[*]:-}" ] || end_clients
    for name in "${!SIDE_SERVER[@]}"; do at "$name" end_server; done
}

# A port that nobody listens on.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null || break
    done
    printf '%s\n' "$port"
}

# Two empty data directories, servers that are not started.
sides() {
    local name
    scratch
    SIDES=$SOCKETS
    # Who does not start ends the test, wherever its output goes then.
    trap '[ -z "${STARTS:-}" ] || tail -n 90 "$WORK/$STARTS/error.log" >&7; stop_looking; end_sides; rm -rf "$SIDES" "$WORK"' EXIT
    mv "$DATA" "$WORK/empty"
    for name in primary replica; do
        mkdir -p "$SIDES/$name"
        SIDE_PORT[$name]=$(free_port)
    done
}

# A data directory anew, and how its server is started from now on.
new_side() {
    local name=$1 engine=$2
    shift 2
    at "$name" end_server
    rm -rf "${WORK:?}/$name"
    cp -a "$WORK/empty" "$WORK/$name"
    SIDE_ARGS[$name]="--skip-networking=0 --bind-address=127.0.0.1 --port=${SIDE_PORT[$name]} --skip-name-resolve
        --innodb=ON --innodb-buffer-pool-size=16M --default-storage-engine=$engine --sync-binlog=1
        --innodb-flush-log-at-trx-commit=1 --skip-slave-start $*"
}

# shellcheck disable=SC2086
start_side() {
    STARTS=$1
    at "$1" start_server ${SIDE_ARGS[$1]} 2> /dev/null
    STARTS=
}
kill_side() { at "$1" kill_server; }
value_at() { local name=$1; shift; at "$name" value "$1"; }

# An empty primary, and a replica that has not begun. $3: how the log is written; $4: how it is applied, behind it more arguments of the
# replica; PRIMARY_ARGS: more of the primary.
new_pair() {
    local primary=$1 replica=$2 format=$3 mode=$4
    shift 4
    new_side primary "$primary" --server-id=1 --log-bin=binlog --binlog-format="$format" --gtid-strict-mode=ON \
        --binlog-commit-wait-count=3 --binlog-commit-wait-usec=1000 ${PRIMARY_ARGS:-}
    new_side replica "$replica" --server-id=2 --relay-log=relay --gtid-pos-auto-engines=TREFOIL,InnoDB \
        --slave-parallel-threads=4 --slave-parallel-mode="$mode" --slave-transaction-retries=100 "$@"
    start_side primary
    start_side replica
    value_at primary "CREATE USER repl@'%'; GRANT REPLICATION SLAVE ON *.* TO repl@'%'; RESET MASTER"
    change_master 'MASTER_USE_GTID=slave_pos'
}

# Where the replica gets it from, and from which place on.
change_master() {
    value_at replica "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=${SIDE_PORT[primary]}, MASTER_USER='repl',
        MASTER_CONNECT_RETRY=1, $1"
}

# Starts the clients of the primary. What fails of a transaction leaves the rest of it; without a server all of it fails, until what they say is
# too long. $1, $2: rows and ddl of replication.awk.
start_clients() {
    local n rows=$1 ddl=${2:-1}
    LOAD=() FROM=$((FROM + 1000000))
    side primary
    for ((n = 1; n <= REPLICATION_CLIENTS; n++)); do
        awk -v n="$n" -v from="$FROM" -v rows="$rows" -v ddl="$ddl" -v seed="$((RANDOM))" -f "$HERE/test/replication.awk" 2> /dev/null |
            (ulimit -f 100000 && exec "$ROOT/bin/mariadb" --no-defaults --socket="$SOCKET" --user=root --force rep) > "$WORK/said.$n" 2>&1 &
        LOAD+=($!)
    done
}

# A number of a client that has ended may be another process's. One that has just begun is still a copy of this shell; one with a C library of its
# own bears the name of its loader.
kill_clients() {
    local pid name clients=()
    for pid in "${LOAD[@]}"; do
        { read -r name < "/proc/$pid/comm"; } 2> /dev/null || name=
        case $name in mariadb | bash | ld-linux*) clients+=("$pid") ;; esac
    done
    # All at once: the shell tells of each that is gone when it comes to it.
    [ "${#clients[@]}" = 0 ] || kill -KILL "${clients[@]}" 2> /dev/null || true
}

end_clients() {
    kill_clients
    wait "${LOAD[@]}" 2> /dev/null || true
    LOAD=()
    # What they said last may be in the log, and in the replica, before it is done here.
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        [ "$(value_at primary "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE db = 'rep'" 2> /dev/null)" != 0 ] || break
        sleep 0.1
    done
}

# Rows of `journal` that the primary's log has committed up to a number of its domain 0.
journal_logged() {
    local log
    for log in $(value_at primary 'SHOW BINARY LOGS' | cut -f 1); do
        at primary binlog_events "$log"
    done | awk -F '\t' -v upto="$1" '
        $3 == "Gtid" { match($6, /0-1-[0-9]+/); number = substr($6, RSTART + 4, RLENGTH - 4) + 0 }
        $6 ~ /INSERT INTO journal VALUES/ && number <= upto {
            match($6, /\([0-9, ]*\)/); row = substr($6, RSTART + 1, RLENGTH - 2); sub(/, /, "\t", row); print row
        }' | sort
}

# What a replica that was killed holds is what it says that it has come to, neither less nor more.
check_place() {
    local place
    place=$(value_at replica 'SELECT @@gtid_slave_pos')
    value_at replica 'SELECT n, i FROM rep.journal' 2> /dev/null | sort > "$WORK/rows"
    journal_logged "${place##*-}" > "$WORK/logged"
    diff "$WORK/logged" "$WORK/rows" > "$WORK/difference" && return 0
    printf 'at %s the log (<) and the rows of the replica (>) differ:\n' "$place"
    head -5 "$WORK/difference"
}

# Everything in a table, in an order of its own.
rows_at() { value_at "$1" "SELECT * FROM rep.$2" | LC_ALL=C sort | cksum; }

# Waits until the replica has what the primary has logged, and compares.
check_same() {
    local name place
    place=$(value_at primary 'SELECT @@gtid_binlog_pos')
    if [ "$(value_at replica "SELECT MASTER_GTID_WAIT('$place', ${REPLICATION_PATIENCE:-300})")" != 0 ]; then
        printf 'the replica does not come to %s:\n' "$place"
        at replica client -e 'SHOW SLAVE STATUS\G' | grep -E 'Gtid|_Error|_Errno|Running|Retried' | grep -v ': *$'
        tail -5 "$WORK/replica/error.log"
        return
    fi
    for name in $(value_at primary 'SHOW TABLES FROM rep'); do
        expect "$name $(rows_at replica "$name")" "$name $(rows_at primary "$name")"
    done
    for name in primary replica; do expect "$name $(check_tables "$name")" "$name OK"; done
    expect "$(value_at replica 'SELECT @@gtid_slave_pos')" "$place"
}

# What CHECK TABLE says of the tables at a side of TREFOIL. How sound those of InnoDB are is not asked here: their rows are compared.
check_tables() {
    local engine
    engine=$(value_at "$1" 'SELECT @@default_storage_engine')
    case $engine in
        TREFOIL) value_at "$1" 'CHECK TABLE rep.acc, rep.items, rep.nokey, rep.counts, rep.journal, rep.owners, rep.owned, rep.seen' | cut -f 4 | sort -u ;;
        InnoDB) echo OK ;;
        *) echo "its engine is '$engine'" ;;
    esac
}

# As it is made at first, the first transactions have their place in another engine, and each definition has: without a log of its own a replica
# that is killed then loses rows, and not the place (OPERATING).
place_in_engine() { value_at replica "ALTER TABLE mysql.gtid_slave_pos ENGINE=$1"; }

# The place lies in a table of the engine that the rows are in, and no transaction had it elsewhere.
check_engine_of_place() {
    local engine=$1
    expect "$(value_at replica "SELECT ENGINE FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME LIKE 'gtid_slave_pos%'")" "$engine"
    expect "$(grep -c 'a transaction of several storage engines' "$WORK/replica/error.log")" 0
}

nap() { sleep "$((RANDOM % ${1:-2})).$((RANDOM % 10))"; }

# One round: as many seconds as kills, and some. $1 is one of REPLICATION_ROUNDS.
replicated() {
    local primary replica format mode kills name rows=1 more=() PRIMARY_ARGS=
    read -r primary replica format mode kills <<< "$1"
    [ "$format" != STATEMENT ] || rows=0
    # Every other time the replica writes a log of its own, which is then a part of each of its commits.
    ((!WITH_LOG)) || more=(--log-bin=binlog --log-slave-updates)
    # What a side of TREFOIL has its tables in.
    if [ -n "$STRUCTURE" ]; then PRIMARY_ARGS="--trefoil-default-structure=$STRUCTURE" more+=("--trefoil-default-structure=$STRUCTURE"); fi
    new_pair "$primary" "$replica" "$format" "$mode" "${more[@]}"
    at primary client < "$HERE/test/replication.sql"
    [ "$replica" = InnoDB ] || place_in_engine "$replica"
    value_at replica 'START SLAVE'
    start_clients "$rows"
    for name in $kills; do
        sleep 1
        nap
        kill_side "$name"
        if [ "$name" = primary ]; then
            kill_clients
            start_side primary
            end_clients
            start_clients "$rows"
        else
            start_side replica
            check_place
            value_at replica 'START SLAVE'
        fi
    done
    nap
    end_clients
    # The place behind a change of definitions is in no engine's table: the last transaction is of rows.
    value_at primary 'UPDATE rep.acc SET v = v + 1 WHERE id = 0'
    check_same
    [ "$replica" = InnoDB ] || check_engine_of_place "$replica"
}

replicated_round() {
    replicated "$1" > "$WORK/why" 2>&1 || echo 'it failed' >> "$WORK/why"
    local name="replication $1${STRUCTURE:+, $STRUCTURE}, $(value_at primary 'SELECT COUNT(*) FROM rep.journal') transactions" retried
    retried=$(value_at replica "SHOW STATUS LIKE 'Slave_retried_transactions'" 2>&1 | cut -f 2) || true
    if [ -s "$WORK/why" ]; then
        cat "$WORK/why"
        { grep -HEi 'corrupt|damage|assert' "$WORK"/{primary,replica}/error.log || true; } | tail -n 20
        verdict "$name" FAILED
        [ -z "${REPLICATION_KEEP:-}" ] || { end_sides; cp -a "$WORK" "$REPLICATION_KEEP"; }
    else
        verdict "$name, $retried applied again" ok
    fi
}

. "$HERE/test/replicas.sh"
. "$HERE/test/unread.sh"

# Lines of what was run before: round, or `checks` of replicas.sh, seconds, ok or FAILED, the seed. What stands there is not run again,
# but checks that failed; a round that failed makes all of them fail. $1: what awk counts.
log_says() { if [ -s "${TREFOIL_REPLICATION_LOG:-}" ]; then awk -F '\t' "$1"' END { print n + 0 }' "$TREFOIL_REPLICATION_LOG"; else echo 0; fi; }

log_outcome() {
    local what=$1 began=$2 before=$3 seed=$4 outcome=ok
    ((FAILED == before)) || outcome=FAILED
    [ -z "${TREFOIL_REPLICATION_LOG:-}" ] ||
        printf '%s\t%s\t%s\t%s\n' "$what" "$((SECONDS - began))" "$outcome" "$seed" >> "$TREFOIL_REPLICATION_LOG"
}

logged_round() {
    local before=$FAILED began=$SECONDS
    replicated_round "$1"
    log_outcome "$1" "$began" "$before" "$2"
}

logged_checks() {
    local before=$FAILED began=$SECONDS
    replica_checks "$1"
    log_outcome checks "$began" "$before" "$2"
}

# Rounds until they have taken so many seconds in sum, each kind at least once; before them what needs no luck. `short`: three rounds. With
# TREFOIL_REPLICATION_LOG each round that is done is kept, and the same command goes on behind the last of them.
replication() {
    local seconds=${1:-0} seed=${TREFOIL_REPLICATION_SEED:-$$} n first
    RANDOM=$seed FROM=0 WITH_LOG=0
    say "replication of seed $seed (TREFOIL_REPLICATION_SEED)"
    sides
    first=$(log_says '$1 != "checks" { n++ }')
    FAILED=$((FAILED + $(log_says '$1 != "checks" && $3 == "FAILED" { n++ }')))
    if [ -n "${TREFOIL_REPLICATION_ONLY:-}" ]; then
        REPLICATION_ROUNDS=("$TREFOIL_REPLICATION_ONLY")
    elif [ "$(log_says '$1 == "checks" && $3 == "ok" { n++ }')" = 0 ]; then
        logged_checks "${2:-}" "$seed"
    fi
    SECONDS=$(log_says '$1 != "checks" { n += $2 }')
    for ((n = first; n < ${#REPLICATION_ROUNDS[@]} || SECONDS < seconds; n++)); do
        [ "${2:-}" != short ] || ((n < 3)) || break
        # An odd number of kinds: each is run with and without in turns.
        WITH_LOG=$((1 - n % 2))
        # Nor a multiple of three.
        STRUCTURE=
        [ -n "${TREFOIL_DEFAULT_STRUCTURE:-}" ] || STRUCTURE=${REPLICATION_STRUCTURES[n % ${#REPLICATION_STRUCTURES[@]}]}
        logged_round "${REPLICATION_ROUNDS[n % ${#REPLICATION_ROUNDS[@]}]}" "$seed"
    done
    end_sides
}
