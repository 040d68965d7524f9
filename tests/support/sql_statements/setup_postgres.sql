-- What legitimate statements read.
CREATE TYPE public.mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE public.address AS (street text, city text, number integer);
CREATE TABLE public.users (
    id integer PRIMARY KEY, name text, email varchar(50), born date, tags text[], data jsonb,
    score numeric(10, 2), active boolean, created timestamptz, balance double precision,
    code char(3), mood public.mood, home public.address, period daterange, photo bytea,
    ip inet, key uuid, points integer[], seen timestamp, opens time, stay interval
);
INSERT INTO public.users
SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE 'user ' || i END, 'u' || i || '@example.com',
    date '1990-01-01' + i * 37, ARRAY['a' || i % 3, 'b' || i % 2],
    jsonb_build_object('k', i, 'n', jsonb_build_object('x', i % 4), 'l', jsonb_build_array(i, 'z')),
    i * 1.25, i % 2 = 0, timestamptz '2024-01-01 00:00+00' + i * interval '31 hours', i / 3.0,
    'c' || i % 10, (ARRAY['sad', 'ok', 'happy'])[1 + i % 3]::public.mood,
    ROW('Street ' || i, 'City ' || i % 5, i)::public.address,
    daterange(date '2024-01-01' + i, date '2024-02-01' + i), decode('00ff', 'hex'),
    ('10.0.' || i % 4 || '.' || i)::inet, md5(i::text)::uuid,
    ARRAY[i, i * 2, i * 3], timestamp '2024-01-01 10:00' + i * interval '1 hour',
    time '08:00' + i * interval '5 minutes', i * interval '90 minutes'
FROM generate_series(1, 40) AS i;
CREATE TABLE public.orders (
    id integer PRIMARY KEY, user_id integer, total numeric(12, 2), placed timestamptz, status text,
    items jsonb, version integer, net_amount numeric, copy_count integer
);
INSERT INTO public.orders
SELECT i, 1 + i % 40, i * 3.33, timestamptz '2024-03-01 00:00+00' + i * interval '7 hours',
    (ARRAY['open', 'paid', 'sent', 'returned'])[1 + i % 4],
    jsonb_build_array(jsonb_build_object('sku', 's' || i % 9, 'price', i % 20, 'pieces', i % 3)),
    i % 5, i * 2.5, i % 3
FROM generate_series(1, 120) AS i;
CREATE TABLE public.staff (id integer PRIMARY KEY, name text, manager_id integer, salary integer, team text);
INSERT INTO public.staff
SELECT i, 'staff ' || i, NULLIF(i / 2, 0), 1000 + i * 100, 'team ' || i % 3
FROM generate_series(1, 20) AS i;
CREATE VIEW public.paid AS SELECT id, user_id, total FROM public.orders WHERE status = 'paid';
