# SPDX-License-Identifier: GPL-2.0-only
# How fast ENGINE=TREFOIL is beside InnoDB and MyRocks: every stock test of the packaged sysbench, then the insert benchmark and TPC-C by the
# lab (speed.toml). In memory, the log of each engine written at commit and not synced (setting 2), the binary log off and on. Each number
# is kept as soon as it is there: the same command goes on where it was ended. Sourced by mariadb.sh.
#
#   FOLDER/sysbench.tsv   turn, binary log, engine, test, threads, operations a second
#   FOLDER/lab/           the run of speed.toml: `lab report FOLDER/lab`; at the scale TREFOIL_SPEED_SCALE, if that is set

SPEED_ENGINES=(InnoDB RocksDB TREFOIL)
SPEED_THREADS=(4 16)
SPEED_ROWS=${TREFOIL_SPEED_ROWS:-1000000}
SPEED_SECONDS=${TREFOIL_SPEED_SECONDS:-20}
# shellcheck disable=SC2206
SPEED_TESTS=(${TREFOIL_SPEED_TESTS:-${STOCK_TESTS[*]}})

# What leaves as many rows as there were has one table for all of it, the reads first; each of the others has its own.
SPEED_OWN_TABLE=' oltp_insert oltp_delete bulk_insert '

# What failed is measured again.
is_measured() { [ "$(awk -F '\t' -v of="$1" 'index($0, of "\t") == 1 && $6 + 0 > 0 { n++ } END { print n + 0 }' "$SPEED/sysbench.tsv")" -gt 0 ]; }

# The server of one engine: the others have no memory, and Trefoil's plugin is only where it is measured.
speed_server() {
    local engine=$1 binlog=$2 args=(--skip-name-resolve --max-connections=100 --performance-schema=OFF --character-set-server=latin1)
    case $engine in
        InnoDB) args+=(--innodb-buffer-pool-size=2G --innodb-flush-log-at-trx-commit=2 --innodb-log-file-size=1G) ;;
        RocksDB) args+=(--innodb=OFF --default-storage-engine=RocksDB --plugin-dir="$ROOT/lib/mysql/plugin"
            --plugin-load-add=ha_rocksdb.so --rocksdb-block-cache-size=2G
            --rocksdb-flush-log-at-trx-commit=2) ;;
        TREFOIL) args+=(--innodb=OFF --default-storage-engine=TREFOIL --trefoil-buffer-size=2G --trefoil-flush-log-at-commit=2
            --trefoil-log-capacity=1G) ;;
    esac
    [ "$binlog" = off ] || args+=(--log-bin=binlog --binlog-format=ROW --sync-binlog=0 --max-binlog-size=1G)
    # What keeps it from starting is told.
    if [ "$engine" = TREFOIL ]; then start_server "${args[@]}"; else WITHOUT_ENGINE=1 start_server "${args[@]}"; fi
    client -e 'CREATE DATABASE IF NOT EXISTS sbtest'
}

# One number: prepared, run and taken away again, but a table that others go on with stays.
speed_of_test() {
    local engine=$1 test=$2 threads=$3 key=$4 step rate steps=(prepare run cleanup)
    if [ "${SPEED_OWN_TABLE/ $test /}" = "$SPEED_OWN_TABLE" ]; then
        steps=(prepare run)
        ((!IS_THERE)) || steps=(run)
        IS_THERE=1
    elif ((IS_THERE)); then
        client -e 'DROP TABLE sbtest.sbtest1'
        IS_THERE=0
    fi
    for step in "${steps[@]}"; do
        sysbench_program "$test" --mysql_storage_engine="$engine" --tables=1 --table-size="$SPEED_ROWS" --threads="$threads" \
            --time="$SPEED_SECONDS" --rand-type=uniform "$step" > "$WORK/$step" 2>&1 ||
            { tail -5 "$WORK/$step" | cut -c 1-200; die "$test on $engine failed at $step; what was measured is kept in $SPEED"; }
    done
    rate=$(sed -n 's/.*queries: *[0-9]* *(\(.*\) per sec.)/\1/p' "$WORK/run")
    # bulk_insert counts rows as transactions, and puts many into a query.
    [ "$test" != bulk_insert ] || rate=$(sed -n 's/.*transactions: *[0-9]* *(\(.*\) per sec.)/\1/p' "$WORK/run")
    printf '%s\t%s\n' "$key" "${rate:-failed}" >> "$SPEED/sysbench.tsv"
    say "$key: ${rate:-failed}"
}

speed_turn() {
    local turn=$1 binlog=$2 engine=$3 test threads key fresh=1
    for test in "${SPEED_TESTS[@]}"; do
        for threads in "${SPEED_THREADS[@]}"; do
            key=$(printf '%s\t%s\t%s\t%s\t%s' "$turn" "$binlog" "$engine" "$test" "$threads")
            ! is_measured "$key" || continue
            if ((fresh)); then scratch; speed_server "$engine" "$binlog"; fresh=0 IS_THERE=0; fi
            speed_of_test "$engine" "$test" "$threads" "$key"
        done
    done
    ((fresh)) || { end_server; rm -rf "$WORK" "$SOCKETS"; }
}

# Medians, and TREFOIL's by the better of the other two's.
speed_table() {
    awk -F '\t' '$6 + 0 > 0' "$SPEED/sysbench.tsv" | sort -t $'\t' -k 2,2 -k 4,4 -k 5,5n -k 3,3 -k 6,6g | awk -F '\t' '
        function close_group() { if (n) median[of, engine] = n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2; n = 0 }
        { now = $2 "\t" $4 "\t" $5 }
        now != of || $3 != engine { close_group() }
        now != of { order[++groups] = now }
        { of = now; engine = $3; v[++n] = $6; if (n > most) most = n }
        END {
            close_group()
            print "binlog\ttest\tthreads\tInnoDB\tMyRocks\tTREFOIL\tby the better"
            for (g = 1; g <= groups; g++) {
                i = median[order[g], "InnoDB"]; r = median[order[g], "RocksDB"]; t = median[order[g], "TREFOIL"]; better = i > r ? i : r
                printf "%s\t%d\t%d\t%d\t%s\n", order[g], i, r, t, better ? sprintf("%.2f", t / better) : "-"
            }
            print "medians of at most " most " turns"
        }'
}

# $1: turns; $2: the folder.
speed() {
    local turns=${1:-5} turn binlog engine lab
    SPEED=${2:-$TARGET/speed}
    mkdir -p "$SPEED"
    touch "$SPEED/sysbench.tsv"
    locate
    sysbench_tree
    fetch_rocksdb
    private_libraries "$CACHE/sysbench/root"
    for ((turn = 1; turn <= turns; turn++)); do
        for binlog in off on; do
            for engine in "${SPEED_ENGINES[@]}"; do speed_turn "$turn" "$binlog" "$engine"; done
        done
    done
    speed_table
    [ -z "${TREFOIL_SPEED_SYSBENCH_ONLY:-}" ] || return 0
    lab=("${CARGO:-cargo}" run --quiet --release --locked --manifest-path "$REPO/Cargo.toml" -p lab -- run)
    sed "s/^durability = /repeat = $turns\n&/" "$HERE/test/speed.toml" > "$SPEED/speed.toml.new"
    if [ -d "$SPEED/lab" ] && cmp -s "$SPEED/speed.toml.new" "$SPEED/speed.toml"; then
        "${lab[@]}" --resume "$SPEED/lab" "$SPEED/speed.toml"
    else
        mv "$SPEED/speed.toml.new" "$SPEED/speed.toml"
        # shellcheck disable=SC2086
        "${lab[@]}" "$SPEED/speed.toml" --out "$SPEED/lab" ${TREFOIL_SPEED_SCALE:+--scale $TREFOIL_SPEED_SCALE}
    fi
}
