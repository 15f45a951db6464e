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
