-- One legitimate statement each line, over the tables of setup_sqlite.sql.
SELECT * FROM users ORDER BY id
SELECT id, name FROM main.users WHERE age > 30 ORDER BY id
SELECT rowid, name FROM users ORDER BY rowid
SELECT count(*), sum(total), total(total), avg(total), min(total), max(total) FROM orders
SELECT status, count(*) FROM orders GROUP BY status HAVING count(*) > 1 ORDER BY 1
SELECT group_concat(name, ', ') FROM (SELECT name FROM users ORDER BY id)
SELECT u.name, o.total FROM users AS u JOIN orders AS o ON o.user_id = u.id ORDER BY o.id
SELECT u.id, count(o.id) FROM users u LEFT JOIN orders o ON o.user_id = u.id AND o.total > 300 GROUP BY u.id ORDER BY u.id
SELECT * FROM paid ORDER BY id
SELECT id FROM users WHERE name LIKE 'user 1%' ORDER BY id
SELECT id FROM users WHERE name GLOB 'user [1-3]' ORDER BY id
SELECT id FROM users WHERE name IS NULL
SELECT id FROM users WHERE id IN (SELECT user_id FROM orders WHERE status = 'paid') ORDER BY id
SELECT id FROM users AS u WHERE EXISTS (SELECT 1 FROM orders WHERE user_id = u.id AND total > 400) ORDER BY id
SELECT upper(name), lower(name), length(name), substr(name, 1, 3), instr(name, 'r') FROM users ORDER BY id
SELECT replace(name, 'user', 'x'), trim(name), ltrim(name, 'u'), rtrim(name, '1'), hex(name) FROM users ORDER BY id
SELECT name || '-' || id FROM users ORDER BY id
SELECT coalesce(name, 'nobody'), ifnull(name, 'x'), nullif(id, 3), iif(id > 3, 'a', 'b') FROM users ORDER BY id
SELECT CASE WHEN age < 30 THEN 'young' ELSE 'old' END AS kind, count(*) FROM users GROUP BY kind ORDER BY kind
SELECT date(born), date(born, '+1 month'), strftime('%Y-%m', born), julianday(born) FROM users ORDER BY id
SELECT date(placed), count(*) FROM orders GROUP BY 1 ORDER BY 1
SELECT strftime('%H', placed) AS h, sum(total) FROM orders GROUP BY h ORDER BY h
SELECT datetime(placed, 'start of month'), unixepoch(placed) FROM orders ORDER BY id
SELECT json_extract(data, '$.k'), data ->> '$.k', data -> '$.l' FROM users ORDER BY id
SELECT u.id, e.value FROM users AS u, json_each(u.data, '$.l') AS e ORDER BY u.id, e.key
SELECT json_group_array(name) FROM users
SELECT json_object('id', id, 'name', name), json_array(id, name) FROM users ORDER BY id
SELECT json_array_length(data, '$.l'), json_type(data, '$.k'), json_valid(data) FROM users ORDER BY id
SELECT key, value FROM json_each('{"a": 1, "b": 2}') ORDER BY key
SELECT abs(-id), round(score, 1), id % 3, id / 7, score / 3 FROM users ORDER BY id
SELECT sqrt(id), power(id, 2), ceil(score), floor(score), pi(), log(id), exp(1), sign(-id) FROM users ORDER BY id
SELECT max(id, 3), min(id, 3) FROM users ORDER BY id
SELECT id & 3, id | 8, ~id, id << 2, id >> 1 FROM users ORDER BY id
SELECT typeof(id), typeof(name), typeof(score) FROM users ORDER BY id
SELECT CAST(id AS TEXT), CAST(score AS INTEGER), CAST('12' AS REAL) FROM users ORDER BY id
SELECT printf('%05d', id), format('%s!', name) FROM users ORDER BY id
SELECT row_number() OVER (ORDER BY id), rank() OVER (PARTITION BY age ORDER BY id) FROM users ORDER BY id
SELECT id, sum(total) OVER (PARTITION BY user_id ORDER BY id) FROM orders ORDER BY id
SELECT id, lag(total) OVER w, lead(total) OVER w FROM orders WINDOW w AS (ORDER BY id) ORDER BY id
SELECT id, avg(total) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM orders ORDER BY id
SELECT count(*) FILTER (WHERE status = 'paid') FROM orders
WITH big AS (SELECT * FROM orders WHERE total > 200) SELECT count(*) FROM big
WITH a(x) AS (VALUES (1), (2)) SELECT sum(x) FROM a
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT sum(i) FROM n
SELECT id FROM users UNION SELECT id FROM orders ORDER BY 1
SELECT id FROM users INTERSECT SELECT user_id FROM orders ORDER BY 1
SELECT id FROM users EXCEPT SELECT user_id FROM orders WHERE total > 300 ORDER BY 1
SELECT 1 UNION ALL SELECT 2 ORDER BY 1 DESC
SELECT DISTINCT status FROM orders ORDER BY 1
SELECT id FROM users ORDER BY name COLLATE NOCASE DESC, id LIMIT 5 OFFSET 2
SELECT id FROM users ORDER BY name NULLS LAST, id
SELECT id FROM users WHERE id BETWEEN 3 AND 9 OR id IN (20, 21) ORDER BY id
SELECT id FROM users WHERE NOT (id = 3) AND name <> 'user 4' AND name IS NOT NULL ORDER BY id
SELECT (SELECT max(total) FROM orders WHERE user_id = users.id) FROM users ORDER BY id
SELECT * FROM (SELECT id, name FROM users) AS q WHERE q.id < 4 ORDER BY q.id
SELECT "id", [name], `age` FROM "users" ORDER BY 1
SELECT 'it''s', x'00ff' IS NULL, NULL, 1.5, 1e3, 0x1F
SELECT count(*) FROM users, orders WHERE users.id = orders.user_id
SELECT id FROM users NATURAL JOIN (SELECT id FROM orders) ORDER BY id
SELECT users.id FROM users CROSS JOIN (SELECT 1) ORDER BY 1
SELECT users.id FROM users JOIN orders USING (id) ORDER BY 1
SELECT date('now') IS NOT NULL, time('12:00'), random() IS NOT NULL
SELECT unicode('a'), char(65, 66), quote(name), soundex('Robert') FROM users ORDER BY id
SELECT name LIKE 'a!%' ESCAPE '!' FROM users ORDER BY id
