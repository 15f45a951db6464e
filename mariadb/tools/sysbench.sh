# SPDX-License-Identifier: GPL-2.0-only
# The packaged sysbench and its stock tests, unchanged, on ENGINE=TREFOIL. Sourced by mariadb.sh.
#
#   CACHE/sysbench/debs/  packages as fetched: sysbench and the libraries that this machine lacks
#   CACHE/sysbench/root/  the same unpacked

STOCK_TESTS=(oltp_point_select oltp_read_only select_random_points select_random_ranges oltp_read_write oltp_write_only
    oltp_update_index oltp_update_non_index oltp_insert oltp_delete bulk_insert)

sysbench_tree() {
    local dir=$CACHE/sysbench deb
    [ ! -d "$dir/root" ] || return 0
    say 'the package of sysbench (about 2 MB)'
    mkdir -p "$dir/debs"
    own_lists
    [ -n "$(apt_cache madison sysbench)" ] || update_lists
    apt_get install --download-only --no-install-recommends --reinstall sysbench > "$dir/packages.log" 2>&1 ||
        { log_tail "$dir/packages.log"; die 'the package of sysbench could not be fetched'; }
    find "$CACHE/apt/archives" -maxdepth 1 -name '*.deb' -exec mv -f -t "$dir/debs" {} +
    rm -rf "$dir/root.part"
    mkdir "$dir/root.part"
    for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root.part"; done
    mv "$dir/root.part" "$dir/root"
}

sysbench_program() {
    LUA_PATH="$CACHE/sysbench/root/usr/share/sysbench/?.lua" "$CACHE/sysbench/root/usr/bin/sysbench" --db-driver=mysql \
        --mysql-socket="$SOCKET" --mysql-user=root --mysql-db=sbtest --mysql_storage_engine=TREFOIL "$@"
}

# With arguments: those, such as `oltp_read_write --tables=4 prepare`, on the server's lasting data. Without: each stock
# test for a moment, on data of its own.
sysbench() {
    sysbench_tree
    if [ $# -gt 0 ]; then
        prepare
    else
        scratch
    fi
    private_libraries "$CACHE/sysbench/root"
    start_server
    check_engine
    client -e 'CREATE DATABASE IF NOT EXISTS sbtest'
    if [ $# -gt 0 ]; then
        sysbench_program "$@"
    else
        stock_tests
        verdicts
    fi
}

stock_tests() {
    local name step
    for name in "${STOCK_TESTS[@]}"; do
        for step in prepare run cleanup; do
            sysbench_program "$name" --tables=1 --table-size=10000 --threads=4 --time=3 "$step" > "$WORK/$name.$step" 2>&1 ||
                { tail -5 "$WORK/$name.$step" | cut -c 1-200; break; }
        done
        if [ -s "$WORK/$name.cleanup" ] && ! grep -qi "fatal" "$WORK/$name".*; then
            verdict "sysbench $name,$(sed -n 's/.*transactions: *[0-9]* *(\(.*\) per sec.)/ \1 transactions a second/p' "$WORK/$name.run")" ok
        else
            verdict "sysbench $name" FAILED
        fi
    done
    [ "$(client -N -e "SELECT COUNT(*) FROM information_schema.TABLES WHERE table_schema = 'sbtest'")" = 0 ] ||
        verdict 'sysbench left tables' FAILED
}
