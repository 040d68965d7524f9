-- One legitimate statement each line, over the tables of setup_postgres.sql.
SELECT * FROM users ORDER BY id
SELECT id, name FROM users WHERE active ORDER BY id
SELECT u.* FROM users AS u WHERE u.id < 5 ORDER BY u.id
SELECT public.users.id FROM public.users ORDER BY 1
TABLE staff
SELECT ALL id FROM users
SELECT DISTINCT status FROM orders
SELECT DISTINCT ON (user_id) user_id, total FROM orders ORDER BY user_id, total DESC
SELECT id FROM users ORDER BY name NULLS FIRST, id DESC
SELECT id FROM users ORDER BY score DESC NULLS LAST LIMIT 5 OFFSET 2
SELECT id FROM users ORDER BY id FETCH FIRST 3 ROWS ONLY
SELECT status FROM orders ORDER BY status FETCH FIRST 1 ROW WITH TIES
SELECT id FROM users ORDER BY id OFFSET 3 ROWS FETCH NEXT 4 ROWS ONLY
SELECT id FROM users ORDER BY id LIMIT ALL
SELECT count(*) FROM users
SELECT count(name), count(DISTINCT status) FROM users CROSS JOIN orders
SELECT status, count(*) AS n, sum(total) AS total, avg(total) AS mean FROM orders GROUP BY status ORDER BY n DESC, status
SELECT status, count(*) FROM orders GROUP BY 1 HAVING count(*) > 10 ORDER BY 1
SELECT date_trunc('day', placed) AS day, sum(total) FROM orders GROUP BY day ORDER BY day
SELECT status, user_id, sum(total) FROM orders GROUP BY ROLLUP (status, user_id) ORDER BY 1, 2
SELECT status, version, sum(total) FROM orders GROUP BY CUBE (status, version) ORDER BY 1, 2
SELECT status, version, sum(total), grouping(status) FROM orders GROUP BY GROUPING SETS ((status), (version), ()) ORDER BY 1, 2
SELECT status, count(*) FILTER (WHERE total > 100) AS big FROM orders GROUP BY status ORDER BY 1
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY total) FROM orders
SELECT percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY total) FROM orders
SELECT mode() WITHIN GROUP (ORDER BY status) FROM orders
SELECT string_agg(name, ', ' ORDER BY id) FROM users WHERE id < 5
SELECT string_agg(DISTINCT status, ',' ORDER BY status) FROM orders
SELECT array_agg(id ORDER BY id DESC) FROM users
SELECT jsonb_agg(name ORDER BY id) FROM users
SELECT jsonb_object_agg(id, name) FROM users
SELECT json_agg(u ORDER BY u.id) FROM users AS u WHERE u.id < 3
SELECT JSON_ARRAYAGG(id) FROM (SELECT id FROM staff ORDER BY id) AS s
SELECT JSON_ARRAYAGG(id ORDER BY id DESC) FROM staff
SELECT JSON_ARRAYAGG(name ORDER BY id ABSENT ON NULL RETURNING jsonb) FROM users
SELECT JSON_OBJECTAGG(id: name) FROM staff WHERE id < 4
SELECT JSON_OBJECTAGG(id VALUE name) FROM staff WHERE id < 4
SELECT bool_and(active), bool_or(active), every(active) FROM users
SELECT stddev(total), variance(total), corr(total, net_amount), regr_slope(total, net_amount) FROM orders
SELECT min(placed), max(placed) FROM orders
SELECT bit_and(id), bit_or(id), bit_xor(id) FROM users
SELECT range_agg(period) FROM users
SELECT any_value(team) FROM staff WHERE team = 'team 1'
SELECT rank() OVER (ORDER BY total DESC), id FROM orders ORDER BY id
SELECT id, row_number() OVER (PARTITION BY status ORDER BY total) FROM orders ORDER BY id
SELECT id, lag(total) OVER (ORDER BY id), lead(total, 2, 0) OVER (ORDER BY id) FROM orders ORDER BY id
SELECT id, sum(total) OVER w, avg(total) OVER w FROM orders WINDOW w AS (PARTITION BY user_id ORDER BY placed) ORDER BY id
SELECT id, sum(total) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM orders ORDER BY id
SELECT id, sum(total) OVER (ORDER BY id RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING) FROM orders ORDER BY id
SELECT id, count(*) OVER (ORDER BY status GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM orders ORDER BY id
SELECT id, first_value(total) OVER (PARTITION BY status ORDER BY id), last_value(total) OVER (PARTITION BY status), nth_value(total, 2) OVER (PARTITION BY status ORDER BY id) FROM orders ORDER BY id
SELECT id, ntile(4) OVER (ORDER BY id), percent_rank() OVER (ORDER BY id), cume_dist() OVER (ORDER BY id), dense_rank() OVER (ORDER BY status) FROM orders ORDER BY id
SELECT * FROM (SELECT id, rank() OVER (PARTITION BY status ORDER BY total DESC) AS r FROM orders) AS ranked WHERE r <= 2 ORDER BY id
SELECT status, sum(sum(total)) OVER (ORDER BY status) FROM orders GROUP BY status ORDER BY status
SELECT u.name, o.total FROM users AS u JOIN orders AS o ON o.user_id = u.id ORDER BY o.id
SELECT u.name, o.total FROM users u INNER JOIN orders o ON o.user_id = u.id AND o.status = 'paid' ORDER BY o.id
SELECT u.id, o.id FROM users AS u LEFT OUTER JOIN orders AS o ON o.user_id = u.id AND o.total > 300 ORDER BY 1, 2
SELECT s.name, u.name FROM staff AS s RIGHT JOIN users AS u ON s.id = u.id ORDER BY u.id
SELECT s.id, u.id FROM staff AS s FULL JOIN users AS u ON s.id = u.id + 10 ORDER BY 1, 2
SELECT count(*) FROM users CROSS JOIN staff
SELECT count(*) FROM users, staff WHERE users.id = staff.id
SELECT id, users.name, staff.name FROM users JOIN staff USING (id) ORDER BY id
SELECT count(*) FROM (SELECT id FROM users) AS a NATURAL JOIN (SELECT id FROM staff) AS b
SELECT e.name, m.name AS manager FROM staff AS e LEFT JOIN staff AS m ON m.id = e.manager_id ORDER BY e.id
SELECT count(*) FROM (users AS u JOIN orders AS o ON o.user_id = u.id) JOIN staff AS s ON s.id = u.id
SELECT u.id, l.total FROM users AS u CROSS JOIN LATERAL (SELECT total FROM orders AS o WHERE o.user_id = u.id ORDER BY total DESC LIMIT 1) AS l ORDER BY u.id
SELECT u.id, l.total FROM users AS u LEFT JOIN LATERAL (SELECT total FROM orders AS o WHERE o.user_id = u.id AND o.total > 380 LIMIT 1) AS l ON true ORDER BY u.id
SELECT u.id, t.tag FROM users AS u, unnest(u.tags) AS t(tag) ORDER BY 1, 2
SELECT u.id, t FROM users AS u, unnest(u.tags) AS t ORDER BY 1, 2
SELECT u.id, t.tag, t.n FROM users AS u CROSS JOIN LATERAL unnest(u.tags) WITH ORDINALITY AS t(tag, n) ORDER BY 1, 3
SELECT a, b FROM unnest(ARRAY[1, 2], ARRAY['x', 'y']) AS t(a, b)
SELECT * FROM generate_series(1, 5)
SELECT g FROM generate_series(1, 10, 3) AS g
SELECT g.g FROM generate_series(1, 3) AS g
SELECT d::date FROM generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 day') AS d
SELECT d.day, count(o.id) FROM generate_series(date '2024-03-01', date '2024-03-07', interval '1 day') AS d(day) LEFT JOIN orders AS o ON o.placed::date = d.day::date GROUP BY d.day ORDER BY d.day
SELECT u.id, e.key, e.value FROM users AS u, jsonb_each(u.data) AS e WHERE u.id < 4 ORDER BY 1, 2
SELECT e.key, count(*) FROM users AS u CROSS JOIN LATERAL jsonb_each_text(u.data) AS e GROUP BY e.key ORDER BY 1
SELECT o.id, i ->> 'sku' FROM orders AS o, jsonb_array_elements(o.items) AS i ORDER BY o.id
SELECT o.id, i.value ->> 'sku' FROM orders AS o, jsonb_array_elements(o.items) AS i ORDER BY o.id
SELECT o.id, x.sku, x.price FROM orders AS o, jsonb_to_recordset(o.items) AS x(sku text, price int) ORDER BY o.id
SELECT x.a, x.b FROM json_to_record('{"a": 1, "b": "y"}') AS x(a int, b text)
SELECT * FROM json_to_recordset('[{"version": 1}]') AS x(version int)
SELECT j.sku FROM orders AS o, JSON_TABLE(o.items, '$[*]' COLUMNS (sku text PATH '$.sku', price int PATH '$.price')) AS j ORDER BY o.id
SELECT j.* FROM JSON_TABLE('[{"a": 1}, {"a": 2}]'::jsonb, '$[*]' COLUMNS (n FOR ORDINALITY, a int PATH '$.a')) AS j
SELECT k FROM users AS u, jsonb_object_keys(u.data) AS k WHERE u.id = 1 ORDER BY 1
SELECT s FROM string_to_table('a,b,c', ',') AS s
SELECT m[1] FROM regexp_matches('a1b2', '[a-z][0-9]', 'g') AS m
SELECT r FROM regexp_split_to_table('a b c', ' ') AS r
SELECT r.a, r.b FROM ROWS FROM (generate_series(1, 2), unnest(ARRAY['x', 'y', 'z'])) AS r(a, b)
SELECT generate_series(1, 3) AS n, 'x' AS x
SELECT id, unnest(tags) FROM users ORDER BY 1, 2
SELECT (jsonb_each_text(data)).key FROM users WHERE id = 1 ORDER BY 1
SELECT (jsonb_each(data)).* FROM users WHERE id = 1 ORDER BY 1
WITH big AS (SELECT * FROM orders WHERE total > 200) SELECT count(*), sum(total) FROM big
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT a.x, b.y FROM a, b
WITH a(x, y) AS (SELECT 1, 2) SELECT x, y FROM a
WITH users AS (SELECT id FROM users WHERE id < 3) SELECT * FROM users ORDER BY id
WITH a AS MATERIALIZED (SELECT id FROM users) SELECT count(*) FROM a
WITH a AS NOT MATERIALIZED (SELECT id FROM users) SELECT count(*) FROM a
WITH v AS (VALUES (1, 'x'), (2, 'y')) SELECT * FROM v
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 10) SELECT sum(n) FROM t
WITH RECURSIVE chain AS (SELECT id, name, manager_id, 1 AS depth FROM staff WHERE manager_id IS NULL UNION ALL SELECT s.id, s.name, s.manager_id, c.depth + 1 FROM staff AS s JOIN chain AS c ON s.manager_id = c.id) SELECT * FROM chain ORDER BY id
WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT (n * 2) % 7 FROM t) SELECT n FROM t ORDER BY n
WITH RECURSIVE s AS (SELECT id, manager_id FROM staff WHERE id = 1 UNION ALL SELECT e.id, e.manager_id FROM staff AS e JOIN s ON e.manager_id = s.id) SEARCH DEPTH FIRST BY id SET ord SELECT id FROM s ORDER BY ord
WITH RECURSIVE s AS (SELECT id, manager_id FROM staff WHERE id = 1 UNION ALL SELECT e.id, e.manager_id FROM staff AS e JOIN s ON e.manager_id = s.id) SEARCH BREADTH FIRST BY id SET ord SELECT id FROM s ORDER BY ord
WITH RECURSIVE s AS (SELECT id, manager_id FROM staff WHERE id = 1 UNION ALL SELECT e.id, e.manager_id FROM staff AS e JOIN s ON e.manager_id = s.id) SEARCH DEPTH FIRST BY id, manager_id SET ord SELECT id, ord FROM s ORDER BY ord
WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n % 3 + 1 FROM s) CYCLE n SET seen USING path SELECT n, seen FROM s
WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n % 3 + 1 FROM s) CYCLE n SET seen TO 'y' DEFAULT 'n' USING path SELECT n, seen FROM s
WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM s WHERE n < 4) SELECT a.n, b.n FROM s AS a JOIN s AS b ON a.n < b.n ORDER BY 1, 2
SELECT * FROM (WITH a AS (SELECT 1 AS x) SELECT x FROM a) AS q
SELECT id FROM users UNION SELECT id FROM orders ORDER BY id
SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3 ORDER BY x DESC
SELECT id FROM users INTERSECT SELECT id FROM staff ORDER BY 1
SELECT id FROM users EXCEPT SELECT id FROM staff ORDER BY 1
SELECT 1 EXCEPT ALL SELECT 2
(SELECT id FROM users ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM orders ORDER BY id DESC LIMIT 2)
(SELECT 1) UNION (SELECT 2) ORDER BY 1 LIMIT 1
SELECT 1 UNION SELECT 2 INTERSECT SELECT 2 ORDER BY 1
SELECT * FROM (SELECT 1 AS a UNION SELECT 2) AS q ORDER BY a
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(n, t)
SELECT v.column1 FROM (VALUES (1), (2)) AS v
SELECT * FROM users WHERE id IN (VALUES (1), (2)) ORDER BY id
SELECT id, (SELECT name FROM staff WHERE staff.id = users.id) FROM users ORDER BY id
SELECT id FROM users WHERE (id, name) IN (SELECT id, 'user ' || id FROM staff) ORDER BY id
SELECT id FROM users WHERE id = (SELECT max(id) FROM staff)
SELECT id FROM users WHERE id > ANY (SELECT id FROM staff WHERE id > 15) ORDER BY id
SELECT id FROM users AS u WHERE EXISTS (SELECT FROM orders WHERE user_id = u.id AND total > 350) ORDER BY id
SELECT o.version, o.net_amount, o.copy_count FROM orders AS o ORDER BY o.id
SELECT version, count(*) FROM orders GROUP BY version ORDER BY version
SELECT orders.version FROM orders WHERE orders.net_amount > 200 ORDER BY 1
SELECT q.count, q.max FROM (SELECT count(*), max(id) FROM users) AS q
SELECT q.sum FROM (SELECT sum(total) FROM orders) AS q
SELECT (u.home).* FROM users AS u ORDER BY u.id
SELECT (u).id, (u).name FROM users AS u ORDER BY 1
SELECT (array_agg(u ORDER BY u.id))[1].name FROM users AS u
SELECT (SELECT u FROM users AS u WHERE u.id = 2).email
SELECT u.id AS "user", u.name AS "The Name" FROM users AS u ORDER BY 1
SELECT "id", "name" FROM "public"."users" ORDER BY "id"
SELECT U.ID FROM USERS U ORDER BY U.ID
SELECT * FROM paid ORDER BY id
SELECT p.total FROM paid AS p JOIN users AS u ON u.id = p.user_id ORDER BY p.id
SELECT * FROM ONLY users ORDER BY id
SELECT count(*) FROM users TABLESAMPLE BERNOULLI (100) REPEATABLE (1)
SELECT count(*) FROM users TABLESAMPLE SYSTEM (100)
SELECT x.a FROM users AS x(a) ORDER BY 1
SELECT 1 /* a comment */ AS one -- and another
SELECT 'DELETE FROM users; -- no' AS text
SELECT 'pg_sleep(30)' AS text, 'private.secrets' AS name
SELECT NULL AS n, true AS t, false AS f, 1 AS i, 1.5 AS d, 'x' AS s
SELECT 1;
SELECT u.id, o.n FROM users AS u JOIN (SELECT user_id, count(*) AS n FROM orders GROUP BY user_id HAVING count(*) >= 3) AS o ON o.user_id = u.id ORDER BY u.id
SELECT to_char(placed, 'YYYY-MM') AS month, status, sum(total), round(100.0 * sum(total) / sum(sum(total)) OVER (PARTITION BY to_char(placed, 'YYYY-MM')), 2) FROM orders GROUP BY 1, 2 ORDER BY 1, 2
SELECT team, name, salary, salary - avg(salary) OVER (PARTITION BY team) AS above FROM staff ORDER BY id
SELECT id FROM orders WHERE placed >= date '2024-03-05' AND placed < date '2024-03-05' + interval '7 days' ORDER BY id
SELECT id FROM orders WHERE status NOT IN ('open', 'returned') AND total BETWEEN 50 AND 150 ORDER BY total DESC
SELECT count(*) FILTER (WHERE status = 'paid')::numeric / nullif(count(*), 0) AS share FROM orders
SELECT user_id, array_agg(DISTINCT status ORDER BY status) FROM orders GROUP BY user_id HAVING bool_or(status = 'returned') ORDER BY user_id
SELECT CASE WHEN total < 100 THEN 'small' WHEN total < 300 THEN 'middle' ELSE 'large' END AS size, count(*) FROM orders GROUP BY 1 ORDER BY 1
SELECT a.id, b.id FROM users AS a JOIN users AS b ON a.id < b.id AND a.born > b.born - 40 ORDER BY 1, 2
SELECT coalesce(status, 'all') AS status, sum(total) FROM orders GROUP BY ROLLUP (status) ORDER BY grouping(status), 1
SELECT user_id, total, total > avg(total) OVER (PARTITION BY user_id) FROM orders ORDER BY id
SELECT id, jsonb_path_query(items, '$[*].sku') FROM orders ORDER BY id
SELECT json_build_object('users', (SELECT json_agg(name ORDER BY id) FROM users), 'orders', (SELECT count(*) FROM orders))
SELECT extract(isodow FROM placed) AS dow, count(*) FROM orders GROUP BY dow ORDER BY dow
SELECT u.id FROM users AS u WHERE u.data @> '{"n": {"x": 1}}' AND 'a1' = ANY (u.tags) ORDER BY u.id
SELECT u.id FROM users AS u WHERE to_tsvector('simple', coalesce(u.name, '')) @@ plainto_tsquery('simple', 'user 3')
SELECT string_agg(x.c, '') FROM (SELECT chr(64 + g) AS c FROM generate_series(1, 26) AS g) AS x
SELECT sum(n) FROM (SELECT row_number() OVER () AS n FROM users) AS q
SELECT least(a, b), greatest(a, b) FROM (VALUES (1, 2), (4, 3)) AS v(a, b)
SELECT id FROM users WHERE born BETWEEN '1991-01-01' AND '1992-01-01' ORDER BY id
SELECT id FROM users WHERE created::date = '2024-01-10'
SELECT current_date - current_date AS zero, now() = now() AS same, localtimestamp IS NOT NULL AS here, current_time IS NOT NULL AS t
SELECT min(u.id) FROM users AS u WHERE NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.user_id = u.id AND o.status = 'paid')
