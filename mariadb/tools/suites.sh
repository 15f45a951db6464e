# SPDX-License-Identifier: GPL-2.0-only
# The server's own suites for storage engines, run for TREFOIL. Sourced by mariadb.sh.
#
#   CACHE/VERSION/suites/       the server, its clients, its tests in one tree, made from packages; tests write into it
#   CACHE/VERSION/suites.*.log  the last run of each group, with the difference of each test that failed
#   CACHE/suites.table          a line for each run
#
# What a test should print is what InnoDB prints. Of the group storage_engine the results in the package are older than
# its server: they are masked and recorded in the tree. Tests of other groups are copied in the tree with the engine's name
# changed (derived.sh). No test is kept here.

SUITES_NEEDED=(mariadb-test mariadb-test-data mariadb-server mariadb-client)
SUITES_LIBRARIES=(libpcre2-posix3)
# A table that is created without STRUCTURE keeps what trefoil_default_structure is, and says so if that is not `auto`.
UNNAMED="s/ *\`STRUCTURE\`='*\(btree\|betree\|lsm\)'*//g; s, /\*  *\*/,,g"
GROUPS_OF_TESTS=(storage_engine engines handler parts gcol period rocksdb foreign)
OVERLAID=(storage_engine storage_engine/trx storage_engine/parts)

# The first argument may be a group; the rest goes to the test runner.
suites() {
    locate
    command -v perl > /dev/null || die "the suites need perl"
    local group=storage_engine log tests
    case " ${GROUPS_OF_TESTS[*]} " in *" ${1:-} "*) group=$1; shift ;; esac
    log=$DIR/suites.$group.log
    exec 8> "$DIR/suites.lock"
    flock -n 8 || die 'the suites are running already'
    [ -d "$DIR/suites" ] || suites_tree
    tests=$(tests_in "$DIR/suites")
    # Those of an older checkout may lie there.
    rm -f "$tests"/plugin/trefoil/storage_engine/*.rdiff
    cp -r "$HERE/mysql-test/trefoil" "$tests/plugin/"
    ln -sfn "$PLUGINS/ha_trefoil.so" "$DIR/suites/usr/lib/mysql/plugin/ha_trefoil.so"
    say "the suites $group for TREFOIL, some minutes"
    local arg
    for arg in ${TREFOIL_MARIADB_SERVER_ARGS:-}; do set -- "$@" "--mysqld=$arg"; done
    case $group in
        storage_engine) overlaid "$tests" trefoil "$@" ;;
        engines) engine_suites "$tests" "$@" ;;
        *) derive "$tests" "$group" && derived "$tests" "$group" "$@" ;;
    esac > "$log" 2>&1 || true
    suites_table "$log" "$group $*"
}

# Every group, each a test: exactly those of mysql-test/known fail.
all_suites() {
    local group
    for group in "${GROUPS_OF_TESTS[@]}"; do judged "suites $group" fails_as_known "$group"; done
    verdicts
}

# What is otherwise: < is known to fail and passes, > fails and is not known to, or otherwise than known: a line may say what the
# difference is by eight digits of a checksum, and end with the server's versions that it is of: `before 11.8`, `since 11.8`.
fails_as_known() {
    local said
    said=$(suites "$1" 2>&1) || { printf '%s\n' "$said"; return 1; }
    awk -v group="$1" -v version="$VERSION" '
        function number(v, part) { split(v, part, "."); return part[1] * 100 + part[2] }
        FNR == NR {
            if ($1 != group || $(NF - 1) == "before" && number(version) >= number($NF) || $(NF - 1) == "since" && number(version) < number($NF)) next
            known[$2] = $3 ~ /^[0-9a-f]+$/ ? $3 : ""
            next
        }
        $1 != "failed" { next }
        $2 in known { if (known[$2] != "" && known[$2] != $3) print ">", $2, $3; delete known[$2]; next }
        { print ">", $2, $3 }
        END { for (name in known) print "<", name }' "$HERE/mysql-test/known" - <<< "$said" | sort
}

# Of the server's default engine.
engine_suites() {
    local tests=$1
    shift
    mtr "$tests" --suite=engines/iuds,engines/funcs --mysqld=--partition --mysqld=--innodb \
        --mysqld=--plugin-load-add=ha_trefoil.so --combination=--default-storage-engine=TREFOIL --suite-timeout=60 "$@"
}

# Whole once it has its name.
suites_tree() {
    local part=$DIR/suites.part tests
    rm -rf "$part"
    suites_packages
    say 'unpacking the suites (about 330 MB)'
    mkdir "$part"
    local deb
    for deb in "$DIR"/suites.debs/*.deb; do
        dpkg-deb -x "$deb" "$part"
    done
    own_loader "$DIR" && own_loader "$DIR" "$part"
    cp -rsn "$DIR/root/." "$part/"
    tests=$(tests_in "$part")
    record_reference "$tests"
    mv "$part" "$DIR/suites"
}

# Where the tests lie in a tree; since 11 under the server's own name.
tests_in() {
    local tests=$1/usr/share/mariadb/mariadb-test
    [ -d "$tests" ] || tests=$1/usr/share/mysql/mysql-test
    printf '%s\n' "$tests"
}

suites_packages() {
    local name
    say "packages of the suites of $(cat "$DIR/fetched") (about 38 MB)"
    mkdir -p "$DIR/suites.debs"
    for name in "${SUITES_NEEDED[@]}"; do
        package_into "$DIR/suites.debs" "$name" || { log_tail "$DIR/packages.log"; lacks_suites "$name"; }
    done
    lists_of_fetched
    (cd "$DIR/suites.debs" && apt_get download "${SUITES_LIBRARIES[@]}" >> ../packages.log 2>&1) ||
        { log_tail "$DIR/packages.log"; lacks_suites "${SUITES_LIBRARIES[*]}"; }
    # Programs with a loader of their own find libraries there.
    [ ! -e "$DIR/root/loader" ] || dpkg-deb -x "$DIR"/suites.debs/libpcre2-posix3_*.deb "$DIR/root"
}

lacks_suites() { die "the suites need $1 of $(cat "$DIR/fetched"), which is not to be had (TREFOIL_MARIADB_PACKAGES names a folder with it)"; }

# Names of collations are masked; what InnoDB then prints otherwise than the package has it is recorded; where the
# package has a patch for InnoDB, the patched result counts. Tests that are disabled for InnoDB and not here are run with it
# nevertheless: what it prints counts too.
record_reference() {
    local tests=$1 log=$DIR/suites.reference.log failing file dir
    say 'recording what InnoDB prints'
    sed -i 's,^--let $regex = /$storage_engine/<STORAGE_ENGINE>/i,& / COLLATE[= ]latin1_\\w+//,' \
        "$tests/suite/storage_engine/mask_engine.inc"
    overlaid "$tests" innobase > "$log" 2>&1 || true
    failing=$(names_of fail "$log")
    # shellcheck disable=SC2086
    [ -z "$failing" ] || mtr "$tests" --record $failing >> "$log" 2>&1 || true
    # shellcheck disable=SC2046
    mtr "$tests" --enable-disabled --record $(disabled_for_innodb "$tests") >> "$log" 2>&1 ||
        { log_tail "$log"; die 'what InnoDB prints of tests that are disabled for it could not be recorded'; }
    overlaid "$tests" innobase > "$log" 2>&1 || { log_tail "$log"; die "InnoDB does not print again what was recorded"; }
    for file in "$tests"/plugin/innobase/storage_engine/{,trx/,parts/}*.result~; do
        dir=$(dirname "${file#"$tests/plugin/innobase/"}")
        mkdir -p "$tests/plugin/trefoil/$dir"
        cp "$file" "$tests/plugin/trefoil/$dir/$(basename "$file" '~')"
    done
}

# Tests that InnoDB's overlay disables and this one does not.
disabled_for_innodb() {
    local dir
    for dir in "${OVERLAID[@]}"; do
        comm -23 <(disabled_in "$1/plugin/innobase/$dir") <(disabled_in "$HERE/mysql-test/trefoil/$dir") |
            sed "s,^,$dir-innobase.,"
    done
}

disabled_in() { sed -n 's/^\([a-z_0-9]*\) *:.*/\1/p' "$1/disabled.def" 2> /dev/null | sort; }

overlaid() {
    local tests=$1 overlay=$2 list
    shift 2
    list=$(printf "%s-$overlay," "${OVERLAID[@]}")
    mtr "$tests" --suite="${list%,}" "$@"
}

# InnoDB ends no statement with 1020 that it did not in 10.11, as it does by default since 11.6.2: other tests have it so, too.
mtr() {
    local tests=$1 var status=0
    shift
    var=$(mktemp -d "${TMPDIR:-/tmp}/trefoil-suites.XXXXXX")
    (cd "$tests" && private_libraries "${tests%/usr/share/*}" && nice -n 10 perl ./mariadb-test-run.pl \
        --vardir="$var/var" --force --max-test-fail=0 --parallel=1 --retry=0 --testcase-timeout=2 --mysqld=--loose-innodb-snapshot-isolation=OFF "$@" < /dev/null) || status=$?
    rm -rf "$var"
    return "$status"
}

names_of() { sed -n "s/^\([a-z_]*[-/.][^ ]*\) .*\[ $1 \].*/\1/p" "$2" | sort -u; }

# What two runs print of the same differs in where their files lie, and, of servers with a default that is asked for, in the structure
# that the definition of a table names.
unasked() {
    local asked="s,/[^ ']*/trefoil-suites[.][^/]*/,/,g"
    [ -z "${TREFOIL_MARIADB_SERVER_ARGS:-}" ] || asked="$asked; $UNNAMED"
    sed "$asked" "$1"
}

# Of each test that printed something else a line: its name, a file with what it should print, and one with what it did.
rejected() {
    awk '/^[a-z_]+[-\/.][^ ]* .*\[ (pass|fail|skipped|disabled) \]/ { name = ($0 ~ /\[ fail \]/) ? $1 : "" }
        name && /^--- \/.*\.result[~\t ]/ { expected = $2 } name && /^\+\+\+ \/.*\.reject[\t ]/ { print name, expected, $2; name = "" }' "$1"
}

# Tests that fail for nothing else.
failed_by_name_alone() {
    local name expected printed
    rejected "$1" | while read -r name expected printed; do
        if diff <(unasked "$expected") <(unasked "$printed") > /dev/null; then printf '%s\n' "$name"; fi
    done | sort -u
}

# What is otherwise in what test $2 of log $1 printed, wherever it stands, or the statement that ended it: eight digits of a checksum.
difference_of() {
    local name expected printed
    {
        rejected "$1" | while read -r name expected printed; do
            [ "$name" != "$2" ] || diff <(unasked "$expected") <(unasked "$printed") | grep '^[<>]'
        done
        # The test runner takes what a test is combined with in any order.
        awk -v test="$2" '$1 == "CURRENT_TEST:" { is_its = $2 == test } is_its && /^mysqltest: / { print }' "$1" | LC_ALL=C sort
    } | md5sum | head -c 8
}

suites_table() {
    local log=$1 arguments=$2 passed failed named line name
    named=$(failed_by_name_alone "$log")
    passed=$(($(names_of pass "$log" | wc -l) + $(wc -w <<< "$named")))
    failed=$(comm -23 <(names_of fail "$log") <(printf '%s\n' $named))
    line=$(printf '%s  %s  %4d run  %4d passed  %4d failed  %3d disabled  %3d skipped  %s' "$(date -u +%FT%RZ)" "$VERSION" \
        $((passed + $(wc -w <<< "$failed"))) "$passed" "$(wc -w <<< "$failed")" "$(names_of disabled "$log" | wc -l)" \
        "$(names_of skipped "$log" | wc -l)" "$arguments")
    for name in $failed; do printf 'failed  %s %s\n' "$name" "$(difference_of "$log" "$name")"; done
    printf '%s\n' "$line" | tee -a "$CACHE/suites.table"
    [ "$passed" -gt 0 ] || { log_tail "$log"; die "no test passed; see $log"; }
}
