# SPDX-License-Identifier: GPL-2.0-only
# A large table of InnoDB comes here and goes back, as docs/MIGRATING.md has it: how long that takes, what SHOW PROCESSLIST says
# meanwhile, and what is left when the server, or the statement, is killed half-way. Sourced by mariadb.sh.

# How many percent of its rows the ALTER has copied, such as 43.210; empty if none runs. What comes behind them takes a moment.
percent_of_alter() {
    value "SELECT IF(STAGE = 1, PROGRESS, 100) FROM information_schema.PROCESSLIST
        WHERE INFO LIKE 'ALTER TABLE big ENGINE%' AND MAX_STAGE > 0"
}

# The connection of the ALTER; empty if none runs. A list may lack what a connection runs, if that holds its lock just then (`Busy`): not again
# and again.
id_of_alter() {
    local tries id=
    for ((tries = 0; tries < 5 && ${#id} == 0; tries++)); do
        ((tries == 0)) || sleep 0.01
        id=$(value "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER TABLE big ENGINE%'")
    done
    printf '%s' "$id"
}

# Follows the ALTER of session a until it is as far as that, or done; what it says goes to WORK/percents, the last of it to PERCENT.
follow_alter() {
    local upto=$1 now
    : > "$WORK/percents"
    PERCENT=0
    until_alter_runs
    while [ -n "$(id_of_alter)" ]; do
        now=$(percent_of_alter)
        [ -z "$now" ] || { printf '%s\n' "$now" >> "$WORK/percents"; PERCENT=$now; }
        if awk -v at="$PERCENT" -v upto="$upto" 'BEGIN { exit !(at >= upto) }'; then break; fi
        sleep 0.05
    done
}

until_alter_runs() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [ -z "$(id_of_alter)" ] || return 0
        sleep 0.02
    done
}

# What was said only grew, and was more than a beginning and an end.
check_percents() {
    awk '$1 + 0.001 < last { print "progress went back from", last, "to", $1 } { last = $1; seen[int($1 / 5)] = 1 }
        END { for (i in seen) n++; if (n < 4) print "progress was seen", NR, "times, in", n + 0, "parts of twenty" }' "$WORK/percents"
}

sum_of_big() { value 'CHECKSUM TABLE s.big EXTENDED' | cut -f 2; }
engine_of_big() { value "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 's' AND TABLE_NAME = 'big'"; }

# It is as it was, in its old engine, sound, and nothing lies beside it.
check_as_before() {
    expect "$(engine_of_big) $(sum_of_big)" "$1 $2"
    expect "$(value 'CHECK TABLE s.big QUICK' | cut -f 4)" OK
    expect "$(find "$DATA/s" -name '#sql*')" ''
    expect "$(value "SELECT COUNT(*) FROM information_schema.TREFOIL_INDEXES WHERE TABLE_NAME LIKE '#sql%'")" 0
}

big_table() {
    client < "$HERE/test/sessions.sql"
    client s -e "CREATE TABLE big (id INT PRIMARY KEY, k INT, c CHAR(60), d DATETIME, KEY (k), KEY (d, k)) ENGINE=InnoDB;
        INSERT INTO big SELECT seq, CRC32(seq) % 1000000, MD5(seq), '2026-01-01' + INTERVAL seq SECOND FROM seq_1_to_$1;
        ANALYZE TABLE big" > "$WORK/analyzed"   # progress is of the rows that InnoDB knows of: killed, it has forgotten what it had not written down
}

# One way: the server is killed half-way, then the statement, then it comes to its end. The seconds of that are printed.
move_one_way() {
    local to=$1 from=$2 sum=$3 began
    send a "ALTER TABLE big ENGINE=$to;"
    follow_alter 50
    kill_server
    close_sessions
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    printf 'the server was killed at %s %% of %s to %s\n' "$PERCENT" "$from" "$to" >&3
    awk -v at="$PERCENT" 'BEGIN { if (at < 30) print "it was killed at", at, "percent, which is not half-way" }'
    check_as_before "$from" "$sum"
    open_session a
    send a "ALTER TABLE big ENGINE=$to;"
    follow_alter 50
    value "KILL QUERY $(id_of_alter)"
    expect_error "$(until_done a)" 1317
    check_as_before "$from" "$sum"
    began=$EPOCHREALTIME
    send a "ALTER TABLE big ENGINE=$to;"
    follow_alter 101
    awk -v began="$began" -v now="$EPOCHREALTIME" -v what="$from to $to" 'BEGIN { printf "%s took %.1f s\n", what, now - began }' >&3
    expect "$(until_done a)" ''
    check_percents
    check_as_before "$to" "$sum"
}

# $1: rows.
moving() {
    local rows=${1:-1000000} sum way
    scratch
    SERVER_ARGS=(--innodb=ON --innodb-buffer-pool-size=128M --trefoil-buffer-size=128M --default-storage-engine=Aria)
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
    check_engine
    big_table "$rows"
    sum=$(sum_of_big)
    exec 3>&1
    for way in 'TREFOIL InnoDB' 'InnoDB TREFOIL'; do
        open_session a
        # shellcheck disable=SC2086
        move_one_way $way "$sum" > "$WORK/why" 2>&1 || echo 'it failed' >> "$WORK/why"
        close_sessions
        if [ -s "$WORK/why" ]; then cat "$WORK/why"; verdict "moving $rows rows, $way" FAILED; else verdict "moving $rows rows, $way" ok; fi
    done
    exec 3>&-
}
