# SPDX-License-Identifier: GPL-2.0-only
# Sessions that wait for a row leave the thread pool to others: its one thread goes on with who holds the row. Sourced by
# smoke.sh.

# More of them wait than the pool runs beside each other, and it takes a minute to find out by itself.
pool_goes_on() {
    end_server
    start_server "${SERVER_ARGS[@]}" --thread-handling=pool-of-threads --thread-pool-size=1 --thread-pool-stall-limit=60000 \
        --trefoil-lock-wait-timeout=50 2> /dev/null
    check pool
    end_server
    start_server "${SERVER_ARGS[@]}" 2> /dev/null
}

check_pool() {
    local name begun
    for name in c d e f g h; do
        open_session "$name"
    done
    say_to a 'BEGIN;' 'UPDATE t SET v = 100 WHERE id = 1;'
    for name in b c d e f g h; do
        send "$name" 'UPDATE t SET v = v + 1 WHERE id = 1;'
    done
    sleep 1
    begun=$SECONDS
    say_to a 'COMMIT;'
    for name in b c d e f g h; do
        until_done "$name"
    done
    [ $((SECONDS - begun)) -lt 10 ] || echo "the commit took $((SECONDS - begun)) seconds"
    expect "$(say_to a 'SELECT v FROM t WHERE id = 1;')" 107
}
