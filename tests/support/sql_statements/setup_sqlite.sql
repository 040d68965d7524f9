CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, score REAL, born TEXT, data TEXT);
INSERT INTO users WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
    SELECT i, CASE WHEN i % 7 THEN 'user ' || i END, 20 + i % 30, i * 1.25, date('1990-01-01', i || ' days'), json_object('k', i, 'l', json_array(i, 'z')) FROM n;
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER, total REAL, status TEXT, placed TEXT);
INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120)
    SELECT i, 1 + i % 40, i * 3.5, CASE i % 3 WHEN 0 THEN 'open' WHEN 1 THEN 'paid' ELSE 'sent' END, datetime('2024-03-01', (i * 7) || ' hours') FROM n;
CREATE VIEW paid AS SELECT * FROM orders WHERE status = 'paid';
CREATE INDEX by_status ON orders (status);
