# SPDX-License-Identifier: GPL-2.0-only
# A scratch server for tests, and their verdicts. Sourced by mariadb.sh.

PASSED=0
FAILED=0
verdict() {
    if [ "$2" = ok ]; then PASSED=$((PASSED + 1)); else FAILED=$((FAILED + 1)); fi
    [ ! -e "${WORK:-}/came_to" ] || printf '%s\n' "$1" > "$WORK/came_to"
    printf 'test %s ... %s\n' "$1" "$2"
}

# Prints how many there were; fails if one did.
verdicts() {
    printf '%d passed, %d failed\n' "$PASSED" "$FAILED"
    [ "$FAILED" = 0 ]
}

# Files, or what comes in, without what TREFOIL_MARIADB_SERVER_ARGS changes and nobody looks for: which structure SHOW CREATE TABLE
# names, how wide that makes it, and the variables themselves.
without_asked() {
    if [ -z "${TREFOIL_MARIADB_SERVER_ARGS:-}" ]; then cat "$@"; return; fi
    sed "/^| trefoil_/d; $UNNAMED; s/---*/--/g; s/   */ /g" "$@"
}

# A check of this name, and what it printed if it went wrong.
judged() {
    local why
    why=$("${@:2}" 2>&1) || why+=' failed'
    if [ -z "$why" ]; then verdict "$1" ok; else printf '%s\n' "$why"; verdict "$1" FAILED; fi
}

value() { client -N -B -e "$1"; }

# What stands in a binary log. A server that was killed may have left a part of an event at its end, of which nobody was told: that is an
# error, behind all that is whole, which comes at once for that reason.
binlog_events() { client -N -B --quick -e "SHOW BINLOG EVENTS IN '$1'"; }

# Sets WORK and prepares a data directory in it, which goes when the test ends, however it ends.
scratch() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/trefoil-test.XXXXXX")
    TREFOIL_MARIADB_DATA=$WORK/data
    prepare
    # Whoever waits for a table longer is told so: by default it would be a day. And InnoDB ends no statement with 1020 that it did not
    # in 10.11, as it does by default since 11.6.2.
    TEST_ARGS='--lock-wait-timeout=300 --loose-innodb-snapshot-isolation=OFF'
    # Servers of this test die where this file says, once it is there: kill_at.
    export TREFOIL_CRASH_AT=$WORK/crash
    look_after
    trap 'ended "$?" "$BASH_COMMAND"; [ -z "${BESIDE:-}" ] || kill "$BESIDE" 2> /dev/null || true; stop_looking; stop_server || true; umount "$WORK"/data/trefoil 2> /dev/null || true; rm -rf "$WORK"' EXIT
}

# A test that ends before its verdicts says at which command; whoever exits has said why.
ended() {
    case $1:$2 in 0:* | *:exit* | *'"$FAILED"'*) ;; *) say "ended with status $1 by: $2" ;; esac
} 2>&7

# When a test has come to nothing for QUIET seconds its servers are asked, once, what they do: whoever ends it finds that in its log.
QUIET=${TREFOIL_QUIET:-240}
look_after() {
    stop_looking
    echo 'the first' > "$WORK/came_to"
    (trap - EXIT INT TERM
    local since told=
    # The sleep holds no output open: it may end later than the test.
    while sleep 10 7>&- && since=$(stat -c %Y "$WORK/came_to"); do
        (($(date +%s) - since < QUIET)) || [ "$told" = "$since" ] || { told=$since; say_what_servers_do >&7 2>&1; }
    done) > /dev/null 2>&1 &
    LOOKER=$!
}

stop_looking() {
    [ -z "${LOOKER:-}" ] || kill "$LOOKER" 2> /dev/null || true
    LOOKER=
}

say_what_servers_do() {
    printf 'nothing for %d seconds behind: test %s\n' "$QUIET" "$(cat "$WORK/came_to")"
    local socket
    for socket in $(find "$SOCKETS" -type s -name socket); do
        printf '%s: connections, waits for locks\n' "$socket"
        timeout 10 "$ROOT/bin/mariadb" --no-defaults --socket="$socket" --user=root --connect-timeout=5 --force -N -B -e "
            SELECT id, command, time, state, LEFT(info, 80) FROM information_schema.PROCESSLIST WHERE id <> CONNECTION_ID();
            SELECT * FROM information_schema.TREFOIL_LOCK_WAITS" || echo 'no answer'
    done
    tail -q -n 2 "$WORK"/{data,primary,replica}/error.log 2> /dev/null || true
}

# From now on, at a place and which time it is reached from now on. Known to builds with debug assertions alone.
kill_at() {
    printf '%s\n' "$1" > "$WORK/crash.part"
    mv "$WORK/crash.part" "$WORK/crash"
}

# Starts the server with other arguments than before.
restart_with() {
    SERVER_ARGS=("$@")
    [ -z "${SERVER:-}" ] || end_server
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
}
