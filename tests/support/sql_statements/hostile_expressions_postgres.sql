-- One hostile expression each line; the test puts each into places of hostile_places.sql.
-- {file} is a file of the server's, {victim} the process id of another session, t is public.targets.

-- attribute notation over what has no fields
('{file}').pg_read_file
('{file}'::text).pg_read_file
(('select to_tsvector(''simple'', secret) from private.secrets'::text).ts_stat).word
(30).pg_sleep
(30.0).pg_sleep
((30)).PG_SLEEP
(30)."pg_sleep"
(15 + 15).pg_sleep
(CAST(30 AS double precision)).pg_sleep
(CASE WHEN true THEN 30 END).pg_sleep
(4711).pg_advisory_lock
(4711).pg_advisory_lock_shared
(4711).pg_try_advisory_lock
(-(-4711)).pg_advisory_lock
({victim}).pg_terminate_backend
({victim}).pg_cancel_backend
('{file}').pg_stat_file
('private.secrets').regclass
('private.secrets'::text).regclass
('.').pg_ls_dir
('public.numbers').nextval
('{file}' || '').pg_read_file
(ARRAY['{file}'])[1].pg_read_file
(concat('{file}')).pg_read_file
(lower('{file}')).pg_read_file
(coalesce(NULL, '{file}')).pg_read_file
(SELECT '{file}'::text).pg_read_file
((SELECT path FROM targets)).pg_read_file
(max(t.path) OVER ()).pg_read_file
(trim('{file}')).pg_read_file
(left('{file}', 500)).pg_read_file
(nullif('{file}', 'x')).pg_read_file
(E'{file}').pg_read_file
($${file}$$).pg_read_file
(format('%s', '{file}')).pg_read_file
('{file}' COLLATE "C").pg_read_file
(greatest('{file}')).pg_read_file
(ARRAY(SELECT '{file}'::text))[1].pg_read_file
(('{"a": "{file}"}'::jsonb ->> 'a')).pg_read_file
(json_build_object('a', '{file}') ->> 'a').pg_read_file

-- attribute notation over columns
(t.path).pg_read_file
(path).pg_read_file
((t.path)).pg_read_file
(t.paths)[1].pg_read_file
t.paths[1].pg_read_file
(t.pid).pg_terminate_backend
(t.n).pg_advisory_lock
(t.long).pg_sleep
(t.n).spy
(t.path).spy
(t).spy
t.spy
(t.query).ts_stat
((t.query).ts_stat).word
(t.name).regclass
(t.n).lower
(t.path).pg_ls_dir
(t.*).spy
(public.targets.n).spy
(t.path).query_to_xml
(t.name).to_regclass
(t.name).pg_relation_filepath
(t.name).pg_table_size

-- calls by name
pg_read_file('{file}')
pg_catalog.pg_read_file('{file}')
"pg_catalog"."pg_read_file"('{file}')
"pg_read_file"('{file}')
PG_READ_FILE('{file}')
pg_read_file /* */ ('{file}')
pg_read_file('{file}', 0, 100)
pg_read_binary_file('{file}')
convert_from(pg_read_binary_file('{file}'), 'utf8')
encode(pg_read_binary_file('{file}'), 'escape')
pg_ls_dir('.')
pg_stat_file('{file}')
lo_import('{file}')
lo_export(1, '/tmp/stolen')
lo_get(1)
lo_from_bytea(0, 'x')
pg_sleep(30)
pg_sleep_for('30 seconds')
pg_sleep_until(now() + interval '30 seconds')
pg_terminate_backend({victim})
pg_cancel_backend({victim})
pg_advisory_lock(4711)
pg_advisory_xact_lock(4711)
pg_try_advisory_lock(4711)
pg_advisory_lock_shared(4711)
pg_notify('x', 'y')
pg_reload_conf()
pg_rotate_logfile()
pg_switch_wal()
pg_current_wal_lsn()
pg_get_functiondef(1)
pg_get_viewdef('public.paid')
pg_relation_size('private.secrets')
set_config('statement_timeout', '0', false)
set_config('search_path', 'public', false)
set_config('role', 'hocket', false)
set_config('transaction_read_only', 'off', false)
current_setting('data_directory')
current_setting('hba_file', true)
nextval('public.numbers')
setval('public.numbers', 9)
currval('public.numbers')
query_to_xml('select * from private.secrets', true, true, '')
query_to_xmlschema('select * from private.secrets', true, true, '')
table_to_xml('private.secrets', true, true, '')
schema_to_xml('private', true, true, '')
database_to_xml(true, true, '')
cursor_to_xml('c', 1, true, true, '')
ts_stat('select to_tsvector(''simple'', secret) from private.secrets')
ts_rewrite('a'::tsquery, 'select ''a''::tsquery, to_tsquery(secret) from private.secrets')
to_regclass('private.secrets')
has_table_privilege('private.secrets', 'SELECT')
has_schema_privilege('private', 'USAGE')
col_description(1, 1)
obj_description(1)
txid_current()
pg_current_xact_id()
version()
inet_server_addr()
inet_client_addr()
pg_backend_pid()
pg_postmaster_start_time()
pg_create_restore_point('x')
pg_logical_emit_message(false, 'a', 'b')
pg_export_snapshot()
pg_read_server_files()
row_security_active('private.secrets')
pg_stat_get_activity({victim})
pg_stat_reset()
pg_blocking_pids({victim})
amvalidate(1)
binary_upgrade_set_next_pg_type_oid(1)
makeaclitem(1, 1, 'SELECT', false)
acldefault('r', 1)

-- functions that somebody else wrote
leak()
public.leak()
public."Leak"()
"Leak"()
"LOWER"('x')
public."LOWER"('x')
private.leak()
spy(1)
public.spy(1)
spy('x'::text)
public.spy(t)
spy_agg(1)
public.spy_agg(t.n)
spy_agg(t.n) OVER ()
(leaks()).secret
(public.leaks()).secret
public.lower(1)
lower(t.n)
dblink('host=127.0.0.1', 'select 1')
dblink_connect('host=127.0.0.1')
http_get('http://127.0.0.1')
plpgsql_call_handler()
crosstab('select secret, secret, secret from private.secrets')

-- casts
'private.secrets'::regclass
'private.secrets'::pg_catalog.regclass
'private.secrets'::"regclass"
'private.secrets'::pg_catalog."regclass"
CAST('private.secrets' AS regclass)
CAST('{private.secrets}' AS regclass[])
CAST('{private.secrets}' AS pg_catalog.regclass[])
CAST('{private.secrets}' AS _regclass)
regclass 'private.secrets'
regclass('private.secrets')
pg_catalog.regclass('private.secrets')
'pg_read_file'::regproc
'pg_read_file(text)'::regprocedure
'hocket'::regrole
'private'::regnamespace
'private.secrets'::regtype
'+'::regoper
'hocket=r/hocket'::aclitem
1::watched
1::public.watched
1::public."watched"
'x'::watched_text
'x'::public.watched_text
CAST(t.n AS public.watched)
CAST('{1}' AS public.watched[])
public.watched(1)
watched '1'
t.n::public.watched
(ROW(1, 'x', 'y')::private.secrets).secret
json_populate_record(NULL::private.secrets, '{}')
json_populate_record(NULL::public.targets, '{"n": 1}')
jsonb_populate_recordset(NULL::private.secrets, '[]')
JSON_VALUE('{"a": 1}', '$.a' RETURNING public.watched)
JSON_VALUE('{"a": "private.secrets"}', '$.a' RETURNING regclass)
'x'::char(10000000)
repeat('x', 5)::bpchar(90000000)
'1'::bit(80000000)
XMLSERIALIZE(CONTENT '<a/>'::xml AS public.watched_text)

-- operators
t.path + t.path
'a'::text + 'b'::text
'a'::text -> 'b'::text
'a'::text OPERATOR(public.+) 'b'::text
'a'::text OPERATOR("public".+) 'b'::text
'a'::text || 1
OPERATOR(public.~) t.path
~ t.path

-- other tables from within an expression
(SELECT secret FROM private.secrets)
(SELECT max(secret) FROM private.secrets)
(TABLE private.secrets)
ARRAY(SELECT secret FROM private.secrets)
(SELECT s.secret FROM private.secrets AS s WHERE s.id = t.n)
(SELECT string_agg(secret, '') FROM "private"."secrets")
(SELECT secret FROM PRIVATE.SECRETS)
(WITH x AS (SELECT secret FROM private.secrets) SELECT secret FROM x)
(SELECT json_agg(s) FROM private.secrets AS s)
(SELECT row_to_json(s) FROM private.secrets AS s)
(SELECT s::text FROM private.secrets AS s)
(SELECT secret FROM hocket.private.secrets)
EXISTS (SELECT 1 FROM private.secrets)
'x' IN (SELECT secret FROM private.secrets)
'x' = ANY (SELECT secret FROM private.secrets)
(SELECT rolpassword FROM pg_authid LIMIT 1)
(SELECT rolpassword FROM pg_catalog.pg_authid LIMIT 1)
(SELECT passwd FROM pg_shadow LIMIT 1)
(SELECT usename FROM pg_user LIMIT 1)
(SELECT query FROM pg_stat_activity LIMIT 1)
(SELECT setting FROM pg_settings LIMIT 1)
(SELECT relname FROM pg_class LIMIT 1)
(SELECT table_name FROM information_schema.tables LIMIT 1)
(SELECT most_common_vals::text FROM pg_stats LIMIT 1)
(SELECT stavalues1::text FROM pg_statistic LIMIT 1)
(SELECT prosrc FROM pg_proc WHERE proname = 'leak')
(SELECT definition FROM pg_views LIMIT 1)
(SELECT line FROM pg_hba_file_rules LIMIT 1)
(SELECT name FROM pg_file_settings LIMIT 1)
(SELECT data FROM pg_largeobject LIMIT 1)
(SELECT srvoptions::text FROM pg_foreign_server LIMIT 1)
(SELECT umoptions::text FROM pg_user_mappings LIMIT 1)
