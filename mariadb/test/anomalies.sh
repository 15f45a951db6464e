# SPDX-License-Identifier: GPL-2.0-only
# The anomaly matrix by SQL: scripts of sessions (anomalies/*.case), run on InnoDB and TREFOIL in one server at all four
# isolation levels; what each statement answers and whom it waits for is written down and compared. Sourced by mariadb.sh.
#
#   case NAME
#   differs LEVELS [before VERSION]: why    here the two do not do the same, and that is known, of servers before that version alone
#                               if one is named; LEVELS of ru, rc, rr, ser
#   setup: SQL                  behind the table t that each case begins with
#   1: SQL                      session 1 says so; whoever can goes on, and the script goes on when all others wait
#   1!                          until session 1 has its answer: a wait that ends by itself
#
# ENGINE in a statement stands for the engine's name in small letters. A session waits if the engine counts as many waits
# for locks as there are sessions without an answer. TREFOIL's READ UNCOMMITTED is READ COMMITTED, so there InnoDB's
# answers of either level are right. What differs is run again, and counts if it differs three times.

LEVELS=(ru rc rr ser)
declare -A LEVEL=([ru]='READ UNCOMMITTED' [rc]='READ COMMITTED' [rr]='REPEATABLE READ' [ser]='SERIALIZABLE')
declare -A WAITING=([innodb]=Innodb_row_lock_current_waits [trefoil]=Trefoil_lock_waiting)
SESSIONS=(1 2 3)

# One client that reads statements from a pipe. IN, OUT: ends of its pipes by the session's name.
anomaly_session() {
    local name=$1 engine=$2 to=$WORK/to.$2.$1 from=$WORK/from.$2.$1 fd
    mkfifo "$to" "$from"
    client --force -N -B --unbuffered < "$to" > "$from" 2>&1 &
    exec {fd}> "$to"
    IN[$name]=$fd
    exec {fd}< "$from"
    OUT[$name]=$fd
    rm "$to" "$from"
    REST[$name]='' SAID[$name]='' OWED[$name]=0 ECHO[$name]=0
}

# A statement and a mark behind it.
tell() {
    printf '%s;\nSELECT CONCAT("=> ", ROW_COUNT());\n' "$2" >&"${IN[$1]}"
    OWED[$1]=$((OWED[$1] + 1))
}

# Takes what a session has said, for at most a moment of silence; succeeds once it owes no answer.
listen() {
    local line
    while [ "${OWED[$1]}" -gt 0 ]; do
        if ! IFS= read -r -t "$2" -u "${OUT[$1]}" line; then
            REST[$1]+=$line
            return 1
        fi
        line=${REST[$1]}$line REST[$1]=
        case $line in
            '=> '*)
                OWED[$1]=$((OWED[$1] - 1))
                [ "${line#=> }" = -1 ] || SAID[$1]+="${line#=> } rows; "
                ;;
            ERROR*) line=${line#ERROR }; SAID[$1]+="error ${line%% *}; " ;;
            # What failed is repeated between two such lines.
            --------------) ECHO[$1]=$((1 - ECHO[$1])) ;;
            *) [ "${ECHO[$1]}" = 1 ] || SAID[$1]+="${line//$'\t'/,}; " ;;
        esac
    done
}

# A statement of the monitor, answered with one line.
ask() {
    tell monitor "$1"
    listen monitor 60 || die "the server does not answer: $1"
    ANSWER=${SAID[monitor]%'; '} SAID[monitor]=
}

# Goes on when each session has answered or waits for a lock.
settle() {
    local engine=$1 until=${2:-} name left calm=0 tries
    for ((tries = 0; tries < 1000; tries++)); do
        left=0
        for name in "${SESSIONS[@]}"; do
            listen "$name" 0.02 || left=$((left + 1))
        done
        [ "$left" -gt 0 ] || break
        [ -z "$until" ] || { [ "${OWED[$until]}" -gt 0 ] && continue; }
        ask "SHOW GLOBAL STATUS LIKE '${WAITING[$engine]}'"
        # Whoever is let go on is counted until it runs: twice the same, and nothing said between.
        if [ "${ANSWER##*,}" = "$left" ]; then calm=$((calm + 1)); else calm=0; fi
        [ "$calm" -lt 2 ] || break
    done
    [ "$tries" -lt 1000 ] || echo '   no end of it'
    for name in "${SESSIONS[@]}"; do
        [ -z "${SAID[$name]}" ] || printf '   %s= %s\n' "$name" "${SAID[$name]%'; '}"
        [ "${OWED[$name]}" = 0 ] || printf '   %s waits\n' "$name"
        SAID[$name]=
    done
}

begin_case() {
    local engine=$1 level=$2 name
    ask "DROP DATABASE IF EXISTS a_$engine"
    ask "CREATE DATABASE a_$engine"
    ask "USE a_$engine"
    ask "SET default_storage_engine = $engine"
    ask 'CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT, KEY k (k))'
    ask 'INSERT INTO t VALUES (10, 1, 100), (20, 2, 200), (30, 3, 300), (40, 4, 400)'
    for name in "${SESSIONS[@]}"; do
        tell "$name" "USE a_$engine"
        tell "$name" "SET SESSION TRANSACTION ISOLATION LEVEL ${LEVEL[$level]}"
        tell "$name" "SET autocommit = 1, ${engine}_lock_wait_timeout = 50"
        listen "$name" 60 || die "the server does not answer session $name"
        SAID[$name]=
    done
}

# Whoever is left waits for one of the others, who go first.
end_case() {
    local engine=$1 name tries left=1
    for ((tries = 0; tries < 4 && left; tries++)); do
        left=0
        for name in "${SESSIONS[@]}"; do
            if [ "${OWED[$name]}" -gt 0 ]; then left=1; else tell "$name" 'ROLLBACK'; fi
        done
        settle "$engine" > "$WORK/ends.$engine"
    done
    ask 'SELECT GROUP_CONCAT(id, ":", k, ":", v ORDER BY id) FROM t WHERE id <= 1000'
    printf '   at the end %s\n' "$ANSWER"
}

# What one engine does in the cases named, or in all: a file for each and its level.
play() {
    local engine=$1 out=$2 level line file case=
    shift 2
    local -A IN OUT REST SAID OWED ECHO
    local name ANSWER
    for name in "${SESSIONS[@]}" monitor; do
        anomaly_session "$name" "$engine"
    done
    for level in "${LEVELS[@]}"; do
        for file in "$HERE"/test/anomalies/*.case; do
            while IFS= read -r line || [ -n "$line" ]; do
                case $line in
                    'case '*)
                        [ -z "$case" ] || end_case "$engine" >> "$out/$case.$level"
                        case=${line#case }
                        case " $* " in *" $case.$level "* | '  ') ;; *) case= ;; esac
                        [ -z "$case" ] || begin_case "$engine" "$level"
                        [ -z "$case" ] || : > "$out/$case.$level"
                        ;;
                    'setup: '*) [ -z "$case" ] || ask "${line#setup: }" ;;
                    [1-9]!) [ -z "$case" ] || settle "$engine" "${line%!}" >> "$out/$case.$level" ;;
                    [1-9]:*) [ -z "$case" ] || step "$engine" "$line" >> "$out/$case.$level" ;;
                esac
            done < "$file"
            [ -z "$case" ] || end_case "$engine" >> "$out/$case.$level"
            case=
        done
    done
}

step() {
    local engine=$1 name=${2%%:*}
    printf '%s\n' "$2"
    local statement=${2#*: }
    tell "$name" "${statement//ENGINE/$engine}"
    settle "$engine"
}

# Known differences: a line CASE.LEVEL for each.
known_differences() {
    awk -v version="$VERSION" '
        function number(v, part) { split(v, part, "."); return part[1] * 100 + part[2] }
        /^case / { name = $2 }
        /^differs / {
            sub(/:.*/, "")
            if ($(NF - 1) == "before") { if (number(version) >= number($NF)) next; NF -= 2 }
            for (n = 2; n <= NF; n++) print name "." $n
        }' "$HERE"/test/anomalies/*.case
}

# Cases, with their levels, in which the two do not do the same.
different() {
    local file name
    for file in "$WORK"/anomalies/innodb/*; do
        name=${file##*/}
        cmp -s "$file" "$WORK/anomalies/trefoil/$name" && continue
        [ "${name##*.}" = ru ] && cmp -s "${file%.ru}.rc" "$WORK/anomalies/trefoil/$name" && continue
        printf '%s\n' "$name"
    done
}

play_both() {
    local engine pids=()
    for engine in innodb trefoil; do
        mkdir -p "$WORK/anomalies/$engine"
        play "$engine" "$WORK/anomalies/$engine" "$@" &
        pids+=($!)
    done
    wait "${pids[@]}"
}

anomalies() {
    local known=" $(known_differences | paste -sd' ') " found name level why
    restart_with --innodb=ON --innodb-flush-log-at-trx-commit=0 --trefoil-flush-log-at-commit=0
    play_both "$@"
    found=$(different)
    for name in 1 2; do
        # shellcheck disable=SC2086
        [ -z "$found" ] || play_both $found ${found//.ru/.rc}
        found=$(different)
    done
    for level in "${LEVELS[@]}"; do
        why=$(
            for name in $(cd "$WORK/anomalies/innodb" && ls -- *."$level"); do
                case "$known" in *" $name "*) is_known=1 ;; *) is_known=0 ;; esac
                if [[ $'\n'$found$'\n' == *$'\n'$name$'\n'* ]]; then
                    [ "$is_known" = 1 ] || diff -U 100 "$WORK/anomalies/innodb/$name" "$WORK/anomalies/trefoil/$name" || true
                else
                    [ "$is_known" = 0 ] || echo "$name: the same now, and listed as different"
                fi
                grep -HE 'error 1(046|054|064|146|193)|no end of it' "$WORK"/anomalies/*/"$name" || true
            done
        )
        [ -z "$why" ] || printf '%s\n' "$why"
        name="anomalies at ${LEVEL[$level]}, $(cd "$WORK/anomalies/innodb" && ls -- *."$level" | wc -l) cases"
        if [ -z "$why" ]; then verdict "$name" ok; else verdict "$name" FAILED; fi
    done
}
