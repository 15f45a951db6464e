# SPDX-License-Identifier: GPL-2.0-only
# Many ranges read at once, and filters of references: with each setting of the optimiser the same answers and the same plans
# as InnoDB's, and with all of them the same answers. Sourced by smoke.sh, run beside InnoDB.

# Queries of the tables below, by chance but each time the same.
ranges_queries() {
    local n low
    RANDOM=11
    for n in 1 2 3 4 5 6; do
        low=$((RANDOM % 4000))
        printf '%s;\n' "SELECT COUNT(s), SUM(v), SUM(id) FROM a WHERE k BETWEEN $low AND $((low + 9 * n))" \
            "SELECT COUNT(s), SUM(v) FROM a WHERE k IN ($low, $((low / 2)), $((RANDOM % 4000)), 3, -1) OR k BETWEEN $n AND 9" \
            "SELECT COUNT(s), SUM(v) FROM a WHERE id IN ($low, $((low * 2)), 0, $((RANDOM % 9000)), $n) AND v > $n" \
            "SELECT a.k, COUNT(s) FROM a WHERE k IN ($low, $((low + 1)), $((low + 7))) GROUP BY a.k ORDER BY a.k DESC" \
            "SELECT COUNT(s), SUM(v), SUM(w) FROM b STRAIGHT_JOIN a ON a.k = b.w WHERE b.id < $((RANDOM % 700))" \
            "SELECT COUNT(s), SUM(v), SUM(w) FROM b STRAIGHT_JOIN a ON a.k = b.w AND a.k + b.id > $low WHERE b.id < 600" \
            "SELECT COUNT(s), SUM(v), SUM(w) FROM b STRAIGHT_JOIN a ON a.id = b.r WHERE b.id BETWEEN $n AND $((RANDOM % 700))" \
            "SELECT COUNT(s), SUM(g) FROM b STRAIGHT_JOIN a ON a.k = b.w AND a.v < b.r WHERE b.id < $((RANDOM % 300))" \
            "SELECT COUNT(*), COUNT(s) FROM b LEFT JOIN a ON a.k = b.w AND a.v > $low WHERE b.id < 500" \
            "SELECT COUNT(*) FROM b WHERE b.id < 400 AND EXISTS (SELECT 1 FROM a WHERE a.k = b.w AND a.v > $low)" \
            "SELECT COUNT(s), SUM(v) FROM a JOIN b ON a.k = b.w WHERE b.id < 900 AND v BETWEEN $low AND $((low + 25))" \
            "SELECT COUNT(s) FROM a WHERE k BETWEEN $low AND $((low + 900)) AND v BETWEEN $n AND $((30 * n))" \
            "SELECT COUNT(s), SUM(u) FROM h JOIN b ON h.k = b.w WHERE b.id < 900 AND u BETWEEN $low AND $((low + 25))"
    done
}

ranges_of() {
    local switch level query
    cat <<END
CREATE OR REPLACE DATABASE ranges CHARACTER SET latin1; USE ranges; SET default_storage_engine = $1;
CREATE TABLE a (id INT PRIMARY KEY, k INT, v INT, s VARCHAR(100), g INT AS (v + 1) VIRTUAL, KEY k (k, v), KEY v (v));
INSERT INTO a (id, k, v, s) SELECT seq, IF(seq % 50 = 0, NULL, seq * 7919 % 4000), seq * 104729 % 5000, REPEAT('x', 60) FROM seq_1_to_9000;
CREATE TABLE h (k INT, u INT, s VARCHAR(100), KEY k (k), KEY u (u)); INSERT INTO h SELECT k, v, s FROM a;
CREATE TABLE b (id INT PRIMARY KEY, r INT, w INT); INSERT INTO b SELECT seq, seq * 31 % 9500, seq * 17 % 4100 FROM seq_1_to_2000;
ANALYZE TABLE a, b, h;
END
    for switch in mrr=off,mrr_sort_keys=off,rowid_filter=off mrr=off,rowid_filter=on mrr=on mrr=on,mrr_sort_keys=on; do
        for level in 2 6 8; do
            printf "SELECT '-- %s, %s' AS '';\n" "$switch" "$level"
            printf "SET optimizer_switch = '%s', join_cache_level = %s;\n" "$switch" "$level"
            ranges_queries | while read -r query; do printf 'EXPLAIN %s\n%s\n' "$query" "$query"; done
        done
    done
}

# For each setting its lines. Of plans the table, how it is read, by which key and what is said of it.
ranges_output() {
    ranges_of "$1" | client --force --batch --skip-column-names 2>&1 |
        awk -F '\t' 'NF > 8 { print "  ", $3, $4, $6, $10; next } { print }'
}

same_ranges() {
    local counts
    ranges_output InnoDB > "$WORK/ranges.innodb"
    ranges_output TREFOIL > "$WORK/ranges.trefoil"
    # Answers alone, once for each setting.
    sed -e '1,/^-- /d' -e '/^   /d' "$WORK/ranges.trefoil" | awk '/^-- /{ n++; next } { all[n] = all[n] $0 "|" }
        END { for (i in all) if (all[i] != all[0]) print "setting " i " has other answers" }' n=0 > "$WORK/ranges.differ"
    counts=$(grep -cE 'BKA|-ordered scan|rowid filter' "$WORK/ranges.trefoil") || true
    if diff -u "$WORK/ranges.innodb" "$WORK/ranges.trefoil" > "$WORK/ranges.diff" && [ ! -s "$WORK/ranges.differ" ] &&
        ! grep ERROR "$WORK/ranges.trefoil" && [ "$counts" -gt 100 ] && filters_rows; then
        verdict "ranges, $counts of their plans" ok
    else
        head -60 "$WORK/ranges.diff" "$WORK/ranges.differ"
        verdict ranges FAILED
    fi
}

# Rows that a filter leaves out are not read.
filters_rows() {
    local plan
    plan=$(value "USE ranges; SET optimizer_switch = 'rowid_filter=on,mrr=off', join_cache_level = 2;
        ANALYZE FORMAT=JSON SELECT COUNT(s) FROM h JOIN b ON h.k = b.w WHERE b.id < 900 AND u BETWEEN 40 AND 70")
    [[ "$plan" =~ \"r_lookups\":\ ([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -gt 900 ] &&
        [ "$(grep -oE '"r_rows": [0-9.]+' <<< "${plan//\\n/ }" | tail -1 | tr -dc 0-9 | cut -c1)" = 0 ]
}
