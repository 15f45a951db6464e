# SPDX-License-Identifier: GPL-2.0-only
# Suites of other engines with the engine's name changed, in the tree of the suites. Sourced by mariadb.sh.
#
# Taken are the tests of InnoDB, or of RocksDB, that ask for nothing of that engine but its tables: no variables and
# status of its own, no files, no debug build. What they should print is what is in the package, with the name changed.

# A test, or a file that it reads, that is about the engine itself. The variable for waits has its like here.
OWN_OF='(innodb|rocksdb)_[a-z]|(innodb|rocksdb)[-_][a-z]*[-_]|show engine|have_debug|debug_dbug|debug_sync|perfschema|performance_schema|\.(ibd|sst|frm)|xtrabackup|mysqldump|restart_mysqld|foreign key|fulltext|spatial|geometry|row_format|key_block_size|tablespace|data directory|reverse:|cfname|comment .*cf'

# The same by the test's name.
OWN_NAME='bloom|bulk_load|bypass|rqg|rpl|binlog|qcache|collation|native|compact|memtable|slow_query|stats|ttl|log_dir|mariadb_'

# Sets NAME, the engine's as a pattern, and FROM, the suite's directory.
derived_from() {
    case $2 in
        rocksdb) FROM=$1/plugin/rocksdb/rocksdb NAME=rocksdb ;;
        *) FROM=$1/suite/$2 NAME=innodb ;;
    esac
}

derive() {
    local tests=$1 group=$2 to=$1/suite/trefoil_$2 FROM NAME file
    derived_from "$tests" "$group"
    rm -rf "$to"
    cp -r "$FROM" "$to"
    rm -f "$to"/{my.cnf,suite.pm,suite.opt,combinations}
    find "$to" -name '*.combinations' | while read -r file; do printf '[trefoil]\ndefault-storage-engine=TREFOIL\n' > "$file"; done
    for file in "$to"/t/*.test "$to"/*.test; do
        [ -f "$file" ] || continue
        is_neutral "$file" "$group" || rm -f "$file" "${file%.test}".{opt,cnf} "${file%.test}-master.opt"
    done
    find "$to" -type f | xargs sed -i -e "s,suite/$group/,suite/trefoil_$group/,g" -e "s,plugin/rocksdb/rocksdb/,suite/trefoil_rocksdb/,g" \
        -e "s/${NAME^^}/TREFOIL/g" -e 's/InnoDB\|Innodb\|RocksDB/TREFOIL/g' -e "s/$NAME/trefoil/g"
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
    mtr "$tests" --suite="trefoil_$group" --mysqld=--partition --mysqld=--plugin-load-add=ha_trefoil.so \
        --mysqld=--default-storage-engine=TREFOIL --mysqld=--loose-trefoil-lock-wait-timeout=1 --suite-timeout=60 "$@"
}
