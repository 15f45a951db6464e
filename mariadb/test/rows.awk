# SPDX-License-Identifier: GPL-2.0-only
# Transactions of writer n upon rows that are its own, by chance but for a seed each time the same. mode=sql: their statements from
# number `from` on, each transaction with its number behind it; mode=rows: what is there behind number `upto`; mode=kind: whether that
# one is rolled back. Read by rows_random.sh.

function r(n) { return int(rand() * n) }
function say(text) { if (mode == "sql" && i >= from) printf "%s", text }
function bytes(   k) { k = r(40); if (k == 0) return 20000 + r(50000); if (k < 5) return 2000 + r(3000); return r(200) }
function forget(id) { delete A[id]; delete U[id]; delete L[id]; delete S[id]; delete K[id] }
function put(id, a, u, len, seed) { A[id] = a; U[id] = u; L[id] = len; S[id] = seed; K[id] = "000" }
function keep(   id) {
    delete A0; delete U0; delete L0; delete S0; delete K0
    for (id in A) { A0[id] = A[id]; U0[id] = U[id]; L0[id] = L[id]; S0[id] = S[id]; K0[id] = K[id] }
}
function back(   id) {
    delete A; delete U; delete L; delete S; delete K
    for (id in A0) { A[id] = A0[id]; U[id] = U0[id]; L[id] = L0[id]; S[id] = S0[id]; K[id] = K0[id] }
}
# Of rows `lo` to `hi`, some of which may be there.
function of_range(lo, hi) { return " WHERE w = " n " AND id BETWEEN " lo " AND " hi "; " }
function of_row(id) { return " WHERE w = " n " AND id = " id "; " }
function statement(   id, k, a, u, len, seed, hi, row) {
    id = r(ROWS); k = r(14); a = r(8) ? r(1000) : "NULL"; u = r(5) ? n * 1000000 + id * 3 + r(3) : "NULL"
    len = bytes(); seed = r(10); hi = id + r(8)
    row = " INTO t (w, id, a, u, b) VALUES (" n ", " id ", " a ", " u ", REPEAT('" seed "', " len "))"
    if (k < 3) { say("REPLACE" row "; "); put(id, a, u, len, seed) }
    else if (k < 5) {
        say("INSERT" row " ON DUPLICATE KEY UPDATE a = VALUES(a), u = VALUES(u); ")
        if (id in A) { A[id] = a; U[id] = u } else put(id, a, u, len, seed)
    } else if (k < 7) {
        say("UPDATE t SET a = " a ", b = REPEAT('" seed "', " len ")" of_row(id))
        if (id in A) { A[id] = a; L[id] = len; S[id] = seed }
    } else if (k == 7) { say("DELETE FROM t" of_row(id)); forget(id) }
    else if (k == 8) { say("UPDATE t SET a = a + 1" of_range(id, hi)); for (; id <= hi; id++) if ((id in A) && A[id] != "NULL") A[id]++ }
    else if (k == 9) { say("DELETE FROM t" of_range(id, hi)); for (; id <= hi; id++) forget(id) }
    else if (k == 10) { # its children follow
        hi = ROWS + r(ROWS)
        if (hi in A) return
        say("UPDATE t SET id = " hi ", u = NULL" of_row(id))
        if (id in A) { put(hi, A[id], "NULL", L[id], S[id]); K[hi] = K[id]; forget(id) }
    } else {
        k = r(3)
        say("INSERT IGNORE INTO kid SELECT w, id, " k " FROM t" of_row(id))
        if (id in A) K[id] = substr(K[id], 1, k) "1" substr(K[id], k + 2)
    }
}
function statements(count) { while (count-- > 0) statement() }
BEGIN {
    srand(seed * 100 + n); ROWS = 120
    for (i = 1; i <= upto; i++) {
        kind = r(20); left = 1 + r(3); keep(); rolled = 0; xid = n "-" i
        if (kind == 0) { say("BEGIN; "); statements(left); say("ROLLBACK; "); back(); rolled = 1 }
        else if (kind == 1) {
            say("XA START '" xid "'; "); statements(left); say("XA END '" xid "'; XA PREPARE '" xid "'; DO SLEEP(0.05); ")
            rolled = !r(3); if (rolled) back()
            say("XA " (rolled ? "ROLLBACK" : "COMMIT") " '" xid "'; ")
        } else if (left == 1 && kind < 12) statement()
        else {
            say("BEGIN; INSERT INTO nokey VALUES (" n ", " i "); "); statements(left); listed[i] = 1
            if (kind == 2) { say("SAVEPOINT s; "); keep(); statements(2); say("ROLLBACK TO s; "); back() }
            say("COMMIT; ")
        }
        if (mode == "sql" && i >= from) print "SELECT " i ";"
    }
    if (mode == "kind") print rolled
    if (mode != "rows") exit
    for (id in A) print "t\t" n "\t" id "\t" A[id] "\t" U[id] "\t" L[id] "\t" (L[id] ? S[id] : "")
    for (id in A) for (k = 0; k < 3; k++) if (substr(K[id], k + 1, 1) == "1") print "kid\t" n "\t" id "\t" k
    for (i in listed) print "nokey\t" n "\t" i
}
