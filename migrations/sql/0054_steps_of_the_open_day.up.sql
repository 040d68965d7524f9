-- Where the open day begins is asked for once for its steps: the function that tells it was called for each row, because
-- almost all rows of a day's table are of the open day, so that no index helps.

CREATE OR REPLACE VIEW hocket.live_step WITH (security_invoker = true) AS
SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path, s.type, s.role, s.state, s.took_ms, s.ready_at,
       s.dispatched_at, s.started_at, s.finished_at, s.facts, (s.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.finished_at >= (SELECT open_from FROM hocket.rollup_state)
  AND s.finished_at < (SELECT ends FROM hocket.rollup_state)
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

-- Calls of a run are added up before runs are counted: for that the calls were sorted, by the tenant, too, where a login asks
CREATE OR REPLACE VIEW hocket.live_cost_by_pipeline_day WITH (security_invoker = true) AS
SELECT tenant, pipeline, day, sum(calls)::bigint AS calls, count(DISTINCT run_id) AS runs,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens,
       sum(cost_usd) AS cost_usd
FROM (SELECT tenant, pipeline, day, run_id, count(*) AS calls, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      GROUP BY tenant, pipeline, day, run_id) of_run
GROUP BY tenant, pipeline, day;

CREATE OR REPLACE VIEW hocket.live_cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant, day, sum(calls)::bigint AS calls, count(DISTINCT run_id) AS runs, sum(input_tokens) AS input_tokens,
       sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM (SELECT tenant, day, run_id, count(*) AS calls, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      GROUP BY tenant, day, run_id) of_run
GROUP BY tenant, day;

CREATE OR REPLACE VIEW hocket.live_cost_by_label WITH (security_invoker = true) AS
SELECT u.tenant, label.key AS label, label.value AS value, u.pipeline, u.day, sum(u.calls)::bigint AS calls,
       count(DISTINCT u.run_id) AS runs, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
       sum(u.cost_usd) AS cost_usd
FROM (SELECT tenant, pipeline, day, run_id, labels, count(*) AS calls, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      WHERE labels IS NOT NULL
      GROUP BY tenant, pipeline, day, run_id, labels
      OFFSET 0) u
CROSS JOIN LATERAL jsonb_each_text(u.labels) AS label
GROUP BY u.tenant, label.key, label.value, u.pipeline, u.day;

CREATE OR REPLACE VIEW hocket.live_critical_path WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day, node, kind,
       count(*)                                AS runs,
       sum(us) / 1000                          AS ms,
       sum(us) / nullif(sum(sum(us)) OVER (PARTITION BY tenant, pipeline, version, day), 0) AS share
FROM (SELECT r.run_id, r.tenant, r.pipeline, r.version, r.day, p.piece ->> 1 AS node, p.piece ->> 3 AS kind,
             sum((p.piece ->> 4)::numeric) AS us
      FROM hocket.live_ended_run r
      CROSS JOIN LATERAL jsonb_array_elements(r.critical_path) AS p(piece)
      GROUP BY r.run_id, r.tenant, r.pipeline, r.version, r.day, p.piece ->> 1, p.piece ->> 3) of_run
GROUP BY tenant, pipeline, version, day, node, kind;
