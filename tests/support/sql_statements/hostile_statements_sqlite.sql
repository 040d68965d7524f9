-- One hostile statement each line. {file} is a file, {other} another database with a table secrets.
SELECT 1; DROP TABLE users
SELECT 1; ATTACH '{other}' AS o
ATTACH DATABASE '{other}' AS o
DETACH DATABASE main
PRAGMA table_info(users)
PRAGMA query_only = OFF
PRAGMA writable_schema = 1
PRAGMA journal_mode = DELETE
VACUUM
VACUUM INTO '/tmp/stolen.db'
REINDEX users
ANALYZE
EXPLAIN SELECT 1
EXPLAIN QUERY PLAN SELECT 1
BEGIN IMMEDIATE
SAVEPOINT x
REPLACE INTO users VALUES (1, 'x', 1, 1.0)
INSERT INTO users VALUES (999, 'x', 1, 1.0)
UPDATE users SET name = 'x'
DELETE FROM users
DROP TABLE users
CREATE TABLE x (a)
CREATE TEMP TABLE x AS SELECT 1
CREATE TRIGGER x AFTER INSERT ON users BEGIN SELECT 1; END
CREATE VIRTUAL TABLE x USING fts5(a)
ALTER TABLE users RENAME TO x
WITH a AS (SELECT 1) DELETE FROM users
WITH a AS (SELECT 1) INSERT INTO users SELECT 1, 'x', 1, 1.0
VALUES (1)
SELECT * FROM sqlite_master
SELECT * FROM SQLITE_SCHEMA
SELECT * FROM main.sqlite_master
SELECT * FROM "sqlite_master"
SELECT * FROM [sqlite_master]
SELECT * FROM `sqlite_master`
SELECT * FROM 'sqlite_master'
SELECT * FROM sqlite_temp_master
SELECT * FROM temp.sqlite_master
SELECT * FROM sqlite_sequence
SELECT * FROM sqlite_stat1
SELECT * FROM sqlite_dbpage
SELECT * FROM dbstat
SELECT * FROM bytecode('SELECT 1')
SELECT * FROM tables_used('SELECT 1')
SELECT * FROM pragma_table_list
SELECT * FROM pragma_database_list
SELECT * FROM pragma_database_list()
SELECT * FROM pragma_table_info('users')
SELECT * FROM main.pragma_table_info('users')
SELECT * FROM users, pragma_compile_options
SELECT (SELECT sql FROM sqlite_master LIMIT 1)
SELECT name FROM users UNION SELECT sql FROM sqlite_master
WITH sqlite_master AS (SELECT * FROM sqlite_master) SELECT * FROM sqlite_master
WITH a AS (SELECT * FROM sqlite_master), sqlite_master AS (SELECT 1) SELECT * FROM a
SELECT * FROM (SELECT * FROM sqlite_schema)
SELECT * FROM users WHERE EXISTS (SELECT 1 FROM sqlite_master)
SELECT * FROM users ORDER BY (SELECT sql FROM sqlite_master)
SELECT * FROM users LIMIT (SELECT count(*) FROM sqlite_master)
SELECT * FROM o.secrets
SELECT * FROM secret.keys
SELECT load_extension('{file}')
SELECT LOAD_EXTENSION('{file}', 'entry')
SELECT "load_extension"('{file}')
SELECT [load_extension]('{file}')
SELECT `load_extension`('{file}')
SELECT load_extension /* */ ('{file}')
SELECT * FROM users WHERE load_extension('{file}')
SELECT 1 ORDER BY load_extension('{file}')
SELECT count(*) FILTER (WHERE load_extension('{file}')) FROM users
SELECT sum(load_extension('{file}')) OVER () FROM users
SELECT CASE WHEN load_extension('{file}') THEN 1 END
SELECT readfile('{file}')
SELECT writefile('/tmp/stolen', 'x')
SELECT edit('x')
SELECT fts3_tokenizer('simple')
SELECT fts3_tokenizer('simple', x'00')
SELECT fts5(x'00')
SELECT * FROM fsdir('/')
SELECT * FROM zipfile('x.zip')
SELECT zeroblob(1000000000)
SELECT randomblob(1000000000)
SELECT hex(zeroblob(100000000))
SELECT sqlite_version()
SELECT sqlite_source_id()
SELECT sqlite_compileoption_get(1)
SELECT sqlite_compileoption_used('X')
SELECT sqlite_log(1, 'x')
SELECT sqlite_offset(name) FROM users
SELECT eval('SELECT 1')
SELECT not_known(1)
SELECT * FROM not_known(1)
SELECT * FROM generate_series_of_mine(1)
SELECT * FROM carray(1, 2)
SELECT * FROM wholenumber
SELECT * FROM completion('x')
SELECT ?1
SELECT ?
SELECT @a
SELECT $a::x(y)
SELECT name FROM users INDEXED BY sqlite_autoindex_x
SELECT 1 FROM users WHERE name MATCH load_extension('{file}')
