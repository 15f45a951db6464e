# SPDX-License-Identifier: GPL-2.0-only
# A private server: a socket, no network, a data directory of its own; ended by its process number. Sourced by mariadb.sh.

server_program() { printf '%s\n' "$ROOT/sbin/mariadbd"; }

# The same where it is started by a script (packages.sh).
server_elf() { if [ -e "$ROOT/sbin/mariadbd.own" ]; then printf '%s\n' "$ROOT/sbin/mariadbd.own"; else server_program; fi; }

# Libraries that the machine lacks are beside the server, or in the tree that is named.
private_libraries() {
    local dirs
    # Programs that have a loader of their own find them by it.
    [ ! -e "${1:-$DIR/root}/loader" ] || return 0
    dirs=$(find "${1:-$DIR/root}" -name 'lib*.so.*' -path '*/lib/*' -printf '%h\n' | sort -u | paste -sd:)
    export LD_LIBRARY_PATH=$dirs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# Sets DATA and SOCKET. The path of a socket has at most 107 bytes, so it lies in a short directory; temporary tables lie
# beside it, because a server that starts removes what others have of them in a directory shared.
prepare() {
    locate
    private_libraries
    [ -n "${WITHOUT_ENGINE:-}" ] || check_version
    DATA=${TREFOIL_MARIADB_DATA:-$DIR/data}
    SOCKETS=$(mktemp -d /tmp/trefoil-mariadb.XXXXXX)
    SOCKET=$SOCKETS/socket
    SERVER=
    trap stop_server EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [ ! -d "$DATA/mysql" ]; then
        say "a new data directory in $DATA"
        rm -rf "$DATA.part"
        mkdir -p "$DATA.part"
        # By force: without, it wants the names of this machine looked up, and a bare one has none. Nobody comes by network.
        TMPDIR=$SOCKETS "$ROOT/bin/mariadb-install-db" --no-defaults --basedir="$ROOT" --datadir="$DATA.part" --user="$(id -un)" --force \
            --auth-root-authentication-method=normal --skip-test-db > "$DIR/install.log" 2>&1 ||
            { log_tail "$DIR/install.log"; die "mariadb-install-db failed"; }
        mkdir -p "$(dirname "$DATA")"
        rm -rf "$DATA"
        mv "$DATA.part" "$DATA"
    fi
}

# What this shell has open for its clients is not the server's: a client that waits for the end of a pipe would wait for the server's.
close_pipes() {
    local fd
    for fd in /proc/self/fd/*; do
        fd=${fd##*/}
        ((fd < 10 || fd == 255)) || eval "exec $fd>&-"
    done
}

# A server that ended for a reason of its own says it in its log. Told to whoever started this script, also where it is kept from telling
# that a server was killed.
gone() {
    SERVER=
    tail -n 80 "$ERRORS" >&7
    die "$1; see $ERRORS"
} 2>&7

# Starts the server and returns when it answers. What the environment asks for comes last, so it counts.
start_server() {
    # shellcheck disable=SC2086
    set -- ${TEST_ARGS:-} "$@" ${TREFOIL_MARIADB_SERVER_ARGS:-}
    ERRORS=$DATA/error.log
    # Whoever asks InnoDB alone needs nothing that is built here.
    [ -n "${WITHOUT_ENGINE:-}" ] ||
        set -- --plugin-dir="$PLUGINS" --plugin-maturity=experimental --plugin-load-add=ha_trefoil.so "$@"
    (close_pipes
    exec "$(server_program)" --no-defaults --basedir="$ROOT" --lc-messages-dir="$MESSAGES" --datadir="$DATA" \
        --socket="$SOCKET" --pid-file="$SOCKETS/pid" --tmpdir="$SOCKETS" --skip-networking \
        --user="$(id -un)" --log-error="$ERRORS" "$@" < /dev/null) &
    SERVER=$!
    local tries=0
    until client --silent -e 'DO 1' > /dev/null 2>&1; do
        kill -0 "$SERVER" 2> /dev/null || gone "the server did not start"
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || { die "the server does not answer; see $ERRORS"; } 2>&7
        sleep 0.04
    done
}

# A server whose engine did not start goes on without it.
check_engine() {
    [ "$(client -N -e "SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE = 'TREFOIL'")" = 1 ] && return 0
    grep -iE 'trefoil|plugin' "$ERRORS" | tail -5 >&2
    say "the server runs without ENGINE=TREFOIL; see $ERRORS"
}

end_server() {
    [ -n "${SERVER:-}" ] || return 0
    kill "$SERVER" 2> /dev/null || true
    # Somebody's own server has the time it needs.
    [ -z "${TEST_ARGS:-}" ] || await_end 180
    wait "$SERVER" 2> /dev/null || true
    SERVER=
}

# One that does not end in so many seconds is killed, and that is a test's failure.
await_end() {
    local began=$SECONDS
    while kill -0 "$SERVER" 2> /dev/null; do
        if ((SECONDS - began > $1)); then
            say "the server does not end; see $ERRORS"
            ! command -v gdb > /dev/null || gdb -p "$SERVER" -batch -ex 'thread apply all bt 30' 2> /dev/null >&2 || true
            tail -n 20 "$ERRORS" >&2 || true
            FAILED=$((${FAILED:-0} + 1))
            kill -KILL "$SERVER"
            return 0
        fi
        sleep 0.05
    done
}

stop_server() {
    local status=$?
    end_server
    rm -rf "${SOCKETS:-}"
    return $status
}

kill_server() {
    kill -KILL "$SERVER" 2> /dev/null || gone "the server had ended before it was to be killed"
    wait "$SERVER" 2> /dev/null || true
    SERVER=
}

client() { "$ROOT/bin/mariadb" --no-defaults --socket="$SOCKET" --user=root "$@"; }

serve() {
    prepare
    start_server "$@"
    check_engine
    say "MariaDB $VERSION with ENGINE=TREFOIL; Ctrl-C ends it. A client:"
    say "  $ROOT/bin/mariadb --no-defaults --socket=$SOCKET --user=root"
    wait "$SERVER" || true
}

run_client() {
    prepare
    start_server
    check_engine
    if [ -t 0 ]; then
        say "MariaDB $VERSION with ENGINE=TREFOIL, data in $DATA; the server ends with this client"
        client "$@" || true
    else
        client "$@"
    fi
}
