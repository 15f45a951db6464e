# SPDX-License-Identifier: GPL-2.0-only
# Foreign keys of ENGINE=TREFOIL alone: what it refuses and InnoDB does not, and changes beside sessions. Sourced by checks.sh.

# What comes of statements: the numbers of their errors.
errors_of() { client --force s 2>&1 <<< "$1" | sed -n 's/^ERROR \([0-9]*\).*/\1/p' | xargs; }

# A row with versions is not gone when it is deleted: no foreign key is of such a table, nor to one.
check_foreign_versions() {
    local one="ENGINE=TREFOIL" keys
    client s -e "CREATE TABLE v (id INT PRIMARY KEY) $one WITH SYSTEM VERSIONING; CREATE TABLE p (id INT PRIMARY KEY) $one;
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) $one; CREATE TABLE n (id INT PRIMARY KEY) $one"
    for keys in 1 0; do
        expect "$(errors_of "SET foreign_key_checks = $keys;
            CREATE TABLE x (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES v (id)) $one;
            CREATE TABLE x (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p (id)) $one WITH SYSTEM VERSIONING;
            CREATE TABLE x (id INT PRIMARY KEY, x INT, FOREIGN KEY (x) REFERENCES x (id)) $one WITH SYSTEM VERSIONING;
            ALTER TABLE n ADD FOREIGN KEY (id) REFERENCES v (id); ALTER TABLE v ADD FOREIGN KEY (id) REFERENCES p (id);
            ALTER TABLE c ADD SYSTEM VERSIONING; ALTER TABLE p ADD SYSTEM VERSIONING")" '1112 1112 1112 1112 1112 1112 1112'
    done
    expect "$(errors_of 'ALTER TABLE c DROP FOREIGN KEY c_ibfk_1, ADD SYSTEM VERSIONING; ALTER TABLE p ADD SYSTEM VERSIONING;
        DROP TABLE c; ALTER TABLE p DROP SYSTEM VERSIONING; ALTER TABLE n ADD FOREIGN KEY (id) REFERENCES p (id)')" ''
}

# A child's writer has the key of its parent in the parent of before: a copy waits for him before it takes the place.
check_parent_copied_beside_child() {
    local change tries
    open_session c
    for change in 'ALTER TABLE p FORCE, ALGORITHM=COPY' 'OPTIMIZE TABLE p'; do
        client s -e 'DROP TABLE IF EXISTS c, p; CREATE TABLE p (id INT PRIMARY KEY) ENGINE=TREFOIL;
            CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=TREFOIL; INSERT INTO p VALUES (1), (2)'
        # Who reads keeps the copy from taking the place, when it is whole.
        say_to c 'BEGIN;' 'SELECT COUNT(*) FROM p;' > "$WORK/change"
        send a 'SET trefoil_lock_wait_timeout = 1;' "$change;"
        for ((tries = 0; tries < 100; tries++)); do
            [ "$(value "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE state LIKE 'Waiting for table metadata%'")" = 0 ] || break
            sleep 0.05
        done
        say_to b 'BEGIN;' 'INSERT INTO c VALUES (1, 1);'
        say_to c 'COMMIT;'
        until_done a > "$WORK/change"
        grep -q 'Lock wait timeout\|errno: 146' "$WORK/change" || { echo "$change did not wait:"; cat "$WORK/change"; }
        expect_error "$(say_to c 'SET trefoil_lock_wait_timeout = 1;' 'DELETE FROM p WHERE id = 1;')" 1205
        expect "$(say_to b 'INSERT INTO c VALUES (2, 2);' 'COMMIT;')" ''
        expect_error "$(say_to c 'DELETE FROM p WHERE id = 1;')" 1451
        say_to a "$change;" > "$WORK/change"
        expect "$(errors_of 'DELETE FROM p WHERE id = 2; DELETE FROM c; DELETE FROM p')" 1451
    done
}

# A cascade does not make the hash by which the server finds duplicates of a long key.
check_foreign_hashed() {
    local one='p INT, long_one VARCHAR(4000)' to='REFERENCES p (id) ON UPDATE'
    client s -e 'CREATE TABLE p (id INT PRIMARY KEY) ENGINE=TREFOIL'
    expect "$(errors_of "SET default_storage_engine = TREFOIL; CREATE TABLE x ($one, UNIQUE (p, long_one), FOREIGN KEY (p) $to CASCADE);
        CREATE TABLE x ($one, UNIQUE (long_one, p), FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL);
        CREATE TABLE x ($one, UNIQUE (long_one), FOREIGN KEY (p) $to CASCADE); ALTER TABLE x ADD UNIQUE (p, long_one);
        CREATE TABLE y ($one, UNIQUE (p, long_one)); ALTER TABLE y ADD FOREIGN KEY (p) $to CASCADE;
        SET foreign_key_checks = 0; ALTER TABLE y ADD FOREIGN KEY (p) $to SET NULL; SET foreign_key_checks = 1;
        ALTER TABLE y ADD FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")" '1005 1005 1005 1005 1005'
}
