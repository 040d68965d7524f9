-- Where a hostile expression {x} can stand; t is public.targets.
SELECT {x} AS v FROM targets AS t
SELECT t.n FROM targets AS t WHERE ({x}) IS NULL
SELECT t.n FROM targets AS t ORDER BY {x}
SELECT count(*) FROM targets AS t GROUP BY {x}
SELECT t.n FROM targets AS t GROUP BY t.n, t.path, t.pid HAVING ({x}) IS NOT NULL
SELECT u.id FROM users AS u JOIN targets AS t ON ({x}) IS NOT NULL
SELECT u.id FROM users AS u LEFT JOIN targets AS t ON ({x}) IS NOT NULL LIMIT 3
WITH c AS (SELECT {x} AS v FROM targets AS t) SELECT * FROM c
WITH c AS MATERIALIZED (SELECT {x} AS v FROM targets AS t) SELECT 1 FROM c
SELECT * FROM (SELECT {x} AS v FROM targets AS t) AS s
SELECT s.v FROM targets AS t CROSS JOIN LATERAL (SELECT {x} AS v) AS s
SELECT (SELECT {x}) AS v FROM targets AS t
SELECT row_number() OVER (ORDER BY {x}) FROM targets AS t
SELECT row_number() OVER (PARTITION BY {x}) FROM targets AS t
SELECT sum(1) OVER w FROM targets AS t WINDOW w AS (ORDER BY {x})
SELECT CASE WHEN ({x}) IS NULL THEN 1 ELSE 2 END FROM targets AS t
SELECT CASE t.n WHEN 1 THEN ({x})::text END FROM targets AS t
SELECT ARRAY[{x}] FROM targets AS t
SELECT ({x})::text FROM targets AS t
SELECT coalesce(({x})::text, 'x') FROM targets AS t
SELECT count(*) FILTER (WHERE ({x}) IS NOT NULL) FROM targets AS t
SELECT count({x}) FROM targets AS t
SELECT DISTINCT ON ({x}) t.n FROM targets AS t
SELECT 1 UNION ALL SELECT 2 FROM targets AS t WHERE ({x}) IS NOT NULL
SELECT t.n FROM targets AS t WHERE EXISTS (SELECT 1 WHERE ({x}) IS NOT NULL)
SELECT v FROM targets AS t, LATERAL (VALUES ({x})) AS l(v)
SELECT json_build_object('a', {x}) FROM targets AS t
SELECT to_jsonb({x}) FROM targets AS t
SELECT ROW({x}) IS NULL FROM targets AS t
SELECT string_agg(({x})::text, ',' ORDER BY t.n) FROM targets AS t
SELECT t.n FROM targets AS t WHERE t.n BETWEEN 0 AND CASE WHEN ({x}) IS NULL THEN 1 ELSE 2 END
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT r.n + 1 FROM r, targets AS t WHERE r.n < 2 AND ({x}) IS NOT NULL) SELECT * FROM r
