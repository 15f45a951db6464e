# SPDX-License-Identifier: GPL-2.0-only
# What reads give out and lock is what InnoDB's do: the same statements for both engines in one server, their output
# compared. Sourced by smoke.sh.

# Statements of reads.sql, run for the engine given.
reads_of() { client --force --table --unbuffered --init-command="SET default_storage_engine = $1" < "$HERE/test/reads.sql" 2>&1; }

same_as_innodb() {
    reads_of TREFOIL > "$WORK/reads.trefoil"
    reads_of InnoDB > "$WORK/reads.innodb"
    if diff -u "$WORK/reads.innodb" "$WORK/reads.trefoil" > "$WORK/reads.diff" && ! grep ERROR "$WORK/reads.innodb"; then
        verdict reads ok
    else
        head -60 "$WORK/reads.diff"
        verdict reads FAILED
    fi
}
