# SPDX-License-Identifier: GPL-2.0-only
# What docs/MIGRATING.md says: tables of InnoDB come here and go back, equal; killed half-way nothing is lost. Sourced by smoke.sh.

# The server's CHECKSUM TABLE takes virtual columns as they happen to lie in memory: of such a table by its values.
sums_of() {
    value 'CHECKSUM TABLE s.m1, s.m2 EXTENDED' | cut -f 2 | paste -sd' '
    value 'SELECT COUNT(*), SUM(CRC32(CONCAT_WS("|", k, e, g))) FROM s.m3'
}
engines_of() { value "SELECT GROUP_CONCAT(DISTINCT engine) FROM information_schema.TABLES WHERE table_schema = 's' AND table_name LIKE 'm_'"; }

tables_to_move() {
    client s -e "CREATE TABLE m1 (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(50) COLLATE utf8mb4_general_ci, b DECIMAL(12,3), c DATETIME(6),
            UNIQUE (b), KEY (a, c)) ENGINE=InnoDB;
        CREATE TABLE m2 (v INT, t TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8;
        CREATE TABLE m3 (k VARBINARY(32) PRIMARY KEY, e ENUM('a','b'), g INT AS (LENGTH(k)) VIRTUAL, KEY (g)) ENGINE=InnoDB
            PARTITION BY KEY (k) PARTITIONS 3;
        INSERT INTO m1 (a, b, c) SELECT MD5(seq % 5000), seq / 7, '2026-01-01' + INTERVAL seq SECOND FROM seq_1_to_20000;
        INSERT INTO m2 SELECT seq, IF(seq % 3, REPEAT(seq, 50), NULL) FROM seq_1_to_5000;
        INSERT INTO m3 (k, e) SELECT MD5(seq), 1 + seq % 2 FROM seq_1_to_5000"
}

check_there_and_back() {
    local before n structure
    tables_to_move
    before=$(sums_of)
    for structure in auto btree lsm; do
        for n in 1 2 3; do
            value "SET sql_mode = CONCAT(@@sql_mode, ',IGNORE_BAD_TABLE_OPTIONS'); ALTER TABLE s.m$n ENGINE=TREFOIL STRUCTURE=$structure"
        done
        expect "$(engines_of) $(sums_of)" "TREFOIL $before"
        expect "$(value 'CHECK TABLE s.m1, s.m2, s.m3' | cut -f 4 | sort -u)" OK
        expect "$(value 'SELECT COUNT(*) FROM s.m1 FORCE INDEX (a) WHERE a = MD5(77)')" 4
    done
    value 'INSERT INTO s.m1 (a) VALUES ("new")'
    expect "$(value 'SELECT MAX(id) FROM s.m1')" "$(value 'SELECT id FROM s.m1 WHERE a = "new"')"
    value 'DELETE FROM s.m1 WHERE a = "new"'
    for n in 1 2 3; do value "ALTER TABLE s.m$n ENGINE=InnoDB"; done
    expect "$(engines_of) $(sums_of)" "InnoDB $before"
    expect "$(view INDEXES 'COUNT(*)' "WHERE TABLE_SCHEMA = 's' AND TABLE_NAME LIKE 'm%'")" 0
    # What is not here stays where it is.
    value 'CREATE TABLE s.f (id INT PRIMARY KEY, t TEXT, FULLTEXT (t)) ENGINE=InnoDB'
    case $(value 'ALTER TABLE s.f ENGINE=TREFOIL' 2>&1) in *ERROR*) ;; *) echo 'FULLTEXT was taken' ;; esac
    expect "$(value "SELECT engine FROM information_schema.TABLES WHERE table_schema = 's' AND table_name = 'f'")" InnoDB
}

# The server is killed in the middle of each way, three times: the table is as it was, or as it was to be.
check_move_that_is_killed() {
    local before to from n
    tables_to_move
    client s -e 'INSERT INTO m1 (a, b, c) SELECT a, b + 100000, c FROM m1; INSERT INTO m1 (a, b, c) SELECT a, b + 200000, c FROM m1'
    before=$(sums_of)
    for n in 1 2 3; do
        for to in TREFOIL InnoDB; do
            [ "$to" = TREFOIL ] && from=InnoDB || from=TREFOIL
            send a "ALTER TABLE m1 ENGINE=$to;"
            running "ALTER TABLE m1 ENGINE=$to" > /dev/null
            sleep "0.$((n * 2))"
            kill_server
            close_sessions
            start_server "${SERVER_ARGS[@]/--innodb=OFF/--innodb=ON}" 2> /dev/null
            expect "$(sums_of)" "$before"
            expect "$(value 'CHECK TABLE s.m1' | cut -f 4)" OK
            case $(value "SELECT engine FROM information_schema.TABLES WHERE table_schema = 's' AND table_name = 'm1'") in
                "$from" | "$to") ;;
                *) echo 'it has no engine' ;;
            esac
            value "ALTER TABLE s.m1 ENGINE=$to"
            open_session a
        done
    done
    expect "$(find "$DATA/s" -name '#sql*')" ''
}
