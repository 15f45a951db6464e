# SPDX-License-Identifier: GPL-2.0-only
# What one client of a replicated server says: transactions that meet on hot rows, unique values and ranges, some of which are taken
# back, in part or whole. Each that is committed has its row in `journal`, its last write.
#   n     the client
#   ddl   1: the first client changes definitions now and then
#   from  number of its first transaction
#   rows  1: also what only a log of rows repeats

function below(m) { return int(rand() * m) }

function change(   what, k) {
    what = below(rows ? 9 : 7)
    k = below(12)
    if (what == 0) printf "UPDATE acc SET v = v - 1 WHERE id = %d; UPDATE acc SET v = v + 1 WHERE id = %d;", below(10), below(10)
    if (what == 1) printf "INSERT INTO items (u, k, pad) VALUES (%d, %d, '%d');", below(3000), k, i
    if (what == 2) printf "UPDATE items SET pad = '%d-%d', k = %d WHERE k = %d;", n, i, below(12), k
    if (what == 3) printf "DELETE FROM items WHERE u BETWEEN %d AND %d;", k * 250, k * 250 + below(60)
    if (what == 4) printf "INSERT INTO counts SELECT %d, %d, %d, COUNT(*) FROM items WHERE k = %d;", n, ++counted, k, k
    if (what == 5) printf "INSERT INTO nokey VALUES (%d, '%d'), (%d, 'same'); DELETE FROM nokey WHERE a = %d;", k, i, k, below(12)
    if (what == 6) printf "UPDATE items SET u = %d WHERE u = %d;", below(3000), below(3000)
    if (what == 7) printf "INSERT INTO items (u, k, pad) SELECT u + 3000 + %d, k, 'copy' FROM items WHERE k = %d LIMIT 3;", below(9000), k
    if (what == 8) printf "INSERT INTO items (u, k) VALUES (%d, 1), (%d, 2) ON DUPLICATE KEY UPDATE k = k + 1, pad = 'met';", below(3000), below(3000)
}

# Parents and children of foreign keys; some are refused.
function family(   what, o) {
    what = below(7)
    o = below(50)
    if (what == 0) printf "INSERT INTO owners VALUES (%d, %d);", o, i
    if (what == 1) printf "INSERT INTO owned (o, pad) VALUES (%d, %d), (%d, %d);", o, i, below(50), i
    if (what == 2) printf "DELETE FROM owners WHERE id = %d;", o
    if (what == 3) printf "UPDATE owners SET id = %d WHERE id = %d;", below(50), o
    if (what == 4) printf "UPDATE owned SET o = %d WHERE o = %d;", below(50), o
    if (what == 5) printf "INSERT INTO seen (o) VALUES (%d);", o
    if (what == 6) printf "DELETE FROM owned WHERE o = %d; DELETE FROM seen WHERE o IS NULL;", o
}

function definition(   what) {
    what = below(4)
    if (what == 0) print "ALTER TABLE items ADD COLUMN IF NOT EXISTS x INT DEFAULT 7;"
    if (what == 1) print "ALTER TABLE items DROP COLUMN IF EXISTS x;"
    if (what == 2) print "ALTER TABLE nokey ADD KEY IF NOT EXISTS b (b);"
    if (what == 3) print "ALTER TABLE nokey DROP KEY IF EXISTS b;"
}

BEGIN {
    srand(seed * 100 + n)
    counted = from
    for (i = from; ; i++) {
        if (ddl && n == 1 && below(60) == 0) definition()
        if (rows) printf "SET TRANSACTION ISOLATION LEVEL %s;", below(2) ? "READ COMMITTED" : "REPEATABLE READ"
        printf "BEGIN;"
        change()
        if (below(3) == 0) family()
        if (below(4) == 0) { printf "SAVEPOINT s;"; change(); family(); printf "ROLLBACK TO s;" }
        if (below(2)) change()
        printf "INSERT INTO journal VALUES (%d, %d);", n, i
        print (below(8) ? "COMMIT;" : "ROLLBACK;")
    }
}
