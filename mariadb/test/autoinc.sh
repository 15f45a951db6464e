# SPDX-License-Identifier: GPL-2.0-only
# Numbers of AUTO_INCREMENT after the server has ended, and after it was killed. Sourced by smoke.sh.

numbers_set() {
    value "DROP DATABASE IF EXISTS numbers; CREATE DATABASE numbers;
        CREATE TABLE numbers.fresh (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=TREFOIL AUTO_INCREMENT = 100;
        CREATE TABLE numbers.used (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=TREFOIL;
        CREATE TABLE numbers.before_it (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=TREFOIL;
        INSERT INTO numbers.used (v) VALUES (1), (2), (3); INSERT INTO numbers.used VALUES (1000, 4);
        INSERT INTO numbers.used (v) VALUES (5); DELETE FROM numbers.used WHERE id > 2;
        INSERT INTO numbers.before_it VALUES (500, 1); UPDATE numbers.before_it SET id = 600; DELETE FROM numbers.before_it;
        RENAME TABLE numbers.before_it TO numbers.renamed"
}

numbers_next() {
    value "INSERT INTO numbers.fresh (v) VALUES (1); SELECT MAX(id) FROM numbers.fresh;
        INSERT INTO numbers.used (v) VALUES (1); SELECT MAX(id) FROM numbers.used;
        INSERT INTO numbers.renamed (v) VALUES (1); SELECT MAX(id) FROM numbers.renamed" | paste -sd' '
}

# Exact after an end, at or above after a kill, and near.
autoinc_kept() {
    local found fresh used renamed
    numbers_set
    end_server
    start_server "${SERVER_ARGS[@]}"
    found=$(numbers_next)
    if [ "$found" = '100 1002 601' ]; then verdict autoinc_restart ok; else verdict "autoinc_restart: $found" FAILED; fi
    numbers_set
    kill_server
    start_server "${SERVER_ARGS[@]}"
    read -r fresh used renamed <<< "$(numbers_next)"
    if [ "$fresh" -ge 100 ] && [ "$used" -ge 1002 ] && [ "$renamed" -ge 601 ] && [ $((fresh + used + renamed)) -lt 1850 ]; then
        verdict autoinc_kill ok
    else
        verdict "autoinc_kill: $fresh $used $renamed" FAILED
    fi
}
