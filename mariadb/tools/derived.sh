# SPDX-License-Identifier: GPL-2.0-only
# Suites of other engines with the engine's name changed, in the tree of the suites. Sourced by mariadb.sh.
#
# Taken are the tests of InnoDB, or of RocksDB, that ask for nothing of that engine but its tables: no variables and
# status of its own, no files, no debug build. What they should print is what is in the package, with the name changed.

# A test, or a file that it reads, that is about the engine itself. The variable for waits has its like here.
OWN_OF='(innodb|rocksdb)_[a-z]|(innodb|rocksdb)[-_][a-z]*[-_]|show engine|debug|perfschema|performance_schema|\.(ibd|sst|frm)|xtrabackup|mysqldump|restart_mysqld|foreign key|fulltext|spatial|geometry|row_format|key_block_size|tablespace|data directory|reverse:|cfname|comment .*cf'

# Sets NAME, the engine's as a pattern, and FROM, the suite's directory.
derived_from() {
    case $2 in
        rocksdb) FROM=$1/plugin/rocksdb/rocksdb NAME=rocksdb ;;
        *) FROM=$1/suite/$2 NAME=innodb ;;
    esac
}

derive() {
    local tests=$1 group=$2 to=$1/suite/trefoil_$2 FROM NAME file test
    derived_from "$tests" "$group"
    rm -rf "$to"
    cp -r "$FROM" "$to"
    rm -f "$to"/{my.cnf,suite.pm,suite.opt,combinations,disabled.def,t/disabled.def}
    find "$to" -name '*.combinations' | while read -r file; do printf '[trefoil]\n' > "$file"; done
    for file in "$to"/t/*.test "$to"/*.test; do
        [ -f "$file" ] || continue
        test=$(basename "$file" .test)
        is_neutral "$file" "$group" || rm -f "$file" "${file%.test}".{opt,cnf} "${file%.test}-master.opt"
    done
    find "$to" -type f | xargs sed -i -e "s,suite/$group/,suite/trefoil_$group/,g" -e "s,plugin/rocksdb/rocksdb/,suite/trefoil_rocksdb/,g" \
        -e "s/${NAME^^}/TREFOIL/g" -e 's/InnoDB\|Innodb\|RocksDB/TREFOIL/g' -e "s/$NAME/trefoil/g"
    find "$to" -name "*$NAME*" -type f | while read -r file; do mv "$file" "${file%/*}/$(basename "$file" | sed "s/$NAME/trefoil/g")"; done
    : > "$tests/include/have_trefoil.inc"
    : > "$tests/include/have_trefoil_16k.inc"
}

is_neutral() {
    local text
    case $2 in gcol | parts | handler) case $1 in *innodb*) ;; *) return 1 ;; esac ;; esac
    text=$(sed -e 's/^ *#.*//' -e 's/have_innodb[a-z_0-9]*//g; s/have_rocksdb//g; s/innodb_lock_wait_timeout//g; s/rocksdb_lock_wait_timeout//g' \
        -e 's/[a-z_0-9]*_innodb[a-z_0-9]*\.inc//g' "$1")
    ! grep -qiE "$OWN_OF" <<< "$text"
}

derived() {
    local tests=$1 group=$2
    shift 2
    mtr "$tests" --suite="trefoil_$group" --mysqld=--partition --mysqld=--plugin-load-add=ha_trefoil.so \
        --mysqld=--default-storage-engine=TREFOIL --mysqld=--loose-trefoil-lock-wait-timeout=1 --suite-timeout=60 "$@"
}
