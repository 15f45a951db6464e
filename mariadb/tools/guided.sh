# SPDX-License-Identifier: GPL-2.0-only
# The engine built for what statements run most: its compiler is told what a run of sysbench's stock tests has come by, and puts the rest out
# of the way. A statement that changes a row runs through some 1,900 cache lines of the engine's code, nearly each of them once; a
# first-level cache has 512 (decision 0023). Sourced by mariadb.sh.
#
#   FILE             what `profile` writes and TREFOIL_GUIDED_BY names: for the same sources and compiler; of others what still fits is used
#   TARGET/training  what counts, and TARGET/guided what was guided: other flags would build everything below anew each time

GUIDED_ROWS=20000
GUIDED_SECONDS=4

if [ -n "${TREFOIL_GUIDED_BY:-}" ]; then
    [ -s "$TREFOIL_GUIDED_BY" ] || die "there is no profile in $TREFOIL_GUIDED_BY; \`mariadb/mariadb.sh profile\` writes one"
    BUILDS=$TARGET/guided
    export RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-use=$(realpath "$TREFOIL_GUIDED_BY")"
fi

# The compiler's own: others do not read what it counts.
profdata() {
    local tool
    tool=$("${RUSTC:-rustc}" --print target-libdir)/../bin/llvm-profdata
    [ -x "$tool" ] || die "the compiler's llvm-profdata is needed; \`rustup component add llvm-tools\` brings it"
    printf '%s\n' "$tool"
}

profile() {
    local file=${1:-$TARGET/trefoil.profdata} tool counts name step
    # The server counts from a directory of its own.
    counts=$(realpath -m "$TARGET/training/counts")
    [ -z "${TREFOIL_GUIDED_BY:-}" ] || die 'TREFOIL_GUIDED_BY is for builds; a profile is taken without'
    tool=$(profdata)
    sysbench_tree
    rm -rf "$counts"
    BUILDS=$TARGET/training
    # The archive's own start of counting is nobody's symbol: without this it is not linked.
    RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-generate=$counts" GUIDED_LINK=-Wl,-u,__llvm_profile_runtime build
    scratch
    private_libraries "$CACHE/sysbench/root"
    start_server --skip-name-resolve
    check_engine
    client -e 'CREATE DATABASE IF NOT EXISTS sbtest'
    for name in "${STOCK_TESTS[@]}"; do
        say "counting what $name runs"
        for step in prepare run cleanup; do
            sysbench_program "$name" --tables=1 --table-size=$GUIDED_ROWS --threads=4 --time=$GUIDED_SECONDS "$step" > "$WORK/$name.$step" 2>&1 ||
                { tail -5 "$WORK/$name.$step" | cut -c 1-200 >&2; die "$name failed at $step"; }
        done
    done
    # The counts are written as the server ends.
    end_server
    "$tool" merge -o "$file.$$" "$counts"
    mv "$file.$$" "$file"
    say "TREFOIL_GUIDED_BY=$file has builds, packages and measurements guided by it"
}
