-- Accounts and a journal in three tables of two engines, for a server that is killed.
DROP DATABASE IF EXISTS kill_test;
CREATE DATABASE kill_test;
USE kill_test;
CREATE TABLE acc (id INT PRIMARY KEY, v INT) ENGINE=TREFOIL;
CREATE TABLE journal (n INT, i INT, PRIMARY KEY (n, i)) ENGINE=TREFOIL;
CREATE TABLE keyed (n INT, i INT, k INT, PRIMARY KEY (n, i), KEY k (k)) ENGINE=TREFOIL;
CREATE TABLE innodb_journal (n INT, i INT, PRIMARY KEY (n, i)) ENGINE=InnoDB;
INSERT INTO acc VALUES (0, 100), (1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100), (8, 100), (9, 100),
  (10, 100), (11, 100), (12, 100), (13, 100), (14, 100), (15, 100), (16, 100), (17, 100), (18, 100), (19, 100);
