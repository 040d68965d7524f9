-- Where an expression {x} over public.users AS u can stand.
SELECT u.id AS user_id, {x} AS v FROM users AS u ORDER BY u.id LIMIT 20
WITH c AS (SELECT u.id AS user_id, {x} AS v FROM users AS u WHERE u.id < 12) SELECT c.v, count(*) OVER () AS n FROM c ORDER BY c.user_id
