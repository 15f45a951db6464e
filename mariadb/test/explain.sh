# SPDX-License-Identifier: GPL-2.0-only
# Queries of the same tables get the same plans with both engines: which table is read when, how, and by which key. Sourced
# by smoke.sh, run beside InnoDB.

explain_with() {
    value "DROP DATABASE IF EXISTS plans; CREATE DATABASE plans CHARACTER SET latin1 COLLATE latin1_bin"
    client --batch --skip-column-names --verbose --init-command="SET default_storage_engine = $1" plans < "$HERE/test/explain.sql" 2>&1 |
        sed -n '/^ANALYZE/,$p' | awk -F '\t' '/^EXPLAIN/ { print; next } NF > 8 { print "    " $1, $3, $4, $6 }'
}

same_plans() {
    explain_with InnoDB > "$WORK/explain.innodb"
    explain_with TREFOIL > "$WORK/explain.trefoil"
    if diff -U 9 "$WORK/explain.innodb" "$WORK/explain.trefoil" > "$WORK/explain.diff" &&
        [ "$(grep -c '^EXPLAIN' "$WORK/explain.innodb")" = "$(grep -c '^EXPLAIN' "$HERE/test/explain.sql")" ]; then
        verdict "explain, $(grep -c '^EXPLAIN' "$WORK/explain.innodb") plans" ok
    else
        cat "$WORK/explain.diff"
        verdict explain FAILED
    fi
}
