# SPDX-License-Identifier: GPL-2.0-only
# A scratch server for tests, and their verdicts. Sourced by mariadb.sh.

PASSED=0
FAILED=0
verdict() {
    if [ "$2" = ok ]; then PASSED=$((PASSED + 1)); else FAILED=$((FAILED + 1)); fi
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

# Sets WORK and prepares a data directory in it, which goes when the test ends, however it ends.
scratch() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/trefoil-test.XXXXXX")
    TREFOIL_MARIADB_DATA=$WORK/data
    prepare
    # Servers of this test die where this file says, once it is there: kill_at.
    export TREFOIL_CRASH_AT=$WORK/crash
    trap '[ -z "${BESIDE:-}" ] || kill "$BESIDE" || true; stop_server || true; umount "$WORK"/data/trefoil 2> /dev/null || true; rm -rf "$WORK"' EXIT
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
