# SPDX-License-Identifier: GPL-2.0-only
# Suites of other engines with the engine's name changed, in the tree of the suites. Sourced by mariadb.sh.
#
# Taken are the tests of InnoDB, or of RocksDB, that ask for nothing of that engine but its tables: no variables and
# status of its own, no files, no debug build. What they should print is what is in the package, with the name changed.

# A test, or a file that it reads, that is about the engine itself. The variable for waits has its like here.
OWN_OF='(innodb|rocksdb)_[a-z]|(innodb|rocksdb)[-_][a-z]*[-_]|show engine|have_debug|debug_dbug|debug_sync|perfschema|performance_schema|\.(ibd|sst|frm)|xtrabackup|mysqldump|restart_mysqld|foreign key|fulltext|spatial|geometry|row_format|key_block_size|tablespace|data directory|reverse:|cfname|comment .*cf'

# The same by the test's name.
OWN_NAME='bloom|bulk_load|bypass|rqg|rpl|binlog|qcache|collation|native|compact|memtable|slow_query|stats|ttl|log_dir|mariadb_'

# Lines of InnoDB's tests of foreign keys that are about it alone: its own tables, variables and log, a server that does not let it
# write; keys FULLTEXT beside the foreign one; a race that may end either way. A test goes on behind a statement that fails, so that all of
# it is seen.
ITS_OWN=(-e '/INNODB_SYS_/d' -e '/innodb_stats_persistent/d' -e '/innodb_file_per_table/d' -e '/innodb_max_purge_lag_wait/d'
    -e '/innodb_fast_shutdown/d' -e '/innodb_buffer_pool/d' -e '/wait_all_purged/d' -e '/^let SEARCH_/d' -e '/search_pattern_in_file/d'
    -e '/restart_parameters/d' -e '/ER_OPEN_AS_READONLY/,+1d' -e 's/FULLTEXT KEY(a), //' -e 's/ FULLTEXT INDEX(b),//'
    -e '/ADD FULLTEXT INDEX/Id' -e '/MDEV-26217/,/^# Cleanup/d' -e '/^ *--* *error /Id' -e '1i --disable_abort_on_error')
# What a warning says of a foreign key that cannot be is each engine's own.
ITS_WORDS='/^ *show warnings/Ii --replace_column 3 #'

# What is cut besides of tests that have foreign keys in their text alone: InnoDB's views, in statements of more than one line, and what
# only a debug build has.
ITS_OWN_BESIDE=(-e '/^select/I{:a' -e '/;/!{N;ba' -e '};/innodb_sys_/Id' -e '}' -e '/have_debug/d' -e '/debug_dbug/Id' -e '/debug_sync/Id'
    -e '/big_test[.]inc/d' -e '/no_valgrind/d' -e '/^set.*innodb_strict_mode/Id' -e '/innodb_row_lock/d' -e '/innodb_page/d')

# Tests of foreign keys of InnoDB's suite and of `main`, by their name, without those for debug builds, and those that mysql-test/foreign
# names. Made once for each content of that. Of those of which a line was left out InnoDB says anew what they print.
foreign_of_innodb() {
    local tests=$1 to=$1/suite/foreign_of_innodb part=$1/suite/foreign_part file suite name cut changed=() log=$DIR/suites.reference.foreign.log
    ! cmp -s "$HERE/mysql-test/foreign" "$to/beside" || return 0
    rm -rf "$part"
    mkdir -p "$part/t" "$part/r"
    cp "$tests"/suite/innodb/t/alter_sql_mode.* "$part/t"
    for file in "$tests"/suite/innodb/t/*foreign*.test "$tests"/suite/innodb/t/*fk*.test "$tests"/main/foreign_key.test; do
        grep -qiE 'have_debug|debug_dbug|_crash' <<< "$file $(cat "$file")" || foreign_by_name "$file"
    done
    while read -r suite name cut; do
        file=$tests/suite/$suite/t/$name.test
        [ "$suite" != main ] || { file=$tests/main/$name.test name=main_$name; }
        sed -e "$cut" "$file" | sed "${ITS_OWN_BESIDE[@]}" | sed "${ITS_OWN[@]}" -e "$ITS_WORDS" > "$part/t/$name.test"
        changed+=("foreign_part.$name")
    done < <(grep -v '^#' "$HERE/mysql-test/foreign")
    say 'recording what InnoDB prints of tests of foreign keys'
    mtr "$tests" --record --mysqld=--innodb "${changed[@]}" > "$log" 2>&1 || true
    mtr "$tests" --suite=foreign_part --mysqld=--innodb >> "$log" 2>&1 ||
        { log_tail "$log"; die "InnoDB does not print what is recorded of its tests of foreign keys; see $log"; }
    cp "$HERE/mysql-test/foreign" "$part/beside"
    rm -rf "$to"
    mv "$part" "$to"
}

# One of these, with what it should print; those that InnoDB is to record are noted in `changed`.
foreign_by_name() {
    local file=$1 name
    name=$(basename "$file" .test)
    case $file in "$tests"/main/*) name=main_$name ;; esac
    sed "${ITS_OWN[@]}" -e "$ITS_WORDS" "$file" > "$part/t/$name.test"
    case $file in
        "$tests"/main/*) cp "${file%.test}.result" "$part/r/$name.result" ;;
        *) cp "$tests/suite/innodb/r/$name".result "$tests/suite/innodb/r/$name",*.rdiff "$part/r" 2> /dev/null || true
            cp "${file%.test}".combinations "$part/t" 2> /dev/null || true ;;
    esac
    if ls "$part/r/$name",*.rdiff > /dev/null 2>&1; then
        cp "$file" "$part/t/$name.test"
    elif ! cmp -s "$file" "$part/t/$name.test"; then
        changed+=("foreign_part.$name")
        # Of the same however it reads ahead.
        rm -f "$part/t/$name.combinations"
    fi
}

# Sets NAME, the engine's as a pattern, and FROM, the suite's directory.
derived_from() {
    case $2 in
        foreign) FROM=$1/suite/foreign_of_innodb NAME=innodb ;;
        rocksdb) FROM=$1/plugin/rocksdb/rocksdb NAME=rocksdb ;;
        *) FROM=$1/suite/$2 NAME=innodb ;;
    esac
}

derive() {
    local tests=$1 group=$2 to=$1/suite/trefoil_$2 FROM NAME file
    [ "$group" != foreign ] || foreign_of_innodb "$tests"
    derived_from "$tests" "$group"
    rm -rf "$to"
    cp -r "$FROM" "$to"
    rm -f "$to"/{my.cnf,suite.pm,suite.opt,combinations}
    [ "$group" = foreign ] || find "$to" -name '*.combinations' | while read -r file; do printf '[trefoil]\ndefault-storage-engine=TREFOIL\n' > "$file"; done
    for file in "$to"/t/*.test "$to"/*.test; do
        [ -f "$file" ] || continue
        is_neutral "$file" "$group" || rm -f "$file" "${file%.test}".{opt,cnf} "${file%.test}-master.opt"
    done
    find "$to" -type f | xargs sed -i -e "s,suite/$group/,suite/trefoil_$group/,g" \
        -e 's/foreign_part/trefoil_foreign/g' -e 's/@@innodb_page_size/16384/g' -e "s,plugin/rocksdb/rocksdb/,suite/trefoil_rocksdb/,g" \
        -e "s/${NAME^^}/TREFOIL/g" -e 's/InnoDB\|InnODB\|Innodb\|RocksDB/TREFOIL/g' -e "s/$NAME/trefoil/g"
    find "$to" -name "*$NAME*" -type f | while read -r file; do mv "$file" "${file%/*}/$(basename "$file" | sed "s/$NAME/trefoil/g")"; done
    find "$to" -name disabled.def | xargs -r sed -i -E 's/^[a-z_]+\.([a-zA-Z0-9_-]+ *:)/\1/'
    [ ! -d "$to/include" ] || : > "$to/include/have_trefoil.inc"
    : > "$tests/include/have_trefoil.inc"
    : > "$tests/include/have_trefoil_16k.inc"
}

is_neutral() {
    local text read=
    grep -qE "$OWN_NAME" <<< "$(basename "$1")" && return 1
    case $2 in
        foreign) return 0 ;;
        handler) case $1 in *innodb*) return 0 ;; *) return 1 ;; esac ;;
        period) grep -q engines.inc "$1" || return 1 ;;
        gcol | parts) case $1 in *innodb*) ;; *) return 1 ;; esac ;;
    esac
    # What it reads counts too.
    [ "$2" != rocksdb ] || read=$(grep -ohE '[A-Za-z_0-9]+\.inc' "$1" | grep -v '^have_' | sort -u | xargs -I{} find "$to" -name {})
    # shellcheck disable=SC2086
    text=$(sed -e 's/^ *#.*//' -e 's/have_innodb[a-z_0-9]*//g; s/have_rocksdb//g; s/innodb_lock_wait_timeout//g; s/rocksdb_lock_wait_timeout//g' \
        -e 's/[a-z_0-9]*_innodb[a-z_0-9]*\.inc//g' "$1" $read)
    ! grep -qiE "$OWN_OF" <<< "$text"
}

derived() {
    local tests=$1 group=$2
    shift 2
    [ "$group" != rocksdb ] || set -- --mysqld=--sql-mode=NO_ENGINE_SUBSTITUTION --mysqld=--explicit-defaults-for-timestamp=1 "$@"
    # A view of 11 opens every table there is, the server's own too, of which some are InnoDB's.
    [ "$group" != period ] || set -- --mysqld=--innodb "$@"
    # Those name their engine where it matters.
    [ "$group" = foreign ] || set -- --mysqld=--default-storage-engine=TREFOIL "$@"
    mtr "$tests" --suite="trefoil_$group" --mysqld=--partition --mysqld=--plugin-load-add=ha_trefoil.so \
        --mysqld=--loose-trefoil-lock-wait-timeout=1 --suite-timeout=60 "$@"
}
