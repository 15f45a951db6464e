-- Tables of a primary and its replica, in the engine that each of them takes for one that names none.
DROP DATABASE IF EXISTS rep;
CREATE DATABASE rep;
USE rep;
CREATE TABLE acc (id INT PRIMARY KEY, v INT);
CREATE TABLE items (id BIGINT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, k INT, pad VARCHAR(60), KEY k (k));
CREATE TABLE nokey (a INT, b VARCHAR(20), KEY a (a));
CREATE TABLE counts (n INT, i INT, k INT, c INT, PRIMARY KEY (n, i));
CREATE TABLE journal (n INT, i INT, PRIMARY KEY (n, i));
INSERT INTO acc SELECT seq, 100 FROM seq_0_to_9;
INSERT INTO items (u, k, pad) SELECT seq * 7, seq % 12, REPEAT('x', seq % 50) FROM seq_1_to_200;
CREATE TABLE owners (id INT PRIMARY KEY, pad INT);
CREATE TABLE owned (id BIGINT AUTO_INCREMENT PRIMARY KEY, o INT, pad INT, FOREIGN KEY (o) REFERENCES owners (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE seen (id BIGINT AUTO_INCREMENT PRIMARY KEY, o INT UNIQUE, FOREIGN KEY (o) REFERENCES owners (id) ON DELETE SET NULL ON UPDATE CASCADE);
INSERT INTO owners SELECT seq, 0 FROM seq_0_to_39;
INSERT INTO owned (o, pad) SELECT seq % 40, seq FROM seq_1_to_200;
