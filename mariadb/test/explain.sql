-- SPDX-License-Identifier: GPL-2.0-only
-- A shop of a realistic shape, some of its columns skewed, made without chance; then forty plans.
SET SESSION sql_mode = '';
CREATE TABLE nation (n_id INT PRIMARY KEY, n_region INT NOT NULL, n_name CHAR(20), KEY region (n_region));
CREATE TABLE customer (c_id INT PRIMARY KEY, c_nation INT NOT NULL, c_segment INT NOT NULL, c_balance DECIMAL(12,2) NOT NULL,
  c_name CHAR(24) NOT NULL, c_address VARCHAR(60) NOT NULL, KEY nation (c_nation), KEY segment (c_segment, c_balance));
CREATE TABLE orders (o_id INT PRIMARY KEY, o_customer INT NOT NULL, o_status INT NOT NULL, o_date DATE NOT NULL,
  o_total DECIMAL(12,2) NOT NULL, o_clerk INT, o_comment VARCHAR(80) NOT NULL,
  KEY customer (o_customer), KEY date (o_date), KEY status (o_status, o_date), KEY clerk (o_clerk));
CREATE TABLE line (l_order INT NOT NULL, l_number INT NOT NULL, l_part INT NOT NULL, l_supplier INT NOT NULL,
  l_quantity INT NOT NULL, l_price DECIMAL(12,2) NOT NULL, l_shipped DATE NOT NULL, l_comment VARCHAR(44) NOT NULL,
  PRIMARY KEY (l_order, l_number), KEY part (l_part, l_supplier), KEY supplier (l_supplier), KEY shipped (l_shipped));
CREATE TABLE part (p_id INT PRIMARY KEY, p_size INT NOT NULL, p_brand INT NOT NULL, p_type INT NOT NULL, p_name VARCHAR(55) NOT NULL,
  KEY size (p_size), KEY brand (p_brand, p_type));
CREATE TABLE supplier (s_id INT PRIMARY KEY, s_nation INT NOT NULL, s_balance DECIMAL(12,2) NOT NULL, s_name CHAR(25) NOT NULL,
  KEY nation (s_nation));
CREATE TABLE stock (st_part INT NOT NULL, st_supplier INT NOT NULL, st_quantity INT NOT NULL, st_cost DECIMAL(12,2) NOT NULL,
  st_comment VARCHAR(100) NOT NULL, PRIMARY KEY (st_part, st_supplier), KEY supplier (st_supplier));
CREATE TABLE event (e_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, e_kind TINYINT NOT NULL, e_user INT NOT NULL,
  e_at DATETIME NOT NULL, e_ref BIGINT, UNIQUE KEY ref (e_ref), KEY kind (e_kind), KEY user (e_user, e_at));
CREATE TABLE setting (se_id INT PRIMARY KEY, se_value VARCHAR(40) NOT NULL);

INSERT INTO nation SELECT seq, seq MOD 5, CONCAT('nation ', seq) FROM seq_0_to_24;
INSERT INTO customer SELECT seq, seq * 7 MOD 25, IF(seq MOD 10 < 6, 1, seq MOD 5), seq * 7919 MOD 1000000 / 100,
  CONCAT('customer ', seq), REPEAT(CHAR(97 + seq MOD 26), 20 + seq MOD 40) FROM seq_1_to_3000;
INSERT INTO orders SELECT seq, 1 + FLOOR(3000 * POW(seq * 7919 MOD 30011 / 30011, 2)), IF(seq MOD 20 = 0, 2, IF(seq MOD 400 = 1, 3, 1)),
  '2020-01-01' + INTERVAL FLOOR(seq / 20) DAY, seq * 104729 MOD 5000000 / 100, IF(seq MOD 3 = 0, NULL, seq MOD 100),
  REPEAT('c', 20 + seq MOD 60) FROM seq_1_to_30000;
INSERT INTO line SELECT o_id, seq, 1 + (o_id * 31 + seq * 17) * 7919 MOD 4000, 1 + FLOOR(200 * POW((o_id * 13 + seq) * 7919 MOD 10007 / 10007, 3)),
  1 + (o_id + seq) MOD 50, o_id * seq MOD 100000 / 100, o_date + INTERVAL seq * 7 DAY, REPEAT('l', 10 + o_id MOD 34)
  FROM orders JOIN seq_1_to_4 WHERE seq <= 1 + o_id MOD 4;
INSERT INTO part SELECT seq, 1 + seq * 7919 MOD 50, seq MOD 25, seq * 31 MOD 150, REPEAT('p', 20 + seq MOD 30) FROM seq_1_to_4000;
INSERT INTO supplier SELECT seq, seq MOD 25, seq * 7919 MOD 1000000 / 100, CONCAT('supplier ', seq) FROM seq_1_to_200;
INSERT INTO stock SELECT p_id, 1 + (p_id + seq * 50) MOD 200, p_id * seq MOD 1000, p_id * 11 MOD 100000 / 100, REPEAT('s', 50 + p_id MOD 50)
  FROM part JOIN seq_0_to_3;
INSERT INTO event (e_kind, e_user, e_at, e_ref) SELECT IF(seq MOD 1000 = 0, 9, IF(seq MOD 10 = 0, 2, 1)),
  FLOOR(2000 * POW(seq * 7919 MOD 40009 / 40009, 4)), '2022-01-01' + INTERVAL seq MINUTE, IF(seq MOD 4 = 0, seq, NULL) FROM seq_1_to_40000;
INSERT INTO setting SELECT seq, REPEAT('s', seq MOD 40) FROM seq_1_to_1000;
ANALYZE TABLE nation, customer, orders, line, part, supplier, stock, event, setting;

-- One table: points, short and long ranges, skewed values.
EXPLAIN SELECT * FROM orders WHERE o_id = 77;
EXPLAIN SELECT * FROM orders WHERE o_id BETWEEN 100 AND 200;
EXPLAIN SELECT * FROM orders WHERE o_id > 29000;
EXPLAIN SELECT * FROM orders WHERE o_status = 1;
EXPLAIN SELECT * FROM orders WHERE o_status = 3;
EXPLAIN SELECT * FROM orders WHERE o_status = 2 AND o_date BETWEEN '2021-01-01' AND '2021-02-01';
EXPLAIN SELECT * FROM orders WHERE o_date = '2022-03-01';
EXPLAIN SELECT * FROM orders WHERE o_date >= '2020-01-01';
EXPLAIN SELECT * FROM orders WHERE o_date BETWEEN '2021-05-01' AND '2021-05-10' AND o_customer = 5;
EXPLAIN SELECT * FROM orders WHERE o_customer = 1;
EXPLAIN SELECT * FROM orders WHERE o_customer = 2900;
EXPLAIN SELECT * FROM orders WHERE o_clerk IS NULL;
EXPLAIN SELECT * FROM orders WHERE o_clerk IN (3, 5, 7);
EXPLAIN SELECT * FROM orders WHERE o_clerk = 3 OR o_date = '2021-01-01';
EXPLAIN SELECT * FROM event WHERE e_kind = 1;
EXPLAIN SELECT * FROM event WHERE e_kind = 9;
EXPLAIN SELECT * FROM event WHERE e_user = 0 ORDER BY e_at DESC LIMIT 10;
EXPLAIN SELECT * FROM event WHERE e_user = 1500 AND e_at > '2022-01-10';
EXPLAIN SELECT * FROM event WHERE e_ref = 400;
EXPLAIN SELECT * FROM event WHERE e_ref IS NULL AND e_kind = 2;
EXPLAIN SELECT * FROM event ORDER BY e_id DESC LIMIT 5;
EXPLAIN SELECT se_id FROM setting;
EXPLAIN SELECT se_id FROM setting WHERE se_id BETWEEN 10 AND 990;
EXPLAIN SELECT se_id FROM setting ORDER BY se_id;
EXPLAIN SELECT se_id FROM setting IGNORE INDEX FOR ORDER BY (PRIMARY) ORDER BY se_id DESC;
EXPLAIN SELECT * FROM customer WHERE c_segment = 1 AND c_balance > 9000;
EXPLAIN SELECT * FROM customer WHERE c_segment = 3 ORDER BY c_balance LIMIT 20;
EXPLAIN SELECT * FROM part WHERE p_brand = 3 AND p_type = 12;
EXPLAIN SELECT * FROM part WHERE p_size = 4 AND p_brand = 7;
EXPLAIN SELECT * FROM line WHERE l_order = 500;
EXPLAIN SELECT * FROM line WHERE l_part = 33 AND l_supplier < 50;
-- Joins.
EXPLAIN SELECT * FROM customer JOIN orders ON o_customer = c_id WHERE c_id = 10;
EXPLAIN SELECT * FROM customer JOIN orders ON o_customer = c_id WHERE c_nation = 3 AND o_date > '2023-12-01';
EXPLAIN SELECT * FROM orders JOIN line ON l_order = o_id WHERE o_date = '2021-06-01';
EXPLAIN SELECT * FROM orders JOIN line ON l_order = o_id WHERE l_shipped = '2021-06-01';
EXPLAIN SELECT * FROM orders JOIN customer ON c_id = o_customer JOIN nation ON n_id = c_nation WHERE n_region = 2 AND o_status = 3;
EXPLAIN SELECT n_name, SUM(l_price) FROM customer JOIN orders ON o_customer = c_id JOIN line ON l_order = o_id
  JOIN supplier ON s_id = l_supplier JOIN nation ON n_id = s_nation
  WHERE c_nation = s_nation AND n_region = 1 AND o_date BETWEEN '2021-01-01' AND '2021-12-31' GROUP BY n_name;
EXPLAIN SELECT * FROM part JOIN stock ON st_part = p_id JOIN supplier ON s_id = st_supplier WHERE p_size = 15 AND s_nation = 4;
EXPLAIN SELECT * FROM supplier JOIN line ON l_supplier = s_id WHERE s_nation = 3 AND l_shipped BETWEEN '2022-01-01' AND '2022-01-07';
EXPLAIN SELECT o_date, COUNT(*) FROM orders WHERE o_date >= '2023-06-01' AND EXISTS (SELECT 1 FROM line WHERE l_order = o_id AND l_quantity > 45) GROUP BY o_date;
EXPLAIN SELECT * FROM customer WHERE c_id NOT IN (SELECT o_customer FROM orders WHERE o_status = 2) AND c_balance > 5000;
EXPLAIN SELECT p_brand, COUNT(*) FROM part JOIN line ON l_part = p_id WHERE p_brand = 5 AND p_type < 20 GROUP BY p_brand;
EXPLAIN SELECT * FROM customer LEFT JOIN orders ON o_customer = c_id AND o_date > '2023-01-01' WHERE c_segment = 4 ORDER BY c_id LIMIT 10;
EXPLAIN SELECT l_part, SUM(l_quantity) FROM line JOIN part ON p_id = l_part WHERE p_size BETWEEN 1 AND 2 AND l_supplier = 1 GROUP BY l_part;
EXPLAIN SELECT * FROM orders o JOIN event e ON e.e_ref = o.o_id WHERE e.e_kind = 9;
EXPLAIN SELECT COUNT(*) FROM orders WHERE o_status = 1 AND o_date < '2020-02-01';
