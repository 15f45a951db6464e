-- What reads give out, in every order and by every way: run for TREFOIL and for InnoDB, which must print the same.
CREATE DATABASE by_key;
USE by_key;

CREATE TABLE t (
    id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(20) COLLATE latin1_nopad_bin, c INT, d CHAR(6) COLLATE latin1_bin NOT NULL,
    e DECIMAL(8, 2), f DATETIME, g DOUBLE, h BLOB, z INT NOT NULL,
    KEY a (a), KEY bc (b, c), UNIQUE KEY ci (c, id), KEY d (d), KEY e (e, f), KEY g (g));
INSERT INTO t SELECT seq, seq % 37, IF(seq % 11, CONCAT('b', seq % 50), NULL), IF(seq % 7, seq % 100, NULL),
    CONCAT('d', seq % 9), seq % 13 / 4, '2024-01-01' + INTERVAL seq % 400 HOUR, seq % 17 - 8e0,
    REPEAT(CHAR(65 + seq % 26), seq % 300), seq % 1000 FROM seq_1_to_3000;
CREATE TABLE hidden (a INT, b INT, c VARCHAR(10), KEY a (a), KEY ba (b, a));
INSERT INTO hidden SELECT seq % 20, seq % 7, seq FROM seq_1_to_500;
CREATE TABLE two (x INT, y VARCHAR(20) COLLATE latin1_nopad_bin, v INT, w INT, PRIMARY KEY (y, x), KEY v (v));
INSERT INTO two SELECT s % 50, CONCAT('y', s % 40), s % 30, s
    FROM (SELECT MIN(seq) AS s FROM seq_1_to_900 GROUP BY seq % 50, seq % 40) AS firsts;
ANALYZE TABLE t, hidden, two;

-- From keys alone.
SELECT a, COUNT(*) FROM t FORCE INDEX (a) WHERE a BETWEEN 5 AND 7 GROUP BY a;
SELECT a, id FROM t FORCE INDEX (a) WHERE a IN (3, 36) ORDER BY a DESC, id DESC LIMIT 5;
SELECT b, c, id FROM t FORCE INDEX (bc) WHERE b IS NULL ORDER BY b, c, id LIMIT 4;
SELECT b, c, id FROM t FORCE INDEX (bc) WHERE b >= 'b48' ORDER BY b, c, id LIMIT 7 OFFSET 55;
SELECT c, id FROM t FORCE INDEX (ci) WHERE c IS NULL ORDER BY id DESC LIMIT 3;
SELECT d, LENGTH(d), COUNT(*) FROM t FORCE INDEX (d) GROUP BY d;
SELECT e, f, id FROM t FORCE INDEX (e) WHERE e = 1.25 ORDER BY f, id LIMIT 4;
SELECT g, COUNT(*) FROM t FORCE INDEX (g) WHERE g < -5 OR g = 0 GROUP BY g;
SELECT MIN(a), MAX(a), COUNT(*) FROM t FORCE INDEX (a);
SELECT MIN(c), MAX(c) FROM t;
SELECT COUNT(*), SUM(id) FROM t FORCE INDEX (PRIMARY) WHERE id > 2500;
SELECT x, y FROM two FORCE INDEX (v) WHERE v = 7 ORDER BY y, x LIMIT 4;
SELECT y, x FROM two FORCE INDEX (PRIMARY) WHERE y = 'y3' ORDER BY x DESC LIMIT 3;
SELECT a, COUNT(*) FROM hidden FORCE INDEX (a) WHERE a > 15 GROUP BY a;
SELECT b, a FROM hidden FORCE INDEX (ba) WHERE b = 3 ORDER BY a DESC LIMIT 3;
SELECT DISTINCT a FROM t FORCE INDEX (a) WHERE a < 5;

-- The same in a transaction that has written.
BEGIN;
UPDATE t SET a = 1000 WHERE id IN (10, 20, 30);
DELETE FROM t WHERE a = 6;
INSERT INTO t VALUES (9001, 6, 'b0', 1, 'd', 0.5, '2024-01-01', -0.0, '', 1);
SELECT a, COUNT(*), MIN(id), MAX(id) FROM t FORCE INDEX (a) WHERE a BETWEEN 5 AND 7 OR a = 1000 GROUP BY a;
SELECT id, a, z FROM t FORCE INDEX (a) WHERE a = 1000 FOR UPDATE;
SELECT id FROM t FORCE INDEX (a) WHERE a = 6 LOCK IN SHARE MODE;
ROLLBACK;
SELECT a, COUNT(*), MIN(id), MAX(id) FROM t FORCE INDEX (a) WHERE a BETWEEN 5 AND 7 OR a = 1000 GROUP BY a;

-- Rows by keys.
SELECT id, z, LENGTH(h) FROM t FORCE INDEX (a) WHERE a = 5 AND z > 900 ORDER BY id;
SELECT id, a, z FROM t FORCE INDEX (a) WHERE a BETWEEN 35 AND 36 ORDER BY a DESC, id DESC LIMIT 3 OFFSET 60;
SELECT id, MD5(h) FROM t FORCE INDEX (bc) WHERE b = 'b7' AND c BETWEEN 50 AND 60 ORDER BY id LIMIT 6;
SELECT id, z FROM t FORCE INDEX (bc) WHERE b BETWEEN 'b1' AND 'b2' AND c % 5 = 2 AND z > 10 ORDER BY b, c, id LIMIT 6;
SELECT id, z FROM t FORCE INDEX (bc) WHERE b BETWEEN 'b1' AND 'b2' AND c % 5 = 2 ORDER BY b DESC, c DESC, id DESC LIMIT 6;
SELECT id, b, c, z FROM t FORCE INDEX (bc) WHERE b LIKE 'b4%' AND c < 10 ORDER BY id LIMIT 5;
SELECT id, z FROM t FORCE INDEX (e) WHERE e BETWEEN 1 AND 2 AND f LIKE '%-05 1%' ORDER BY id LIMIT 5;
SELECT id, z FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 100 AND 130 AND id % 9 = 1;
SELECT id, z FROM t FORCE INDEX (PRIMARY) WHERE id > 100 AND id < 105 ORDER BY id DESC;
SELECT id, z FROM t FORCE INDEX (ci) WHERE c IS NULL AND z < 40 ORDER BY id;
SELECT * FROM two WHERE (y, x) IN (('y1', 1), ('y2', 3), ('y39', 49), ('none', 1), ('y1', 41)) ORDER BY y, x;
SELECT c FROM hidden FORCE INDEX (ba) WHERE b = 3 AND a IN (1, 5, 19) ORDER BY b, a, c + 0 LIMIT 6;
SELECT COUNT(*), SUM(z) FROM t WHERE a = 5 OR c = 17;
SELECT id, z FROM t WHERE a = 5 AND d = 'd3' ORDER BY id LIMIT 4;

-- Index merge, batched joins, sorts by references.
SET optimizer_switch = 'index_merge_sort_intersection=on';
SELECT id, z FROM t FORCE INDEX (a, d) WHERE a = 11 AND d = 'd4' ORDER BY id;
SELECT id, z FROM t FORCE INDEX (a, d) WHERE a = 11 OR d = 'd4' ORDER BY z, id LIMIT 5;
SELECT COUNT(*) FROM t FORCE INDEX (a, g) WHERE a < 4 OR g > 6;
SET optimizer_switch = 'mrr=on,mrr_sort_keys=on,join_cache_bka=on,optimize_join_buffer_size=on', join_cache_level = 8;
SELECT COUNT(*), SUM(t.z), SUM(LENGTH(t.h)) FROM two STRAIGHT_JOIN t FORCE INDEX (a) ON t.a = two.v WHERE two.x < 9;
SELECT COUNT(*), SUM(t.z) FROM two STRAIGHT_JOIN t FORCE INDEX (PRIMARY) ON t.id = two.w;
SELECT COUNT(*), SUM(t.z) FROM two STRAIGHT_JOIN t FORCE INDEX (bc) ON t.b = REPLACE(two.y, 'y', 'b') AND t.c < two.x;
SELECT COUNT(*), COUNT(t.id) FROM two LEFT JOIN t FORCE INDEX (ci) ON t.c = two.v + 90 AND t.z > 500;
SELECT id, z FROM t FORCE INDEX (a) WHERE a IN (1, 9, 30) AND z BETWEEN 100 AND 300 ORDER BY z, id LIMIT 5;
SET optimizer_switch = DEFAULT, join_cache_level = DEFAULT;
SELECT COUNT(*), SUM(t.z) FROM two STRAIGHT_JOIN t FORCE INDEX (a) ON t.a = two.v WHERE two.x < 9;
SELECT id, h = REPEAT(CHAR(65 + id % 26), id % 300) AS same FROM t WHERE z < 5 ORDER BY LENGTH(h), id LIMIT 6;
SELECT COUNT(*) FROM t x WHERE EXISTS (SELECT 1 FROM t y FORCE INDEX (a) WHERE y.a = x.c AND y.z > x.z + 900);
SELECT x.id, (SELECT MAX(y.id) FROM t y WHERE y.a = x.a) AS last FROM t x WHERE x.id < 6 ORDER BY x.id;

-- Some of the columns, where others are not kept at all, and what is changed by whoever has read a few.
CREATE TABLE some (
    n INT, twice INT AS (k * 2) VIRTUAL, t TEXT, k INT, rest INT AS (k % 7) VIRTUAL, s INT AS (k + 1) STORED, id INT, v VARCHAR(300),
    PRIMARY KEY (id), KEY rest (rest), KEY v (v(2), n));
INSERT INTO some (n, t, k, id, v) SELECT IF(seq % 5, seq, NULL), REPEAT('t', seq % 90), seq % 50, seq, CONCAT(seq % 40, 'v') FROM seq_1_to_900;
CREATE TABLE parts (id INT PRIMARY KEY, k INT, t TEXT, n INT, KEY k (k)) PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO parts SELECT id, k, t, n FROM some;
SELECT SUM(n), COUNT(*) FROM some;
SELECT SUM(twice), SUM(s) FROM some FORCE INDEX (PRIMARY) WHERE id BETWEEN 100 AND 800;
SELECT SUM(LENGTH(t)), MAX(rest) FROM some IGNORE INDEX (rest);
SELECT n, v FROM some FORCE INDEX (rest) WHERE rest = 3 ORDER BY id DESC LIMIT 4;
SELECT k FROM some FORCE INDEX (v) WHERE v LIKE '17%' AND n > 0 ORDER BY v, n LIMIT 5;
SELECT v FROM some FORCE INDEX (v) WHERE v >= '39' ORDER BY v DESC, n DESC LIMIT 3 OFFSET 20;
SELECT twice FROM some WHERE id = 77;
SELECT 1 FROM some WHERE id > 895;
SELECT n FROM some ORDER BY LENGTH(t) DESC, id LIMIT 3;
SELECT DISTINCT s FROM some WHERE k < 3 ORDER BY s;
SELECT n, t FROM parts ORDER BY k, id LIMIT 3;
SELECT SUM(n) FROM parts FORCE INDEX (k) WHERE k IN (3, 9);
SELECT a.n, b.t FROM some a JOIN parts b ON b.id = a.k + 1 WHERE a.id < 4 ORDER BY a.id;
UPDATE some SET n = n + 1 WHERE k = 7;
UPDATE some FORCE INDEX (rest) SET v = 'w' WHERE rest = 2 AND k > 40;
UPDATE parts SET n = 0 WHERE k = 1 ORDER BY id LIMIT 5;
SET SESSION binlog_row_image = 'MINIMAL', tx_isolation = 'READ-COMMITTED';
UPDATE some SET k = 49 WHERE n = 502;
UPDATE some, parts SET some.k = parts.n, parts.k = 3 WHERE some.id = parts.id AND parts.n < 20;
DELETE FROM some WHERE s = 9 AND id > 400;
SET SESSION binlog_row_image = DEFAULT, tx_isolation = DEFAULT;
INSERT INTO some (id, k) SELECT id + 5000, k FROM parts WHERE k = 11;
REPLACE INTO some (id, n) SELECT id, k FROM some WHERE id BETWEEN 500 AND 505;
INSERT INTO some (id, n) SELECT id, n FROM parts WHERE id < 10 ON DUPLICATE KEY UPDATE v = CONCAT('again ', some.n);
LOCK TABLES some WRITE;
SELECT SUM(k) FROM some WHERE id < 300;
UPDATE some SET n = -n WHERE id % 100 = 3;
UNLOCK TABLES;
CREATE TEMPORARY TABLE passing (id INT PRIMARY KEY, a INT, b TEXT);
INSERT INTO passing SELECT id, k, t FROM some WHERE id < 50;
SELECT SUM(a) FROM passing;
UPDATE passing SET a = a + 1 WHERE id > 20;
SELECT COUNT(*), SUM(a), SUM(LENGTH(b)) FROM passing;
SELECT COUNT(*), SUM(n), SUM(k), SUM(twice), SUM(LENGTH(t)), SUM(rest), SUM(s), SUM(id), SUM(CRC32(v)) FROM some;
SELECT COUNT(*), SUM(k), SUM(LENGTH(t)), SUM(n) FROM parts;
CHECK TABLE some, parts;

-- Cursors that turn, and step over the end of what they were asked for.
HANDLER t OPEN;
HANDLER t READ a = (36) WHERE z > 990 LIMIT 2;
HANDLER t READ a NEXT;
HANDLER t READ a PREV;
HANDLER t READ a PREV;
HANDLER t READ a > (35) LIMIT 1;
HANDLER t READ a PREV LIMIT 2;
HANDLER t READ a LAST;
HANDLER t READ a NEXT;
HANDLER t READ bc FIRST LIMIT 2;
HANDLER t READ bc <= ('b3', 5) LIMIT 3;
HANDLER t READ bc PREV LIMIT 2;
HANDLER t READ `PRIMARY` = (7);
HANDLER t READ `PRIMARY` NEXT LIMIT 2;
HANDLER t READ `PRIMARY` PREV LIMIT 3;
HANDLER t READ FIRST LIMIT 2;
HANDLER t READ NEXT LIMIT 2;
HANDLER t CLOSE;

-- Changes along keys.
CREATE TABLE u LIKE t;
INSERT INTO u SELECT * FROM t;
UPDATE u SET z = z + 1;
UPDATE u FORCE INDEX (a) SET z = z + 1000 WHERE a BETWEEN 10 AND 20 AND z % 2;
UPDATE u FORCE INDEX (a) SET a = a + 1 WHERE a > 30;
UPDATE u FORCE INDEX (a) SET z = 0 WHERE a = 4 ORDER BY id DESC LIMIT 3;
UPDATE u SET id = id + 10000 WHERE id % 100 = 0;
DELETE FROM u WHERE a = 7 AND c IS NULL ORDER BY id LIMIT 4;
DELETE FROM u WHERE b = 'b9' AND c % 3 = 0;
UPDATE u JOIN two ON u.id = two.w SET u.z = two.v WHERE two.x = 3;
DELETE u FROM u JOIN two FORCE INDEX (v) ON u.a = two.v WHERE two.x = 5 AND u.z < 100;
SELECT COUNT(*), SUM(id), SUM(a), SUM(z), SUM(c) FROM u;
SELECT COUNT(*), SUM(a), SUM(id) FROM u FORCE INDEX (a) WHERE a >= 0;
SELECT id, a, z FROM u FORCE INDEX (a) WHERE a IN (4, 38) ORDER BY a, id LIMIT 8;
INSERT INTO u SELECT id + 50000, a, b, c, d, e, f, g, h, z FROM u FORCE INDEX (a) WHERE a = 12;
INSERT INTO u (id, a, d, z) SELECT id, a, d, z FROM t WHERE a = 7 ON DUPLICATE KEY UPDATE z = u.z + VALUES(z);
SELECT COUNT(*), SUM(id), SUM(a), SUM(z), SUM(c) FROM u;

-- The front of a CHAR in a key: what is equal by the collation, however many characters it has that count for nothing.
CREATE TABLE fronts (id INT PRIMARY KEY, c CHAR(5) CHARACTER SET utf32 COLLATE utf32_unicode_ci, KEY c (c(2)));
INSERT INTO fronts VALUES (1, _utf8mb4 0x6101), (2, _utf8mb4 0x6101), (3, 'a'), (4, 'A'), (5, 'b');
SELECT id FROM fronts FORCE INDEX (c) WHERE c = 'a' ORDER BY id;
SELECT COUNT(*) FROM two STRAIGHT_JOIN fronts FORCE INDEX (c) ON fronts.c = IF(two.w, 'a', 'b') WHERE two.w < 3;

-- Rows of the past go into the first partition that has room.
CREATE TABLE past (id INT PRIMARY KEY) WITH SYSTEM VERSIONING
    PARTITION BY SYSTEM_TIME LIMIT 3 (PARTITION a HISTORY, PARTITION b HISTORY, PARTITION n CURRENT);
INSERT INTO past VALUES (1), (2), (3), (4);
DELETE FROM past WHERE id < 4;
DELETE FROM past;
SELECT (SELECT COUNT(*) FROM past PARTITION (a)) AS a, (SELECT COUNT(*) FROM past PARTITION (b)) AS b;
DROP DATABASE by_key;
