-- What the sessions of sessions.sh meet.
DROP DATABASE IF EXISTS s;
CREATE DATABASE s;
USE s;
CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=TREFOIL;
INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
