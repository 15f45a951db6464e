# SPDX-License-Identifier: GPL-2.0-only
# What the lab's driver costs beside others: the same statements to one server with InnoDB, by the packaged sysbench, by the
# public insert benchmark's own client, and by the lab, each on one processor of its own, in turns. Sourced by mariadb.sh.
#
# What is held against what: points as prepared statements; single inserts as text, which is how sysbench sends them; inserts
# of a hundred rows and IN lists of ten keys as text, as the insert benchmark's client does. Same socket, same rows, all of them
# in the server's memory, one client, every statement a transaction.
#
# The client's processor time is that of its whole process in user and system mode: of sysbench and iibench.py from start to end,
# which over 20 seconds is one part in a thousand more than their statements; of the lab during the step, with the threads that
# watch it and without the load. What the server takes is in neither.
#
# The insert benchmark's client is no package of a registry: MYTOOLS names a checkout of mdcallag/mytools, and PYTHON a python
# that has MySQLdb (package python3-mysqldb, or `pip install mysqlclient`). Without it the lab is held against sysbench alone.

DRIVER_ROWS=100000

# The server is on the first processor, who asks on the last one; of a machine with a single one nobody can be kept apart.
# drive NAME COMMAND...: runs it there; its output is in WORK/NAME, its processor seconds in WORK/NAME.cpu.
drive() {
    local name=$1
    shift
    (
        exec > "$WORK/$name" 2> "$WORK/$name.err"
        [ "$(nproc)" -le 1 ] || taskset -a -c -p $(($(nproc) - 1)) "$BASHPID"
        "$@" || exit
        # The second line is of the children, as in 0m1.250s 0m0.125s.
        times > "$WORK/$name.times"
    ) || { tail -n 5 "$WORK/$name" "$WORK/$name.err" >&2; die "$name failed"; }
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, "m"); all += part[1] * 60 + part[2] } print all }' \
        "$WORK/$name.times" > "$WORK/$name.cpu"
}

# told WHAT DRIVER RATE US: a line of the table, kept for the verdicts.
told() { printf '%s\t%s\t%.0f\t%.2f\n' "$1" "$2" "$3" "$4" | tee -a "$WORK/table"; }

drivers() {
    local seconds=${1:-20} turns=${2:-3} turn lab=${LAB:-}
    case $seconds$turns in *[!0-9]*) die 'drivers [SECONDS [TURNS]]: both are whole numbers' ;; esac
    sysbench_tree
    if [ -z "$lab" ]; then
        (cd "$REPO" && "${CARGO:-cargo}" build --release --locked -p lab) || die 'the lab was not built'
        lab=$TARGET/release/lab
    fi
    [ -x "$lab" ] || die "there is no program $lab: LAB names one, or leave it out"
    WITHOUT_ENGINE=1
    scratch
    private_libraries "$CACHE/sysbench/root"
    start_server --innodb-buffer-pool-size=1G --innodb-log-file-size=1G --innodb-flush-log-at-trx-commit=2 --max-connections=100
    taskset -a -c -p 0 "$SERVER" > /dev/null 2>&1 || say 'taskset is missing: server and clients share processors'
    client -e 'CREATE DATABASE sbtest; CREATE DATABASE lab DEFAULT CHARACTER SET latin1; CREATE DATABASE ib'
    : > "$WORK/table"
    [ -n "${MYTOOLS:-}" ] || say 'skipped: the public insert-benchmark client, clone mdcallag/mytools and set MYTOOLS to its folder'
    printf 'what\tdriver\ta second\tclient us\n'
    for ((turn = 0; turn < turns; turn++)); do
        driver_sysbench "$seconds"
        driver_lab_sysbench "$lab" "$seconds"
        [ -n "${MYTOOLS:-}" ] || continue
        driver_python "$seconds"
        driver_lab_ibench "$lab" "$seconds"
    done
    driver_medians
    driver_verdict insert sysbench 1.0
    driver_verdict point-query sysbench 1.0
    if [ -n "${MYTOOLS:-}" ]; then
        driver_verdict insert-100 iibench.py 1.2
        driver_verdict point-query-10 iibench.py 1.2
    fi
    verdicts
}

# Of each work and driver: the median of its turns, and the least and the most.
driver_medians() {
    sort -t "$(printf '\t')" -k 1,2 -k 4,4n "$WORK/table" > "$WORK/sorted"
    awk -F'\t' '
        function median(v, n) { return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }
        function sorted(v, n, i, j, x) { for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { x = v[j]; v[j] = v[j - 1]; v[j - 1] = x } }
        function close_group() {
            if (!n) return
            sorted(rate, n)
            printf "%s\t%s\t%.0f\t%.2f\t%.0f\t%.0f\t%.1f\t%.1f\n", what, driver, median(rate, n), median(us, n), rate[1], rate[n], us[1], us[n]
            n = 0
        }
        $1 != what || $2 != driver { close_group(); what = $1; driver = $2 }
        { n++; rate[n] = $3 + 0; us[n] = $4 + 0 }
        END { close_group() }' "$WORK/sorted" > "$WORK/medians"
    awk -F'\t' 'BEGIN { print "medians [least-most]" }
        { printf "%s\t%s\t%s [%s-%s] a second\t%.1f [%s-%s] us\n", $1, $2, $3, $5, $6, $4, $7, $8 }' "$WORK/medians"
}

driver_sysbench() {
    local seconds=$1 test ops name
    for test in point_select insert; do
        local arguments=("oltp_$test" --tables=1 --table-size=$DRIVER_ROWS --threads=1 --time="$seconds" --mysql_storage_engine=InnoDB)
        sysbench_program "${arguments[@]}" prepare > "$WORK/prepare" || die 'sysbench did not prepare'
        drive "sysbench-$test" sysbench_program "${arguments[@]}" run
        sysbench_program "${arguments[@]}" cleanup > "$WORK/cleanup" || die 'sysbench did not clean up'
        ops=$(awk '/transactions:/ { print $2 }' "$WORK/sysbench-$test")
        [ "${ops:-0}" -gt 0 ] || die "sysbench $test did nothing"
        case $test in point_select) name=point-query ;; *) name=insert ;; esac
        told "$name" sysbench "$(awk -v ops="$ops" -v secs="$seconds" 'BEGIN { print ops / secs }')" \
            "$(awk -v ops="$ops" '{ print $1 * 1e6 / ops }' "$WORK/sysbench-$test.cpu")"
    done
}

# lab_told FOLDER STEP WHAT NUMBER: rate and processor time of a step of the lab's.
lab_told() {
    "${LAB_PROGRAM:?}" show "$1" --format csv | awk -F, -v step="$2" -v number="$4" '
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        $(column["step"]) == step { print $(column[number]), $(column["client_cpu_us_per_op"]) }' > "$WORK/told"
    # shellcheck disable=SC2046
    told "$3" lab $(head -1 "$WORK/told")
}

driver_lab_sysbench() {
    local test protocol
    LAB_PROGRAM=$1
    for test in point-query insert; do
        case $test in point-query) protocol=prepared ;; *) protocol=text ;; esac
        rm -rf "$WORK/lab1"
        drive "lab-$test" "$1" run sysbench --target "mysql://root@localhost/lab?engine=innodb&socket=$SOCKET&protocol=$protocol" \
            --tests "$test" --rows $DRIVER_ROWS --tables 1 --clients 1 --seconds "$2" --settle-seconds 0 --out "$WORK/lab1" --quiet
        lab_told "$WORK/lab1" "$test" "$test" qps_av
    done
}

driver_lab_ibench() {
    LAB_PROGRAM=$1
    rm -rf "$WORK/lab2"
    # Beside its point queries nearly nothing is inserted.
    drive lab-ibench "$1" run ibench --target "mysql://root@localhost/lab?engine=innodb&socket=$SOCKET&protocol=text" \
        --steps l.i0,l.x,qp1 --rows 100m --max-seconds "$2" --clients 1 --seconds "$2" --settle-seconds 0 --out "$WORK/lab2" --quiet
    lab_told "$WORK/lab2" l.i0 insert-100 ips_av
    lab_told "$WORK/lab2" qp1 point-query-10 qps_av
}

driver_python() {
    local seconds=$1 python=${PYTHON:-python3} program=$MYTOOLS/bench/ibench/iibench.py
    [ -f "$program" ] || program=$MYTOOLS/iibench.py
    [ -f "$program" ] || die "there is no iibench.py in $MYTOOLS"
    "$python" -c 'import MySQLdb' 2> /dev/null || die "$python has no MySQLdb: pip install mysqlclient, or PYTHON=another one"
    local common=("$python" "$program" --dbms=mysql --db_name=ib --db_socket="$SOCKET" --table_name=pi1 --engine=innodb --secs_per_report=1
        --num_secondary_indexes=0 --data_length_min=10 --data_length_max=20 --max_seconds="$seconds" --max_rows=100000000 --my_id=1)
    drive python-insert "${common[@]}" --rows_per_commit=100 --setup
    python_told python-insert 4 3 insert-100
    # Without inserts it knows no end: one row a second, as step qp1 has it.
    drive python-query "${common[@]}" --rows_per_commit=1 --inserts_per_second=1 --query_threads=1 --query_pk_only
    python_told python-query 8 7 point-query-10
}

# Of its lines with a number a second: the average so far, and the sum of what was done.
python_told() {
    awk -v average="$2" -v each="$3" 'NF >= 17 && $1 ~ /^[0-9.]+$/ { rate = $average; sum += $each * $1 } END { print rate, sum }' \
        "$WORK/$1" > "$WORK/told"
    # shellcheck disable=SC2046
    set -- "$1" "$4" $(cat "$WORK/told")
    [ "${4%.*}" -gt 0 ] || die "$1 did nothing that could be read"
    told "$2" iibench.py "$3" "$(awk -v ops="$4" '{ print $1 * 1e6 / ops }' "$WORK/$1.cpu")"
}

# At equal processor time of the client the lab's rate is at least so many times the other one's: operations of a second of the
# client's processor time. Rates as they are say what the server allows besides.
driver_verdict() {
    local line
    line=$(awk -F'\t' -v what="$1" -v other="$2" -v asked="$3" '
        $1 == what && $2 == other { theirs = $3; their_us = $4 }
        $1 == what && $2 == "lab" { ours = $3; our_us = $4 }
        END {
            of_time = our_us + 0 ? their_us / our_us : 0
            verdict = of_time >= asked + 0 ? "ok" : "FAILED"
            printf "%s %.2f %.2f", verdict, of_time, theirs + 0 ? ours / theirs : 0
        }' "$WORK/medians")
    set -- "$@" $line
    verdict "driver: $1 at $5 times the rate of $2 at equal processor time of the client, asked $3; as they ran $6" "$4"
}
