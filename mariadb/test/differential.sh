# SPDX-License-Identifier: GPL-2.0-only
# Random tables, statements and queries: with InnoDB and with ENGINE=TREFOIL, in one server, the same comes of them. The SQL
# is made by mariadb/differential from a seed. Sourced by mariadb.sh and smoke.sh.

DIFFERENTIAL_OPTIONS="--collation-server=latin1_swedish_ci --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=32M
    --trefoil-flush-log-at-commit=0"

# The generator and the collations of the server, in WORK.
prepare_differential() {
    local profile=${TREFOIL_PROFILE:-release}
    # shellcheck disable=SC2086
    "${CARGO:-cargo}" build --quiet --profile "$profile" --locked --manifest-path "$REPO/Cargo.toml" \
        ${TREFOIL_BUILD:--p trefoil-differential}
    GENERATOR=$(built_in "$profile")/differential
    client -N -B -e "SELECT FULL_COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY
        WHERE CHARACTER_SET_NAME <> 'binary' ORDER BY 1, 2" > "$WORK/collations"
}

# Runs the SQL in $1 with engine $2 in a database of its own.
answers() {
    client -e 'DROP DATABASE IF EXISTS differential; CREATE DATABASE differential'
    # Options of one engine alone.
    { if [ "$2" = TREFOIL ]; then cat "$1"; else sed 's/ CLUSTERING=1\| STRUCTURE=[a-z]*//g' "$1"; fi; } |
        client --force --unbuffered --default-character-set=utf8mb4 -vv \
            --init-command="SET default_storage_engine = $2" differential 2>&1 |
        sed -e '/^--------------$/d' -e 's/ CLUSTERING=1\| STRUCTURE=[a-z]*//g' -e 's/InnoDB\|TREFOIL/ENGINE/g' || true
}

# The same with both.
agree() {
    answers "$1" InnoDB > "$1.innodb"
    answers "$1" TREFOIL > "$1.trefoil"
    diff -U 4 "$1.innodb" "$1.trefoil" > "$1.diff"
}

# Round number $1.
round() {
    local sql=$WORK/round.$1
    "$GENERATOR" round "$1" < "$WORK/collations" > "$sql"
    if agree "$sql"; then
        rm -f "$sql" "$sql".*
    else
        head -40 "$sql.diff"
        say "round $1 differs; again: mariadb/mariadb.sh differential $1 1; its files: $sql*"
        return 1
    fi
}

# A selection of both, in a server that runs.
differ_nowhere() {
    local n verdict=ok
    client -e 'SET GLOBAL trefoil_flush_log_at_commit = 0, GLOBAL innodb_flush_log_at_trx_commit = 0'
    prepare_differential
    for ((n = 1; n <= 36; n++)); do
        round "$n" || verdict=FAILED
    done
    verdict 'differential, 36 rounds' "$verdict"
    grep -E '^(latin1_(swedish|german2)_ci|utf8mb4_(general|unicode|czech)_(nopad_)?ci|utf8mb4_bin|utf16_unicode_ci|sjis_japanese_ci|big5_chinese_ci|latin2_czech_cs|tis620_thai_ci|utf8mb3_thai_520_w2|ucs2_uca1400_nopad_ai_cs|utf8mb4_uca1400_as_cs|gbk_nopad_bin)\s' \
        "$WORK/collations" > "$WORK/chosen"
    "$GENERATOR" collations < "$WORK/chosen" > "$WORK/sweep"
    if agree "$WORK/sweep"; then
        verdict "differential, $(wc -l < "$WORK/chosen") collations" ok
    else
        head -100 "$WORK/sweep.diff"
        verdict 'differential, collations' FAILED
    fi
    client -e 'SET GLOBAL trefoil_flush_log_at_commit = 1, GLOBAL innodb_flush_log_at_trx_commit = 1; DROP DATABASE differential'
}

differential() {
    local seed=${1:-1} count=${2:-100} n failed=0
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/trefoil-differential.XXXXXX")
    TREFOIL_MARIADB_DATA=$WORK/data
    prepare
    # shellcheck disable=SC2086
    start_server $DIFFERENTIAL_OPTIONS
    prepare_differential
    if [ "$seed" = collations ]; then
        grep "${2:-.}" "$WORK/collations" > "$WORK/chosen"
        "$GENERATOR" collations < "$WORK/chosen" > "$WORK/sweep"
        agree "$WORK/sweep" || { head -100 "$WORK/sweep.diff"; failed=1; }
        count=$(wc -l < "$WORK/chosen")
    else
        for ((n = seed; n < seed + count; n++)); do
            round "$n" || failed=$((failed + 1))
        done
    fi
    [ "$failed" = 0 ] && rm -rf "$WORK"
    say "$count done, $failed differ"
    [ "$failed" = 0 ]
}
