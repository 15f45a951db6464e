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

# Rows are read along a key that has them, not along the same key that has not; and written along it.
check_clustering_plans() {
    local query plan
    client -e "CREATE TABLE s.c (id INT PRIMARY KEY, k INT, s VARCHAR(20), b BLOB, KEY ordinary (k), KEY whole (k) CLUSTERING=1)
        ENGINE=TREFOIL; INSERT INTO s.c SELECT seq, seq * 7 % 500, CONCAT('Text ', seq), REPEAT('b', seq % 50) FROM s.seq_1_to_5000;
        ANALYZE TABLE s.c" > /dev/null
    while read -r plan query; do
        expect "$plan $(value "EXPLAIN $query" | cut -f 4,6 | paste -sd' ' | tr '\t' ' ')" "$plan ${plan/-/ }"
    done <<END
range-whole SELECT * FROM s.c WHERE k BETWEEN 10 AND 90
ref-whole SELECT id, s, b FROM s.c WHERE k = 7
range-whole SELECT s FROM s.c WHERE k > 400 ORDER BY k LIMIT 100
range-whole UPDATE s.c SET s = 'x' WHERE k = 7
const-PRIMARY SELECT b FROM s.c WHERE id = 5
END
    query='SELECT COUNT(*), MIN(s), SUM(LENGTH(b)) FROM s.c FORCE INDEX'
    expect "$(value "$query (whole) WHERE k < 300")" "$(value "$query (PRIMARY) WHERE k < 300")"
    value 'DROP TABLE s.c'
}
