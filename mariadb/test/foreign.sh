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

# Where case does not count a parent is found however it is typed. The next check starts the server anew.
check_foreign_any_case() {
    local args=("${SERVER_ARGS[@]}")
    close_sessions
    restart_with "${args[@]}" --lower-case-table-names=1
    SERVER_ARGS=("${args[@]}")
    expect "$(errors_of 'SET default_storage_engine = TREFOIL; CREATE TABLE P (id INT PRIMARY KEY);
        CREATE TABLE C (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES P (id)); INSERT INTO c VALUES (1); SET foreign_key_checks = 0;
        CREATE TABLE D (id INT PRIMARY KEY); ALTER TABLE D ADD FOREIGN KEY (id) REFERENCES S.P (id), ALGORITHM=INPLACE;
        SET foreign_key_checks = 1; INSERT INTO d VALUES (1); DROP TABLE p; CREATE TABLE V (id INT PRIMARY KEY) WITH SYSTEM VERSIONING;
        CREATE TABLE W (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES V (id))')" '1452 1452 1451 1112'
    expect "$(value 'SHOW CREATE TABLE s.D' | grep -o 'REFERENCES `p`')" 'REFERENCES `p`'
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
        expect_error "$(say_to c 'SET trefoil_lock_wait_timeout = 0;' 'DELETE FROM p WHERE id = 1;')" 1205
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

# Where InnoDB has other words with the same numbers, and where it does otherwise (README).
check_foreign_unchecked() {
    client s -e 'CREATE TABLE p (id INT PRIMARY KEY, k INT, KEY (k)) ENGINE=TREFOIL; CREATE TABLE n (id INT PRIMARY KEY) ENGINE=TREFOIL;
        CREATE TABLE c (id INT PRIMARY KEY, k INT, o INT, FOREIGN KEY (k) REFERENCES p (k), FOREIGN KEY (o) REFERENCES c (id)) ENGINE=TREFOIL'
    expect "$(errors_of 'SET foreign_key_checks = 0; ALTER TABLE p DROP COLUMN k; ALTER TABLE p DROP KEY k, DROP COLUMN k;
        ALTER TABLE c DROP COLUMN k; ALTER TABLE c DROP COLUMN o; ALTER TABLE c DROP KEY k; ALTER TABLE p DROP KEY k; ALTER TABLE p DROP COLUMN k;
        SET foreign_key_checks = 1; ALTER TABLE p DROP COLUMN k')" '1829 1829 1828 1828 1553 1829 1829'
    # No key any more: who copies them, or empties the child, goes on; a key has to be there to be referred to.
    expect "$(errors_of 'ALTER TABLE c FORCE, ALGORITHM=COPY; ALTER TABLE p FORCE, ALGORITHM=COPY; TRUNCATE c; INSERT INTO c VALUES (1, 1, 1);
        ALTER TABLE c ADD FOREIGN KEY (k) REFERENCES p (k); INSERT INTO p VALUES (1, 1); ALTER TABLE p ADD KEY (k); INSERT INTO c VALUES (1, 1, 1);
        DELETE FROM p; ALTER TABLE c DROP FOREIGN KEY c_ibfk_1, DROP KEY k')" '1452 1005 1451'
    # A column comes back before its key does.
    expect "$(errors_of 'SET foreign_key_checks = 0; CREATE TABLE d (k INT, FOREIGN KEY (k) REFERENCES m (k)) ENGINE=TREFOIL;
        CREATE TABLE m (id INT PRIMARY KEY) ENGINE=TREFOIL; ALTER TABLE m ADD k INT, ADD KEY (k); ALTER TABLE m ADD k INT; ALTER TABLE m ADD KEY (k);
        SET foreign_key_checks = 1; INSERT INTO d VALUES (1); INSERT INTO m VALUES (1, 1); INSERT INTO d VALUES (1)')" '1829 1452'
}

# Who waits at a parent whose definition is being changed waits as for a row.
check_parent_being_changed() {
    local id said tries
    open_session c
    client s -e 'CREATE TABLE p (id INT PRIMARY KEY) ENGINE=TREFOIL; INSERT INTO p VALUES (1), (2);
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=TREFOIL'
    say_to b 'BEGIN;' 'INSERT INTO c VALUES (1, 1);'
    send a 'SET trefoil_lock_wait_timeout = 60;' 'ALTER TABLE p ADD COLUMN more INT, ALGORITHM=INSTANT;'
    # It waits for the child's writer, and whoever wants to write a child waits for it.
    until_waiting 'ALTER TABLE p%' > "$WORK/change"
    say_to c 'SET trefoil_lock_wait_timeout = 0;'
    # Once in a while the gate is open for a moment.
    for ((tries = 0; tries < 5; tries++)); do
        say_to c 'BEGIN;'
        said=$(say_to c 'INSERT INTO c VALUES (2, 2);')
        [ -z "$said" ] || break
        say_to c 'ROLLBACK;'
    done
    expect_error "$said" 1205
    # The gate was closed for a second, then for two, for four; now it is for eight.
    sleep 7
    send c 'SET trefoil_lock_wait_timeout = 60;' 'INSERT INTO c VALUES (3, 2);'
    id=$(until_waiting 'INSERT INTO c VALUES (3%')
    value "KILL QUERY $id"
    expect_error "$(until_done c)" 1317
    # A transaction of its own: if it comes in while the gate is open, the change does not wait for more of it.
    say_to c 'ROLLBACK;'
    send c 'INSERT INTO c VALUES (4, 2);'
    until_waiting 'INSERT INTO c VALUES (4%' > "$WORK/change"
    say_to b 'COMMIT;'
    expect "$(until_done a)" ''
    expect "$(until_done c)" ''
    expect "$(value 'SELECT GROUP_CONCAT(id ORDER BY id) FROM s.c')" 1,4
}

# The number of a session whose statement is like this, once it has stood still for a moment.
until_waiting() {
    local tries id
    for ((tries = 0; tries < 100; tries++)); do
        id=$(value "SELECT id FROM information_schema.PROCESSLIST WHERE info LIKE '$1' AND time_ms > 300")
        [ -z "$id" ] || break
        sleep 0.05
    done
    printf '%s\n' "$id"
}

# Whoever has changed keys of a parent without knowing of a child that is being made is waited for, until KILL.
check_child_that_waits_is_killed() {
    local id
    client s -e 'CREATE TABLE p (id INT PRIMARY KEY, k INT, UNIQUE (k)) ENGINE=TREFOIL; INSERT INTO p VALUES (1, 1)'
    say_to a 'BEGIN;' 'DELETE FROM p;'
    send b 'SET trefoil_lock_wait_timeout = 60;' 'CREATE TABLE c (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES p (k)) ENGINE=TREFOIL;'
    id=$(until_waiting 'CREATE TABLE c%')
    value "KILL QUERY $id"
    takes_at_most 3 expect_error "$(until_done b)" 1317
    say_to a 'ROLLBACK;'
    expect "$(say_to b 'CREATE TABLE c (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES p (k)) ENGINE=TREFOIL;')" ''
    expect "$(find "$DATA/s" -name '#sql*')" ''
}

# A copy takes the place of a parent again and again: its child's rows find it under either table.
check_parent_copied_over_and_over() {
    local n
    client s -e 'CREATE TABLE p (id INT PRIMARY KEY) ENGINE=TREFOIL; INSERT INTO p VALUES (1), (2);
        CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=TREFOIL'
    send a 'SET trefoil_lock_wait_timeout = 10;'
    for ((n = 0; n < 20; n++)); do send a 'ALTER TABLE p FORCE, ALGORITHM=COPY;' 'DO SLEEP(0.01);'; done
    send b 'SET trefoil_lock_wait_timeout = 10;'
    for ((n = 0; n < 2000; n++)); do send b "INSERT INTO c (p) VALUES ($((n % 2 + 1)));"; done
    expect "$(until_done b)" ''
    # It may find a writer in its way each time that it looks.
    until_done a | grep -v 'errno: 146\|ERROR 1205' || true
    expect "$(value 'SELECT COUNT(*) FROM s.c')" 2000
}

# What has room follows a column that gets longer; InnoDB has no such change.
check_foreign_widened() {
    client s -e "CREATE TABLE p (s VARCHAR(20) CHARACTER SET utf8mb4 PRIMARY KEY) ENGINE=TREFOIL; INSERT INTO p VALUES ('a');
        CREATE TABLE c (s VARCHAR(2) CHARACTER SET utf8mb4, FOREIGN KEY (s) REFERENCES p (s) ON UPDATE CASCADE) ENGINE=TREFOIL;
        INSERT INTO c VALUES ('a')"
    expect "$(errors_of "UPDATE p SET s = 'abc'; ALTER TABLE c MODIFY s VARCHAR(3) CHARACTER SET utf8mb4, ALGORITHM=INSTANT;
        UPDATE p SET s = 'abc'; UPDATE p SET s = 'abcd'; ALTER TABLE c FORCE, ALGORITHM=COPY; UPDATE p SET s = 'abcd'")" '1451 1451 1451'
    expect "$(value 'SELECT s FROM s.c')" abc
}
