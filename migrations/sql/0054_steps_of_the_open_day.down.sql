CREATE OR REPLACE VIEW hocket.live_step WITH (security_invoker = true) AS
SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path, s.type, s.role, s.state, s.took_ms, s.ready_at,
       s.dispatched_at, s.started_at, s.finished_at, s.facts, (s.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.finished_at >= hocket.open_from()
  AND s.finished_at < hocket.open_until()
UNION ALL
SELECT s.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path, s.type, s.role, s.state, s.took_ms, s.ready_at,
           s.dispatched_at, s.started_at, s.finished_at, s.facts
    FROM hocket.step s
    JOIN hocket.run r USING (run_id)
    WHERE r.tenant = d.tenant AND s.finished_at >= d.from_at AND s.finished_at < d.to_at
    OFFSET 0
) s;

CREATE OR REPLACE VIEW hocket.live_cost_by_pipeline_day WITH (security_invoker = true) AS
SELECT tenant, pipeline, day, count(*) AS calls, count(DISTINCT run_id) AS runs, sum(input_tokens) AS input_tokens,
       sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens, sum(cost_usd) AS cost_usd
FROM hocket.live_usage
GROUP BY tenant, pipeline, day;

CREATE OR REPLACE VIEW hocket.live_cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant, day, count(*) AS calls, count(DISTINCT run_id) AS runs, sum(input_tokens) AS input_tokens,
       sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM hocket.live_usage
GROUP BY tenant, day;

CREATE OR REPLACE VIEW hocket.live_cost_by_label WITH (security_invoker = true) AS
SELECT u.tenant, label.key AS label, label.value AS value, u.pipeline, u.day, count(*) AS calls,
       count(DISTINCT u.run_id) AS runs, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
       sum(u.cost_usd) AS cost_usd
FROM hocket.live_usage u
CROSS JOIN LATERAL jsonb_each_text(u.labels) AS label
GROUP BY u.tenant, label.key, label.value, u.pipeline, u.day;

CREATE OR REPLACE VIEW hocket.live_critical_path WITH (security_invoker = true) AS
SELECT r.tenant, r.pipeline, r.version, r.day,
       p.piece ->> 1                            AS node,
       p.piece ->> 3                            AS kind,
       count(DISTINCT r.run_id)                 AS runs,
       sum((p.piece ->> 4)::numeric) / 1000     AS ms,
       sum((p.piece ->> 4)::numeric) / nullif(sum(sum((p.piece ->> 4)::numeric)) OVER (
           PARTITION BY r.tenant, r.pipeline, r.version, r.day
       ), 0)                                    AS share
FROM hocket.live_ended_run r
CROSS JOIN LATERAL jsonb_array_elements(r.critical_path) AS p(piece)
GROUP BY r.tenant, r.pipeline, r.version, r.day, p.piece ->> 1, p.piece ->> 3;
