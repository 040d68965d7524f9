-- One hostile statement each line.

-- more than one statement, or none that reads
SELECT 1; DROP TABLE public.users
SELECT 1; SELECT secret FROM private.secrets
SELECT 1;; DELETE FROM users
DROP TABLE users
DELETE FROM users
DELETE FROM users RETURNING *
UPDATE users SET name = 'x'
UPDATE users SET name = 'x' RETURNING *
INSERT INTO users (id) VALUES (1000)
TRUNCATE users
ALTER TABLE users ADD COLUMN x int
CREATE TABLE stolen AS SELECT * FROM private.secrets
CREATE TEMP TABLE stolen AS SELECT * FROM users
CREATE FUNCTION f() RETURNS int AS $$ SELECT 1 $$ LANGUAGE sql
CREATE EXTENSION dblink
MERGE INTO users u USING orders o ON u.id = o.id WHEN MATCHED THEN DELETE
WITH gone AS (DELETE FROM users RETURNING *) SELECT * FROM gone
WITH new AS (INSERT INTO users (id) VALUES (1001) RETURNING *) SELECT * FROM new
WITH changed AS (UPDATE users SET name = 'x' RETURNING *) SELECT * FROM changed
WITH m AS (MERGE INTO users u USING orders o ON u.id = o.id WHEN MATCHED THEN DELETE RETURNING *) SELECT * FROM m
WITH a AS (SELECT 1) INSERT INTO users SELECT 1
SELECT * FROM (WITH d AS (DELETE FROM users RETURNING *) SELECT * FROM d) AS x
SELECT * INTO stolen FROM private.secrets
SELECT * INTO TEMP stolen FROM users
SELECT 1 INTO stolen
SELECT * FROM users FOR UPDATE
SELECT * FROM users FOR SHARE OF users NOWAIT
SELECT * FROM users FOR NO KEY UPDATE SKIP LOCKED
SELECT * FROM (SELECT * FROM users FOR KEY SHARE) AS u
EXPLAIN ANALYZE SELECT pg_sleep(30)
EXPLAIN SELECT * FROM private.secrets
COPY users TO '/tmp/stolen'
COPY (SELECT secret FROM private.secrets) TO STDOUT
COPY users FROM PROGRAM 'id'
CALL act()
CALL public.act()
DO $$ BEGIN PERFORM pg_sleep(30); END $$
SET ROLE hocket
SET statement_timeout = 0
SET SESSION AUTHORIZATION hocket
SET search_path = public
RESET ALL
SHOW ALL
SHOW data_directory
LISTEN x
NOTIFY x
LOCK TABLE users
VACUUM users
ANALYZE users
CLUSTER users
CHECKPOINT
LOAD 'plpgsql'
GRANT ALL ON private.secrets TO public
REVOKE ALL ON users FROM public
BEGIN
COMMIT
ROLLBACK
SAVEPOINT x
PREPARE p AS SELECT secret FROM private.secrets
EXECUTE p
DEALLOCATE ALL
DECLARE c CURSOR FOR SELECT secret FROM private.secrets
FETCH ALL FROM c
DISCARD ALL
REFRESH MATERIALIZED VIEW v
COMMENT ON TABLE users IS 'x'
SECURITY LABEL ON TABLE users IS 'x'
REINDEX TABLE users
IMPORT FOREIGN SCHEMA x FROM SERVER y INTO public
TABLE private.secrets
VALUES ((SELECT secret FROM private.secrets))
COMMIT; SELECT pg_sleep(30)
SELECT 1 /* ; */ ; SELECT secret FROM private.secrets -- x
SELECT 1 \; SELECT secret FROM private.secrets

-- other tables
SELECT * FROM private.secrets
SELECT * FROM "private"."secrets"
SELECT * FROM private."secrets" AS users
SELECT * FROM PRIVATE.SECRETS
SELECT * FROM hocket.private.secrets
SELECT * FROM U&"priv\0061te".secrets
SELECT * FROM private . secrets
SELECT * FROM private/**/./**/secrets
SELECT secret FROM ONLY private.secrets
SELECT secret FROM ONLY (private.secrets)
SELECT secret FROM private.secrets *
SELECT secret FROM private.secrets TABLESAMPLE SYSTEM (100)
SELECT * FROM users, private.secrets
SELECT * FROM users JOIN private.secrets USING (id)
SELECT * FROM users NATURAL JOIN private.secrets
SELECT * FROM users LEFT JOIN LATERAL (SELECT secret FROM private.secrets) AS s ON true
SELECT * FROM (private.secrets CROSS JOIN users)
SELECT * FROM (users CROSS JOIN private.secrets) AS j
SELECT id FROM users UNION ALL SELECT id FROM private.secrets
SELECT name FROM users UNION SELECT secret FROM private.secrets
(SELECT name FROM users) EXCEPT (SELECT secret FROM private.secrets)
SELECT 1 INTERSECT (SELECT 1 EXCEPT SELECT id FROM private.secrets)
WITH users AS (SELECT secret FROM private.secrets) SELECT * FROM users
WITH secrets AS (SELECT 1) SELECT * FROM private.secrets
WITH pg_authid AS (SELECT * FROM pg_authid) SELECT * FROM pg_authid
WITH a AS (SELECT rolpassword FROM pg_authid), pg_authid AS (SELECT 1) SELECT * FROM a
SELECT * FROM (WITH pg_authid AS (SELECT 1) SELECT 1) AS x, pg_authid
(WITH pg_authid AS (SELECT 1) SELECT 1) UNION SELECT oid::int FROM pg_authid
WITH "PG_AUTHID" AS (SELECT 1) SELECT * FROM pg_authid
WITH RECURSIVE a AS (SELECT secret FROM private.secrets UNION SELECT secret FROM a) SELECT * FROM a
WITH RECURSIVE a AS (SELECT rolname FROM pg_authid), pg_authid AS (SELECT 1) SELECT * FROM a
SELECT * FROM pg_authid
SELECT * FROM pg_shadow
SELECT * FROM pg_catalog.pg_authid
SELECT * FROM "pg_catalog"."pg_authid"
TABLE pg_authid
SELECT * FROM pg_stat_activity
SELECT * FROM pg_locks
SELECT * FROM information_schema.columns
SELECT * FROM pg_toast.pg_toast_1255
SELECT * FROM pg_temp.x
SELECT last_value FROM pg_sequences
SELECT tableoid::regclass FROM users
SELECT secrets FROM private.secrets
SELECT private.secrets.secret FROM private.secrets
SELECT s FROM private.secrets AS s
SELECT count(*) FROM private.secrets
SELECT 1 FROM private.secrets LIMIT 0
SELECT 1 LIMIT (SELECT id FROM private.secrets)
SELECT 1 OFFSET (SELECT id FROM private.secrets)
SELECT * FROM generate_series(1, (SELECT id FROM private.secrets)) AS g
SELECT * FROM users ORDER BY (SELECT secret FROM private.secrets)
SELECT * FROM users AS u(a, b), private.secrets AS secrets
SELECT * FROM unnest(ARRAY(SELECT secret FROM private.secrets)) AS u
SELECT * FROM json_to_recordset((SELECT json_agg(s) FROM private.secrets AS s)) AS x(secret text)
SELECT * FROM XMLTABLE('/a' PASSING (SELECT xmlelement(name a, secret) FROM private.secrets) COLUMNS a text PATH '.')
SELECT * FROM JSON_TABLE((SELECT json_agg(s) FROM private.secrets AS s)::jsonb, '$[*]' COLUMNS (secret text PATH '$.secret')) AS j

-- functions in FROM
SELECT * FROM pg_read_file('{file}')
SELECT * FROM pg_read_file('{file}') AS x
SELECT * FROM pg_catalog.pg_read_file('{file}') AS x(line)
SELECT * FROM pg_ls_dir('.')
SELECT * FROM pg_ls_logdir()
SELECT * FROM LATERAL pg_read_file('{file}') AS x
SELECT * FROM targets AS t, pg_read_file(t.path) AS x
SELECT * FROM targets AS t, LATERAL pg_read_file(t.path) AS x
SELECT * FROM targets AS t LEFT JOIN LATERAL pg_read_file(t.path) AS x ON true
SELECT * FROM ROWS FROM (pg_read_file('{file}')) AS x
SELECT * FROM ROWS FROM (generate_series(1, 2), pg_read_file('{file}')) AS x
SELECT * FROM ROWS FROM (generate_series(1, 2), public.leaks()) AS x
SELECT * FROM pg_read_file('{file}') WITH ORDINALITY AS x
SELECT * FROM ts_stat('select to_tsvector(''simple'', secret) from private.secrets')
SELECT * FROM leaks()
SELECT * FROM public.leaks()
SELECT * FROM "leaks"()
SELECT * FROM public."leaks"() AS l(id, secret)
SELECT l.secret FROM leaks() AS l
SELECT * FROM pg_stat_get_activity(NULL)
SELECT * FROM pg_show_all_settings()
SELECT * FROM pg_lock_status()
SELECT * FROM pg_logical_slot_get_changes('x', NULL, NULL)
SELECT * FROM pg_get_keywords()
SELECT * FROM dblink('host=127.0.0.1', 'select 1') AS x(a int)
SELECT * FROM crosstab('select secret, secret, secret from private.secrets') AS x(a text)
SELECT * FROM connectby('private.secrets', 'id', 'id', '1', 0) AS x(a int)
SELECT * FROM xpath_table('id', 'secret', 'private.secrets', '/a', 'true') AS x(a text)
SELECT * FROM generate_series(1, 2) AS g WHERE pg_sleep(30) IS NULL
SELECT x FROM unnest(ARRAY[pg_read_file('{file}')]) AS x

-- attribute notation behind the name of a function in FROM
SELECT g.pg_terminate_backend FROM generate_series({victim}, {victim}) AS g
SELECT (g).pg_terminate_backend FROM generate_series({victim}, {victim}) AS g
SELECT g.pg_sleep FROM generate_series(30, 30) AS g
SELECT g.pg_sleep FROM generate_series(30, 30) AS g(n)
SELECT g.PG_SLEEP FROM generate_series(30, 30) AS G
SELECT "g"."pg_sleep" FROM generate_series(30, 30) AS g
SELECT g . pg_sleep FROM generate_series(30, 30) AS g
SELECT generate_series.pg_sleep FROM generate_series(30, 30)
SELECT g.pg_advisory_lock FROM generate_series(4711, 4711) AS g
SELECT 1 FROM generate_series(4711, 4711) AS g WHERE g.pg_advisory_lock IS NULL
SELECT 1 FROM generate_series(4711, 4711) AS g ORDER BY g.pg_advisory_lock
SELECT 1 FROM generate_series(4711, 4711) AS g GROUP BY g.pg_advisory_lock
SELECT count(g.pg_advisory_lock) FROM generate_series(4711, 4711) AS g
SELECT 1 FROM generate_series(4711, 4711) AS g JOIN users ON g.pg_try_advisory_lock
SELECT (SELECT g.pg_advisory_lock) FROM generate_series(4711, 4711) AS g
SELECT g.spy FROM generate_series(1, 2) AS g
SELECT u.pg_read_file FROM unnest(ARRAY['{file}']) AS u
SELECT u.pg_read_file FROM unnest(ARRAY['{file}']) AS u(x)
SELECT u.pg_read_file FROM targets AS t, unnest(t.paths) AS u
SELECT u.pg_read_file FROM targets AS t, LATERAL unnest(t.paths) AS u(x)
SELECT u.pg_read_file FROM targets AS t LEFT JOIN LATERAL unnest(t.paths) AS u ON true
SELECT unnest.pg_read_file FROM unnest(ARRAY['{file}'])
SELECT j.pg_read_file FROM jsonb_array_elements_text('["{file}"]') AS j
SELECT s.pg_read_file FROM string_to_table('{file}', '#') AS s
SELECT r.pg_read_file FROM regexp_split_to_table('{file}', '#') AS r
SELECT r.pg_sleep FROM ROWS FROM (generate_series(30, 30)) AS r
SELECT c.pg_read_file FROM CAST('{file}' AS text) AS c
SELECT text.pg_read_file FROM CAST('{file}' AS text)
SELECT c.pg_read_file FROM coalesce('{file}') AS c
SELECT c.pg_read_file FROM lower('{file}') AS c
SELECT concat.pg_read_file FROM concat('{file}')
SELECT lower.pg_read_file FROM lower('{file}')
SELECT g.pg_sleep, (SELECT 1 FROM users AS g LIMIT 1) FROM generate_series(30, 30) AS g
SELECT g.pg_sleep, (SELECT 1 FROM generate_series(1, 2) AS g(pg_sleep) LIMIT 1) FROM generate_series(30, 30) AS g
SELECT x.pg_read_file FROM (SELECT 1) AS y, unnest(ARRAY['{file}']) AS x
WITH x AS (SELECT 1 AS pg_read_file) SELECT x.pg_read_file FROM unnest(ARRAY['{file}']) AS x
SELECT q.spy FROM targets AS q
SELECT targets.spy FROM targets
SELECT public.targets.spy FROM public.targets
SELECT (targets).spy FROM targets
SELECT q.pg_column_size FROM (SELECT 1) AS q
SELECT users.record_out FROM users
SELECT (unnest(t.paths)).pg_read_file FROM targets AS t
SELECT (json_each_text('{"a": "x"}')).value.pg_read_file
SELECT ((SELECT t FROM targets AS t).path).pg_read_file
SELECT (array_agg(t.path))[1].pg_read_file FROM targets AS t
SELECT (max(t.path)).pg_read_file FROM targets AS t

-- types in FROM
SELECT * FROM json_to_record('{"a": 1}') AS x(a watched)
SELECT * FROM json_to_record('{"a": 1}') AS x(a public.watched)
SELECT * FROM json_to_recordset('[{"a": 1}]') AS x(a public.watched)
SELECT * FROM jsonb_to_record('{"a": "private.secrets"}') AS x(a regclass)
SELECT * FROM JSON_TABLE('{"a": 1}', '$' COLUMNS (a watched PATH '$.a')) AS j
SELECT * FROM JSON_TABLE('{"a": "private.secrets"}', '$' COLUMNS (a regclass PATH '$.a')) AS j
SELECT * FROM XMLTABLE('/a' PASSING '<a>1</a>'::xml COLUMNS a public.watched PATH '.')
SELECT * FROM jsonb_populate_record((SELECT t FROM targets AS t), '{"n": 1}')
SELECT * FROM json_populate_recordset(NULL::public.targets, '[{"n": 1}]')

-- sampling, ordering and other hooks
SELECT * FROM users TABLESAMPLE own_method (3)
SELECT * FROM users TABLESAMPLE public.own_method (3)
SELECT * FROM users ORDER BY name USING OPERATOR(public.+)
SELECT * FROM users ORDER BY name USING <
SELECT * FROM users WHERE CURRENT OF c
SELECT * FROM targets AS t WHERE t.path + t.path IS NOT NULL
SELECT * FROM targets AS t WHERE ~ t.path
SELECT $1
SELECT * FROM users WHERE id = $1
SELECT :'file'
SELECT * FROM users LIMIT 1 FOR UPDATE
SELECT * FROM targets PIVOT (max(n) FOR path IN ('x'))

-- readers that understand it otherwise
SELECT '\'; DROP TABLE users; --'
SELECT E'\'' || (SELECT secret FROM private.secrets) || ''
SELECT U&'d\0061t\+000061' FROM private.secrets
SELECT /*! secret FROM private.secrets */ * FROM private.secrets
SELECT 1 /* /* */ */ FROM private.secrets
SELECT 1 -- x {newline} FROM private.secrets
SELECT $a$ $b$ $a$, secret FROM private.secrets
SELECT "a""b" FROM private.secrets
SELECT * FROM "private""secrets", private.secrets
SELECT 'a' FROM users WHERE name = '' OR (SELECT secret FROM private.secrets) = 'x' --'
SELECT U&"pg_sle\0065p"(30)
SELECT "pg_sleep" (30)
SELECT pg_catalog . pg_sleep (30)
SELECT pg_catalog."pg_sleep"(30)
SELECT ((30)) . "pg_sleep"
SELECT (30) /* x */ . /* y */ pg_sleep
SELECT * FROM users WHERE id = 1 AND pg_sleep(30)::text = ''
SELECT * FROM users WHERE (30).pg_sleep::text = ''
SELECT not_known(1)
SELECT not_known.not_known(1)
SELECT pg_catalog.not_known(1)
SELECT private.lower('A')
SELECT (1).not_a_field
SELECT ('x').name

-- found when the guard was attacked again
SELECT JSON_VALUE('{"a":"private.secrets"}', '$.a' RETURNING pg_catalog.regclass)
SELECT JSON_QUERY('{"a":1}', '$.a' RETURNING public.watched)
SELECT JSON_SERIALIZE('{}' RETURNING public.watched_text)
SELECT JSON_ARRAYAGG(pg_sleep(30))
SELECT JSON_ARRAYAGG(n ORDER BY pg_sleep(30)) FROM targets
SELECT JSON_OBJECT('a': (30).pg_sleep)
SELECT JSON_OBJECT('a' VALUE pg_read_file('x'))
SELECT JSON_EXISTS('{}', '$' PASSING pg_sleep(30) AS x)
SELECT JSON_EXISTS('{}', '$' PASSING (30).pg_sleep AS x)
SELECT JSON_VALUE('{}', '$.a' DEFAULT pg_sleep(30) ON EMPTY)
SELECT JSON_VALUE('{}', '$.a' DEFAULT (SELECT secret FROM private.secrets) ON EMPTY)
SELECT JSON_ARRAY(SELECT secret FROM private.secrets)
SELECT JSON_ARRAY(SELECT pg_sleep(30))
SELECT JSON_ARRAY(TABLE private.secrets)
SELECT JSON_ARRAY(WITH a AS (DELETE FROM users RETURNING 1) SELECT 1 FROM a)
SELECT JSON_QUERY((SELECT json_agg(s) FROM private.secrets s), '$')
SELECT JSON_OBJECT('a': secret) FROM private.secrets
SELECT (JSON_VALUE('{"a":"/etc/passwd"}', '$.a')).pg_read_file
SELECT (JSON_QUERY('{}', '$')).pg_sleep
SELECT j.pg_sleep FROM JSON_TABLE('[30]', '$[*]' COLUMNS (a int PATH '$')) AS j
SELECT @ pg_sleep(30)
SELECT @ (30).pg_sleep
SELECT |/ pg_sleep(30)
SELECT 2 ^ pg_sleep(30)
SELECT ~ (30).pg_sleep::int
SELECT a OPERATOR(pg_catalog.+) pg_sleep(30) FROM users
SELECT 1 OPERATOR(+) 2
SELECT 1 OPERATOR(pg_catalog.+) 2, 1 OPERATOR(pg_temp.+) 2
SELECT 1.pg_sleep
SELECT '30'.pg_sleep
SELECT NULL.pg_sleep
SELECT (TRUE).pg_sleep
SELECT (current_user).pg_sleep
SELECT (current_date).pg_sleep
SELECT (x).pg_read_file FROM (SELECT '/etc/passwd'::text AS x) q
SELECT q.x.pg_read_file FROM (SELECT '/etc/passwd'::text AS x) q
SELECT (q).x.pg_read_file FROM (SELECT '/etc/passwd'::text AS x) q
SELECT (q.*).pg_sleep FROM (SELECT 30) q
SELECT pg_read_file.pg_read_file FROM unnest(ARRAY['/etc/passwd']) AS pg_read_file
SELECT pg_read_file.pg_read_file FROM unnest(ARRAY['/etc/passwd']) AS pg_read_file(x)
SELECT a.pg_read_file FROM (unnest(ARRAY['/etc/passwd']) AS a CROSS JOIN users)
SELECT a.pg_read_file FROM unnest(ARRAY['/etc/passwd']) a JOIN LATERAL (SELECT a.pg_read_file) b ON true
SELECT (ROW('/etc/passwd'::text)).f1.pg_read_file
SELECT ((ROW('/etc/passwd'::text)).f1).pg_read_file
SELECT count(*) FROM users HAVING (30).pg_sleep IS NULL
SELECT ARRAY[30][1].pg_sleep
SELECT ('{30}'::int[])[1].pg_sleep
SELECT (ARRAY(SELECT 30))[1].pg_sleep
SELECT (data->>'x').pg_read_file FROM users
SELECT data['x'].pg_read_file FROM users
SELECT (EXTRACT(epoch FROM now())).pg_sleep
SELECT (SUBSTRING('/etc/passwd' FROM 1)).pg_read_file
SELECT (TRIM('/etc/passwd')).pg_read_file
SELECT (CAST('/etc/passwd' AS text)).pg_read_file
SELECT ('/etc/passwd' COLLATE "C").pg_read_file
SELECT (now() AT TIME ZONE 'UTC').pg_sleep_until
SELECT (interval '30s').pg_sleep_for
SELECT (NOT true).pg_sleep
SELECT (1 = 1).pg_sleep
SELECT (EXISTS (SELECT 1)).pg_sleep
SELECT (count(*)).pg_sleep FROM users
SELECT (sum(id) FILTER (WHERE true)).pg_sleep FROM users
SELECT (sum(id) OVER ()).pg_sleep FROM users
SELECT (percentile_disc(0.5) WITHIN GROUP (ORDER BY id)).pg_sleep FROM users
SELECT (GREATEST(30)).pg_sleep
SELECT '/etc/passwd'::text::public.watched_text
SELECT box '((0,0),(1,1))', circle 'x', regclass 'private.secrets', public.watched '1'
SELECT 'x'::character(90000000)
SELECT * FROM users FETCH FIRST (SELECT id FROM private.secrets) ROWS ONLY
SELECT * FROM XMLTABLE('/a' PASSING '<a/>'::xml COLUMNS a text PATH pg_read_file('x'))
SELECT * FROM XMLTABLE('/a' PASSING '<a/>'::xml COLUMNS a text PATH '.' DEFAULT pg_read_file('x'))
SELECT * FROM users TABLESAMPLE BERNOULLI (pg_sleep(30))
SELECT * FROM users TABLESAMPLE SYSTEM ((30).pg_sleep)
WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n FROM s) SEARCH DEPTH FIRST BY n SET o SELECT o.pg_sleep FROM s
WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n FROM s) CYCLE n SET c TO pg_sleep(30) DEFAULT 0 USING p SELECT * FROM s
WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n FROM s) CYCLE n SET c TO (SELECT secret FROM private.secrets) DEFAULT '' USING p SELECT * FROM s
SELECT sum(1) OVER (ROWS BETWEEN pg_sleep(30) PRECEDING AND CURRENT ROW)
SELECT hex_of_nothing(1)
SELECT current_setting /* sqlglot.anonymous */ ('x')
SELECT current_query()
SELECT to_regtype('x')
SELECT pg_typeof(1)
SELECT format_type(1, 2)
SELECT string_agg(pg_sleep(30)::text, '')
SELECT string_agg('a', ',' ORDER BY (30).pg_sleep)
SELECT normalize(pg_read_file('x'), NFC)
SELECT overlay('a' PLACING pg_read_file('x') FROM 1)
SELECT trim(BOTH pg_read_file('x') FROM 'a')
SELECT position(pg_read_file('x') IN 'a')
SELECT substring('a' FROM pg_read_file('x'))
SELECT extract(year FROM pg_postmaster_start_time())
SELECT xmlelement(name a, pg_read_file('x'))
SELECT xmlelement(name a, xmlattributes(pg_read_file('x') AS b))
SELECT users FROM users, private.secrets users2
SELECT JSON_ARRAY(VALUES (pg_sleep(30)))
SELECT JSON_ARRAY(TABLE private.secrets RETURNING jsonb)
SELECT JSON_ARRAY(TABLE private.secrets ORDER BY 1)
SELECT JSON_ARRAY((TABLE private.secrets))
SELECT JSON_ARRAY(TABLE ONLY private.secrets)
SELECT JSON_QUERY('{}' TABLE private.secrets)
SELECT JSON_ARRAYAGG(n TABLE private.secrets) FROM targets
SELECT JSON_ARRAY(FROM private.secrets)
SELECT JSON_ARRAY(SELECT 1 UNION SELECT secret FROM private.secrets)
SELECT JSON_ARRAY(SELECT 1 INTERSECT TABLE private.secrets)
SELECT 1 UNION TABLE private.secrets
SELECT ARRAY(TABLE private.secrets)
SELECT EXISTS (TABLE private.secrets)
SELECT 1 IN (TABLE private.secrets)
SELECT 1 = ANY (TABLE private.secrets)
SELECT ARRAY(VALUES (pg_sleep(30)))
SELECT lower(TABLE private.secrets)
SELECT (TABLE private.secrets LIMIT 1)
WITH a AS (TABLE private.secrets) SELECT * FROM a
SELECT * FROM (TABLE private.secrets) AS x
SELECT * FROM LATERAL (TABLE private.secrets) AS x
