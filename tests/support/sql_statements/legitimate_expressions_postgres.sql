-- One expression each line, over public.users AS u; each is tried in every place of legitimate_places.sql.
u.id
u.id + 1
u.id * 2 - 3
u.id % 3
u.id / 7
-u.id
u.score * 1.19
u.score / 3
round(u.score, 1)
trunc(u.score)
ceil(u.balance)
floor(u.balance)
abs(-u.id)
@ (-u.id)
mod(u.id, 4)
power(u.id, 2)
u.id ^ 2
(u.id ^ 2)::int
sqrt(u.id)
|/ u.id
||/ 27
cbrt(27)
exp(1.0)
ln(u.id)
log(100)
sign(-u.id)
greatest(u.id, 10)
least(u.id, 10)
width_bucket(u.id, 0, 40, 4)
u.id & 3
u.id | 8
u.id # 5
~u.id
u.id << 2
u.id >> 1
gcd(u.id, 12)
to_hex(u.id)
u.name
upper(u.name)
lower(u.name)
initcap(u.name)
length(u.name)
char_length(u.name)
octet_length(u.name)
left(u.name, 3)
right(u.name, 2)
substring(u.name FROM 1 FOR 2)
substring(u.name FROM '[0-9]+')
substr(u.name, 2, 3)
position('e' IN u.name)
strpos(u.name, 'r')
replace(u.name, 'user', 'person')
translate(u.name, 'abc', 'xyz')
reverse(u.name)
repeat('ab', 3)
lpad(u.id::text, 5, '0')
rpad(u.name, 10, '.')
trim(u.name)
trim(BOTH 'u' FROM u.name)
trim(LEADING 'u' FROM u.name)
btrim(u.name, 'us')
ltrim(u.name, 'u')
rtrim(u.code)
concat(u.name, '-', u.id)
concat_ws(', ', u.name, u.email)
u.name || ' <' || u.email || '>'
format('%s has %s', u.name, u.id)
quote_literal(u.name)
quote_ident(u.name)
split_part(u.email, '@', 2)
starts_with(u.name, 'user')
u.name ^@ 'user'
ascii(u.name)
chr(65)
md5(u.name)
encode(u.photo, 'hex')
regexp_replace(u.name, '[0-9]', '#', 'g')
regexp_match(u.name, '([a-z]+) ([0-9]+)')
(regexp_match(u.name, '([a-z]+) ([0-9]+)'))[2]
regexp_split_to_array(u.email, '[@.]')
regexp_count(u.name, 's')
string_to_array(u.email, '@')
(string_to_array(u.email, '@'))[1]
overlay(u.name PLACING 'XX' FROM 1 FOR 2)
u.name LIKE 'user%'
u.name NOT LIKE '%1'
u.name ILIKE 'USER _'
u.name LIKE 'a!%' ESCAPE '!'
u.name SIMILAR TO 'user (1|2)%'
u.name ~ '^user'
u.name ~* 'USER'
u.name !~ '1$'
u.name !~* 'X'
u.name = 'user 1'
u.name <> 'user 1'
u.name != 'user 1'
u.name IS NULL
u.name IS NOT NULL
u.name IS DISTINCT FROM 'user 1'
u.name IS NOT DISTINCT FROM NULL
u.name COLLATE "C" < 'v'
u.id BETWEEN 3 AND 9
u.id NOT BETWEEN 3 AND 9
u.id BETWEEN SYMMETRIC 9 AND 3
u.id IN (1, 2, 3)
u.id NOT IN (1, 2, 3)
u.id = ANY (ARRAY[1, 2, 3])
u.id <> ALL (ARRAY[1, 2, 3])
u.id > ALL (SELECT id FROM staff WHERE id < 5)
u.id = ANY (SELECT user_id FROM orders)
u.id IN (SELECT user_id FROM orders WHERE total > 100)
EXISTS (SELECT 1 FROM orders AS o WHERE o.user_id = u.id)
NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.user_id = u.id)
(SELECT count(*) FROM orders AS o WHERE o.user_id = u.id)
(SELECT max(o.total) FROM orders AS o WHERE o.user_id = u.id)
ARRAY(SELECT o.id FROM orders AS o WHERE o.user_id = u.id ORDER BY o.id)
u.active
NOT u.active
u.active IS TRUE
u.active IS NOT FALSE
u.active AND u.id > 3
u.active OR u.id > 3
CASE WHEN u.id < 10 THEN 'low' WHEN u.id < 20 THEN 'mid' ELSE 'high' END
CASE u.id WHEN 1 THEN 'one' ELSE 'more' END
coalesce(u.name, 'nobody')
nullif(u.id, 3)
u.born
u.born + 7
u.born - date '2000-01-01'
u.born + interval '1 month'
u.born < date '1991-06-01'
extract(year FROM u.born)
extract(epoch FROM u.created)
extract(dow FROM u.created)
date_part('month', u.born)
date_trunc('month', u.created)
date_trunc('month', u.created)::date
u.created AT TIME ZONE 'Europe/Berlin'
u.seen AT TIME ZONE 'UTC'
u.created - interval '2 days 3 hours'
u.created > timestamptz '2024-01-15 00:00+00'
age(timestamp '2024-06-01', u.seen)
to_char(u.created AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
to_char(u.score, 'FM999990.00')
to_date('2024-03-01', 'YYYY-MM-DD') - u.born
to_timestamp(u.id)
make_date(2024, 1, 1 + u.id % 28)
make_interval(days => u.id)
justify_hours(u.stay)
u.stay * 2
extract(hour FROM u.opens)
date_bin('15 minutes', u.seen, timestamp '2024-01-01')
(u.born, interval '1 year') OVERLAPS (date '1991-01-01', date '1991-02-01')
interval '1 day'
interval '1' day
interval '1 year 2 months'
timestamp '2024-02-29 12:00'
time '10:30' + interval '1 hour'
u.id::text
u.id::numeric(10, 2)
CAST(u.score AS integer)
CAST(u.id AS varchar(5))
u.score::double precision
u.score::real
u.balance::numeric(6, 2)
u.id::bigint
u.id::smallint
u.id::boolean
'2024-01-01'::date
'{1,2,3}'::int[]
'{"a": 1}'::jsonb
'(1,2)'::point
'10.0.0.1'::inet
'a'::"char"
'1 day'::interval
B'101'
X'1F'
1e3
.5
0x1F
0b101
0o17
1_000_000
1.5e-3
'it''s'
E'a\nb'
$$dollar$$
U&'\0061bc'
u.tags
u.tags[1]
u.tags[1:2]
u.tags || ARRAY['z']
u.tags @> ARRAY['a1']
u.tags && ARRAY['a1', 'b0']
'a1' = ANY (u.tags)
array_length(u.tags, 1)
cardinality(u.points)
array_to_string(u.tags, ',')
array_append(u.points, 9)
array_position(u.tags, 'a1')
array_remove(u.points, u.id)
array_cat(u.points, ARRAY[1])
u.points[2] + 1
ARRAY[u.id, u.id + 1]
ARRAY[[1, 2], [3, 4]]
u.data -> 'n' ->> 'x'
u.data ->> 'k'
(u.data ->> 'k')::int
u.data #> '{n,x}'
u.data #>> '{l,0}'
u.data ? 'k'
u.data ?| ARRAY['k', 'q']
u.data ?& ARRAY['k', 'n']
u.data @> '{"k": 3}'
u.data['k']
u.data - 'k'
u.data || '{"new": true}'
u.data @? '$.n.x'
u.data @@ '$.k > 10'
jsonb_path_query_first(u.data, '$.l[0]')
jsonb_array_length(u.data -> 'l')
jsonb_typeof(u.data -> 'l')
jsonb_set(u.data, '{k}', '0')
jsonb_build_object('id', u.id, 'name', u.name)
json_build_array(u.id, u.name)
jsonb_pretty(u.data)
to_jsonb(u.tags)
row_to_json(ROW(u.id, u.name))
JSON_VALUE(u.data, '$.k')
JSON_VALUE(u.data, '$.k' RETURNING int)
JSON_QUERY(u.data, '$.n')
JSON_QUERY(u.data, '$.l[*]' WITH WRAPPER)
JSON_EXISTS(u.data, '$.k')
JSON_EXISTS(u.data, '$.l[*] ? (@ == $v)' PASSING u.id AS v)
JSON_OBJECT('id': u.id, 'name': u.name)
JSON_OBJECT('id' VALUE u.id ABSENT ON NULL)
JSON_ARRAY(u.id, u.name)
JSON_ARRAY(u.id, u.name NULL ON NULL)
JSON_ARRAY(1, 2 RETURNING jsonb)
u.data::text IS JSON
u.name IS NOT JSON
u.data::text IS JSON OBJECT
u.mood = 'happy'
u.mood::text
u.mood > 'sad'
u.mood IN ('ok', 'happy')
(u.home).city
(u.home).number + 1
upper((u.home).city)
(u.home).street || ', ' || (u.home).city
u.period @> date '2024-01-20'
lower(u.period)
upper(u.period) - lower(u.period)
isempty(u.period)
u.period && daterange('2024-01-01', '2024-01-10')
u.period * daterange('2024-01-01', '2024-03-01')
u.ip << inet '10.0.1.0/24'
host(u.ip)
u.ip + 1
family(u.ip)
u.key::text
to_tsvector('english', u.name) @@ to_tsquery('english', 'user')
to_tsvector('english', 'the quick foxes')
plainto_tsquery('english', 'quick fox')
ts_rank(to_tsvector('english', u.name), plainto_tsquery('english', 'user'))
'a:1 b:2'::tsvector
point(1, 2) <-> point(4, 6)
box '((0,0),(1,1))'
circle '<(0,0),1>' @> point '(0.5,0)'
ROW(u.id, u.name) = ROW(1, 'user 1')
(u.id, u.code) IN ((1, 'c1'), (2, 'c2'))
(u.id, u.name) < (5, 'x')
num_nonnulls(u.name, u.id)
pg_catalog.lower(u.name)
pg_catalog.upper(u.name)
u.id OPERATOR(pg_catalog.+) 1
u.id::pg_catalog.int8
current_date > u.born
current_user IS NOT NULL
length(u.name) > 0 AND (u.id = 1 OR u.active) AND NOT (u.id > 30)
u.score * 100 / nullif(u.id, 0) - 3 * (u.id + 1)
- u.id ^ 2
2 ^ 3 ^ 2
|/ 9 + 16
1 + 2 * 3 - 4 / 2 % 3
u.name || u.id + 1
u.id = 1 OR u.id = 2 AND u.active
NOT u.id = 1
u.id IS NULL = false
7 / 2
7 / 2.0
-7 / 2
-7 % 3
1 / 3::numeric
10 / 4 * 2.0
bit_length('abc')
sha256('abc'::bytea)
unistr('\0061')
normalize(u.name, NFC)
random() >= 0
gen_random_uuid() IS NOT NULL
now() > u.created
u.id::bit(8)
'101'::bit varying
'x'::char(3) || '|'
'abc'::varchar(2)
u.points::text
u.home::text
u::text IS NOT NULL
(u).id
