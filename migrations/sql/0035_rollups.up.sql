-- Reports over many days read rollups: what each report says of a day that is over is kept in a table, and only the
-- days since, and days that something changed in afterwards, are added up from their rows. docs/decisions/0018.

CREATE INDEX usage_by_start ON hocket.usage (started_at);
CREATE INDEX usage_of_experiment ON hocket.usage (experiment) WHERE experiment IS NOT NULL;
CREATE INDEX run_by_acceptance ON hocket.run (accepted_at);
CREATE INDEX run_by_end ON hocket.run (finished_at) WHERE finished_at IS NOT NULL;
-- of a block range, so that steps are updated in place (Postgres 16 and later)
CREATE INDEX step_by_end ON hocket.step USING brin (finished_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE hocket.rollup_state (
    only_row  boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    open_day  date        NOT NULL,
    open_from timestamptz NOT NULL,
    ends      timestamptz NOT NULL DEFAULT 'infinity'
);
COMMENT ON TABLE hocket.rollup_state IS
    'The first day that is not rolled up, and its first moment; `ends` is infinity, and where rows end for the ledger while it rolls up.';
INSERT INTO hocket.rollup_state (open_day, open_from)
SELECT first, first::timestamp AT TIME ZONE 'UTC'
FROM (SELECT CASE WHEN EXISTS (SELECT FROM hocket.usage) OR EXISTS (SELECT FROM hocket.run) THEN '-infinity'::date
                  ELSE (clock_timestamp() AT TIME ZONE 'UTC')::date END AS first) begin;

CREATE TABLE hocket.dirty_day (
    tenant text NOT NULL,
    day    date NOT NULL
);
CREATE INDEX dirty_day_of_tenant ON hocket.dirty_day (tenant, day);
COMMENT ON TABLE hocket.dirty_day IS
    'Days before today in which something changed, noted by triggers in the same transaction: reports add them up from their rows until the ledger has rolled them up again. A day may be noted many times.';

CREATE TABLE hocket.replayed_run (
    source_run_id text NOT NULL,
    run_id        text NOT NULL,
    PRIMARY KEY (source_run_id, run_id)
);
CREATE INDEX replayed_run_of ON hocket.replayed_run (run_id);
COMMENT ON TABLE hocket.replayed_run IS
    'Runs that took over steps of another one: what they saved changes with the calls of that one.';
INSERT INTO hocket.replayed_run (source_run_id, run_id)
SELECT DISTINCT facts #>> '{source,run_id}', run_id FROM hocket.step
WHERE facts #>> '{source,kind}' = 'run' AND facts #>> '{source,run_id}' IS NOT NULL;

-- The rows of open and dirty days ----------------------------------------------------------------------------------------------

CREATE VIEW hocket.live_day WITH (security_invoker = true) AS
SELECT DISTINCT tenant, day, day::timestamp AT TIME ZONE 'UTC' AS from_at,
       (day + 1)::timestamp AT TIME ZONE 'UTC' AS to_at
FROM hocket.dirty_day
WHERE day < (SELECT open_day FROM hocket.rollup_state);
COMMENT ON VIEW hocket.live_day IS 'The dirty days that were rolled up once.';

CREATE VIEW hocket.live_usage WITH (security_invoker = true) AS
SELECT u.*, (u.started_at AT TIME ZONE 'UTC')::date AS day
FROM report.usage u
WHERE u.started_at >= (SELECT open_from FROM hocket.rollup_state)
  AND u.started_at < (SELECT ends FROM hocket.rollup_state)
UNION ALL
SELECT u.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT * FROM report.usage u
    WHERE u.tenant = d.tenant AND u.started_at >= d.from_at AND u.started_at < d.to_at
    OFFSET 0
) u;
COMMENT ON VIEW hocket.live_usage IS 'Calls that are in no rollup: those of open and of dirty days.';

CREATE VIEW hocket.live_run WITH (security_invoker = true) AS
SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.accepted_at, r.deadline_at, r.finished_at, r.parent,
       r.budget_usd, r.spent_usd, (r.accepted_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.run r
WHERE r.accepted_at >= (SELECT open_from FROM hocket.rollup_state)
  AND r.accepted_at < (SELECT ends FROM hocket.rollup_state)
UNION ALL
SELECT r.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.accepted_at, r.deadline_at, r.finished_at,
           r.parent, r.budget_usd, r.spent_usd
    FROM hocket.run r
    WHERE r.tenant = d.tenant AND r.accepted_at >= d.from_at AND r.accepted_at < d.to_at
    OFFSET 0
) r;
COMMENT ON VIEW hocket.live_run IS 'Runs that were accepted on open and on dirty days.';

CREATE VIEW hocket.live_ended_run WITH (security_invoker = true) AS
SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.deadline_at, r.finished_at, r.critical_path,
       (r.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.run r
WHERE r.finished_at IS NOT NULL
  AND r.finished_at >= (SELECT open_from FROM hocket.rollup_state)
  AND r.finished_at < (SELECT ends FROM hocket.rollup_state)
UNION ALL
SELECT r.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.deadline_at, r.finished_at, r.critical_path
    FROM hocket.run r
    WHERE r.tenant = d.tenant AND r.finished_at IS NOT NULL
      AND r.finished_at >= d.from_at AND r.finished_at < d.to_at
    OFFSET 0
) r;
COMMENT ON VIEW hocket.live_ended_run IS 'Runs that ended on open and on dirty days.';

CREATE VIEW hocket.live_step WITH (security_invoker = true) AS
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
COMMENT ON VIEW hocket.live_step IS 'Steps that ended on open and on dirty days.';

-- What reports say of those days: `ledger/rollups.py` keeps the same of a day that is over ----------------------------------------------------------

CREATE VIEW hocket.live_calls WITH (security_invoker = true) AS
SELECT tenant, day, pipeline, version, node, model, backend, kind,
       count(*)                                                          AS calls,
       count(*) FILTER (WHERE status <> 'ok')                            AS failed_calls,
       sum(input_tokens)                                                 AS input_tokens,
       sum(output_tokens)                                                AS output_tokens,
       sum(cached_tokens)                                                AS cached_tokens,
       sum(cache_write_tokens)                                           AS cache_write_tokens,
       sum(cost_usd)                                                     AS cost_usd,
       sum(latency_ms::numeric)                                          AS latency_ms,
       count(*) FILTER (WHERE unpriced)                                  AS unpriced,
       count(*) FILTER (WHERE unpriced AND (input_tokens > 0 OR output_tokens > 0))          AS unpriced_calls,
       coalesce(sum(input_tokens) FILTER (WHERE unpriced), 0)            AS unpriced_input_tokens,
       coalesce(sum(output_tokens) FILTER (WHERE unpriced), 0)           AS unpriced_output_tokens,
       count(*) FILTER (WHERE estimated)                                 AS estimated,
       count(*) FILTER (WHERE cached_tokens > 0)                         AS cache_reads,
       coalesce(sum(input_tokens) FILTER (WHERE cached_tokens > 0), 0)   AS cache_read_input_tokens,
       coalesce(sum(cached_tokens * (input_usd_per_mtok - coalesce(cached_usd_per_mtok, input_usd_per_mtok)))
           FILTER (WHERE cached_tokens > 0), 0)                          AS cache_saved_microusd,
       count(*) FILTER (WHERE input_tokens > 0 OR output_tokens > 0)     AS metered_calls,
       coalesce(sum(cost_usd) FILTER (WHERE input_tokens > 0 OR output_tokens > 0), 0)       AS metered_usd
FROM hocket.live_usage
GROUP BY tenant, day, pipeline, version, node, model, backend, kind;

CREATE VIEW hocket.live_cost_by_pipeline_day WITH (security_invoker = true) AS
SELECT tenant, pipeline, day, count(*) AS calls, count(DISTINCT run_id) AS runs, sum(input_tokens) AS input_tokens,
       sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens, sum(cost_usd) AS cost_usd
FROM hocket.live_usage
GROUP BY tenant, pipeline, day;

CREATE VIEW hocket.live_cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant, day, count(*) AS calls, count(DISTINCT run_id) AS runs, sum(input_tokens) AS input_tokens,
       sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM hocket.live_usage
GROUP BY tenant, day;

CREATE VIEW hocket.live_cost_by_kind WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, kind, count(*) AS calls, count(DISTINCT run_id) AS runs,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM hocket.live_usage
GROUP BY tenant, pipeline, version, node, day, kind;

CREATE VIEW hocket.live_cost_by_label WITH (security_invoker = true) AS
SELECT u.tenant, label.key AS label, label.value AS value, u.pipeline, u.day, count(*) AS calls,
       count(DISTINCT u.run_id) AS runs, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
       sum(u.cost_usd) AS cost_usd
FROM hocket.live_usage u
CROSS JOIN LATERAL jsonb_each_text(u.labels) AS label
GROUP BY u.tenant, label.key, label.value, u.pipeline, u.day;

-- calls of a run first, because few runs have many calls
CREATE VIEW hocket.live_waste WITH (security_invoker = true) AS
SELECT u.tenant, u.pipeline, u.day, CASE WHEN u.kind = 'call' THEN 'failed_run' ELSE u.kind END AS kind,
       sum(u.calls)::bigint AS calls, sum(u.cost_usd) AS cost_usd
FROM (
    SELECT tenant, pipeline, day, run_id, kind, count(*) AS calls, sum(cost_usd) AS cost_usd
    FROM hocket.live_usage
    GROUP BY tenant, pipeline, day, run_id, kind
) u
LEFT JOIN hocket.run r ON r.run_id = u.run_id AND r.tenant = u.tenant
WHERE u.kind <> 'call' OR r.status IN ('failed', 'expired', 'cancelled')
GROUP BY u.tenant, u.pipeline, u.day, CASE WHEN u.kind = 'call' THEN 'failed_run' ELSE u.kind END;

CREATE VIEW hocket.live_experiments WITH (security_invoker = true) AS
SELECT u.experiment, u.arm, u.tenant, u.pipeline, u.node, u.day,
       count(*)                                                             AS calls,
       count(*) FILTER (WHERE u.status = 'error')                           AS failed_calls,
       count(DISTINCT u.run_id)                                             AS runs,
       count(DISTINCT u.run_id) FILTER (WHERE r.status = 'succeeded')       AS runs_succeeded,
       count(DISTINCT u.run_id) FILTER (WHERE r.status IN ('degraded', 'failed', 'expired')) AS runs_not_succeeded,
       sum(u.cost_usd)                                                      AS cost_usd,
       (avg(u.latency_ms::numeric) FILTER (WHERE u.status = 'ok'))::double precision AS mean_latency_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY u.latency_ms)
           FILTER (WHERE u.status = 'ok')                                   AS p95_latency_ms
FROM hocket.live_usage u
LEFT JOIN hocket.run r ON r.run_id = u.run_id AND r.tenant = u.tenant
WHERE u.experiment IS NOT NULL
GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, u.day;

CREATE VIEW hocket.live_cost_by_run WITH (security_invoker = true) AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       r.run_id,
       r.status,
       r.accepted_at,
       r.finished_at,
       extract(epoch FROM r.finished_at - r.accepted_at) * 1000 AS duration_ms,
       CASE
           WHEN r.finished_at IS NULL THEN NULL
           ELSE r.status IN ('succeeded', 'degraded') AND r.finished_at <= r.deadline_at
       END                                                      AS met_deadline,
       coalesce(u.calls, 0)                                     AS calls,
       coalesce(u.input_tokens, 0)                              AS input_tokens,
       coalesce(u.output_tokens, 0)                             AS output_tokens,
       coalesce(u.cost_usd, 0)                                  AS cost_usd,
       r.day
FROM hocket.live_run r
LEFT JOIN (SELECT tenant, run_id, count(*) AS calls, sum(input_tokens) AS input_tokens,
                  sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
           FROM hocket.usage
           WHERE run_id IN (SELECT run_id FROM hocket.live_run)
           GROUP BY tenant, run_id) u USING (tenant, run_id)
UNION ALL
SELECT u.tenant, u.pipeline, u.version, u.run_id,
       CASE WHEN u.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END,
       u.started_at, NULL::timestamptz, NULL::numeric, NULL::boolean, u.calls, u.input_tokens, u.output_tokens,
       u.cost_usd, u.day
FROM (SELECT tenant, run_id, day, max(pipeline) AS pipeline, max(version) AS version, min(started_at) AS started_at,
             count(*) AS calls, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
             sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      WHERE run_id IS NOT NULL
      GROUP BY tenant, run_id, day) u
WHERE NOT EXISTS (SELECT FROM hocket.run r WHERE r.tenant = u.tenant AND r.run_id = u.run_id);

CREATE VIEW hocket.live_cost_by_outcome WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day, status, count(*) AS runs, sum(calls) AS calls, sum(cost_usd) AS cost_usd,
       avg(cost_usd) AS usd_per_run
FROM hocket.live_cost_by_run
GROUP BY tenant, pipeline, version, day, status;

CREATE VIEW hocket.live_run_budgets WITH (security_invoker = true) AS
WITH RECURSIVE below(tenant, top, run_id) AS (
    SELECT tenant, run_id, run_id FROM hocket.live_run WHERE budget_usd IS NOT NULL
    UNION ALL
    SELECT below.tenant, below.top, r.run_id
    FROM below
    JOIN hocket.run r ON r.parent ->> 'run_id' = below.run_id AND r.tenant = below.tenant
    WHERE r.parent IS NOT NULL
), outside(tenant, run_id, usd) AS (
    SELECT below.tenant, below.top, sum(u.cost_usd)
    FROM below
    JOIN hocket.usage u ON u.run_id = below.run_id AND u.tenant = below.tenant
    WHERE u.call_id LIKE 'http:%'
    GROUP BY below.tenant, below.top
), runs AS (
    SELECT r.tenant, r.pipeline, r.version, r.day, r.budget_usd, r.spent_usd + coalesce(outside.usd, 0) AS spent_usd
    FROM hocket.live_run r
    LEFT JOIN outside ON outside.run_id = r.run_id AND outside.tenant = r.tenant
    WHERE r.budget_usd IS NOT NULL
)
SELECT tenant, pipeline, version, day,
       count(*)                                           AS runs,
       avg(budget_usd)                                    AS mean_budget_usd,
       avg(spent_usd)                                     AS mean_spent_usd,
       avg(spent_usd / nullif(budget_usd, 0))             AS mean_burn,
       count(*) FILTER (WHERE spent_usd >= budget_usd)    AS runs_exhausted
FROM runs
GROUP BY tenant, pipeline, version, day;

CREATE VIEW hocket.live_slo_attainment WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day,
       count(*)                                                      AS runs,
       count(*) FILTER (WHERE in_time)                               AS met,
       count(*) FILTER (WHERE gave_result AND NOT in_time)           AS late,
       count(*) FILTER (WHERE NOT gave_result)                       AS without_result,
       round(count(*) FILTER (WHERE in_time)::numeric / count(*), 6) AS attainment
FROM (SELECT tenant, pipeline, version, day,
             status IN ('succeeded', 'degraded')                                   AS gave_result,
             status IN ('succeeded', 'degraded') AND finished_at <= deadline_at    AS in_time
      FROM hocket.live_ended_run
      WHERE status <> 'cancelled') ended
GROUP BY tenant, pipeline, version, day;

CREATE VIEW hocket.live_critical_path WITH (security_invoker = true) AS
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

CREATE VIEW hocket.live_latency_by_node WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, path AS node, day,
       count(*)                                                                    AS steps,
       avg(extract(epoch FROM started_at - dispatched_at) * 1000)                  AS mean_queue_ms,
       avg(took_ms::numeric)::double precision                                     AS mean_execution_ms,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - ready_at) * 1000)  AS p50_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - ready_at) * 1000) AS p95_ms
FROM hocket.live_step
WHERE role = 'leaf' AND state = 'succeeded' AND NOT coalesce(facts ? 'source', false)
GROUP BY tenant, pipeline, version, path, day;

CREATE VIEW hocket.live_cache_savings WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, path AS node, day, count(*) AS hits, count(DISTINCT run_id) AS runs,
       sum((facts #>> '{source,saved_usd}')::numeric) AS saved_usd
FROM hocket.live_step
WHERE facts ? 'source' AND facts #>> '{source,kind}' = 'cache'
GROUP BY tenant, pipeline, version, path, day;

CREATE VIEW hocket.live_other_entries WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, path AS node, day, 'tool' AS kind, count(*) AS entries,
       sum(took_ms::numeric) / 1000 AS quantity, 'seconds' AS unit, NULL::numeric AS cost_usd, 0::numeric AS saved_usd,
       count(*) AS unpriced
FROM hocket.live_step
WHERE role = 'leaf' AND type NOT IN ('llm', 'planning') AND took_ms IS NOT NULL
GROUP BY tenant, pipeline, version, path, day
UNION ALL
SELECT s.tenant, s.pipeline, s.version, s.path, s.day, 'replay_saving', count(*), count(*), 'steps', 0,
       coalesce(sum(spared.usd), 0), 0
FROM hocket.live_step s
CROSS JOIN LATERAL (
    SELECT sum(u.cost_usd) AS usd
    FROM hocket.usage u
    WHERE u.run_id = s.facts #>> '{source,run_id}' AND u.step = s.facts #>> '{source,step}' AND u.tenant = s.tenant
) spared
WHERE s.facts ? 'source' AND s.facts #>> '{source,kind}' = 'run'
GROUP BY s.tenant, s.pipeline, s.version, s.path, s.day;
COMMENT ON VIEW hocket.live_other_entries IS 'Entries of report.ledger that are of steps, and not of calls.';

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['calls', 'cost_by_pipeline_day', 'cost_by_tenant', 'cost_by_kind', 'cost_by_label', 'waste',
        'experiments', 'cost_by_run', 'cost_by_outcome', 'run_budgets', 'slo_attainment', 'critical_path',
        'latency_by_node', 'cache_savings', 'other_entries'] LOOP
        EXECUTE format('CREATE TABLE hocket.rollup_%I AS SELECT * FROM hocket.live_%I WITH NO DATA', name, name);
        EXECUTE format('CREATE INDEX ON hocket.rollup_%I (tenant, day)', name);
        EXECUTE format('COMMENT ON TABLE hocket.rollup_%I IS %L', name,
            format('What hocket.live_%s said of each day when it was over, or changed last.', name));
        EXECUTE format($view$
            CREATE VIEW hocket.all_%I WITH (security_invoker = true) AS
            SELECT * FROM hocket.rollup_%I r
            WHERE NOT EXISTS (SELECT FROM hocket.dirty_day d WHERE d.tenant = r.tenant AND d.day = r.day)
            UNION ALL
            SELECT * FROM hocket.live_%I
        $view$, name, name, name);
        EXECUTE format('COMMENT ON VIEW hocket.all_%I IS %L', name, 'The rollup of clean days, and what the others come to.');
    END LOOP;
END
$$;

-- The reports -------------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW report.cost_by_pipeline_day WITH (security_invoker = true) AS
SELECT tenant, pipeline, day, calls, runs, input_tokens, output_tokens, cached_tokens, cost_usd
FROM hocket.all_cost_by_pipeline_day;

CREATE OR REPLACE VIEW report.cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant, day, calls, runs, input_tokens, output_tokens, cost_usd FROM hocket.all_cost_by_tenant;

CREATE OR REPLACE VIEW report.cost_by_kind WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, kind, calls, runs, input_tokens, output_tokens, cost_usd
FROM hocket.all_cost_by_kind;

CREATE OR REPLACE VIEW report.cost_by_label WITH (security_invoker = true) AS
SELECT tenant, label, value, pipeline, day, calls, runs, input_tokens, output_tokens, cost_usd
FROM hocket.all_cost_by_label;

CREATE OR REPLACE VIEW report.waste WITH (security_invoker = true) AS
SELECT tenant, pipeline, day, kind, calls, cost_usd FROM hocket.all_waste;

CREATE OR REPLACE VIEW report.experiments WITH (security_invoker = true) AS
SELECT experiment, arm, tenant, pipeline, node, day, calls, failed_calls, runs, runs_succeeded, runs_not_succeeded,
       cost_usd, mean_latency_ms, p95_latency_ms
FROM hocket.all_experiments;

CREATE OR REPLACE VIEW report.cost_by_run WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, run_id, status, accepted_at, finished_at, duration_ms, met_deadline, calls,
       input_tokens, output_tokens, cost_usd
FROM hocket.all_cost_by_run
WHERE status NOT IN ('external', 'deleted')
UNION ALL
SELECT tenant, max(pipeline), max(version), run_id, max(status), min(accepted_at), NULL::timestamptz, NULL::numeric,
       NULL::boolean, sum(calls)::bigint, sum(input_tokens), sum(output_tokens), sum(cost_usd)
FROM hocket.all_cost_by_run
WHERE status IN ('external', 'deleted')
GROUP BY tenant, run_id;

CREATE OR REPLACE VIEW report.cost_by_outcome WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day, status, runs, calls, cost_usd, usd_per_run FROM hocket.all_cost_by_outcome;
COMMENT ON VIEW report.cost_by_outcome IS
    'What runs cost by how they ended, by pipeline version and the day (UTC) of their acceptance. A sub-run is a run of its own pipeline. A run that Hocket did not run, or keeps no more, counts on each day of its calls.';

CREATE OR REPLACE VIEW report.unit_cost WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day,
       sum(runs)::bigint                                                    AS runs,
       coalesce(sum(runs) FILTER (WHERE status = 'succeeded'), 0)::bigint   AS runs_succeeded,
       sum(cost_usd)                                                        AS cost_usd,
       sum(cost_usd) / sum(runs)                                            AS usd_per_run,
       sum(cost_usd) / nullif(sum(runs) FILTER (WHERE status = 'succeeded'), 0) AS usd_per_success
FROM hocket.all_cost_by_outcome
WHERE status <> 'running'
GROUP BY tenant, pipeline, version, day;

CREATE OR REPLACE VIEW report.run_budgets WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day, runs, mean_budget_usd, mean_spent_usd, mean_burn, runs_exhausted
FROM hocket.all_run_budgets;

CREATE OR REPLACE VIEW report.slo_attainment WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day, runs, met, late, without_result, attainment FROM hocket.all_slo_attainment;

CREATE OR REPLACE VIEW report.critical_path WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, day, node, kind, runs, ms, share FROM hocket.all_critical_path;

CREATE OR REPLACE VIEW report.latency_by_node WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, steps, mean_queue_ms, mean_execution_ms, p50_ms, p95_ms
FROM hocket.all_latency_by_node;

CREATE OR REPLACE VIEW report.cache_savings WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, hits, runs, saved_usd FROM hocket.all_cache_savings;

CREATE OR REPLACE VIEW report.cost_by_node WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, model, backend,
       sum(calls)::bigint                                AS calls,
       sum(failed_calls)::bigint                         AS failed_calls,
       sum(input_tokens)                                 AS input_tokens,
       sum(output_tokens)                                AS output_tokens,
       sum(cost_usd)                                     AS cost_usd,
       (sum(latency_ms) / sum(calls))::double precision  AS mean_latency_ms
FROM hocket.all_calls
GROUP BY tenant, pipeline, version, node, model, backend;

CREATE OR REPLACE VIEW report.cost_by_model WITH (security_invoker = true) AS
SELECT tenant, model, backend, day,
       sum(calls)::bigint                                AS calls,
       sum(failed_calls)::bigint                         AS failed_calls,
       sum(input_tokens)                                 AS input_tokens,
       sum(output_tokens)                                AS output_tokens,
       sum(cached_tokens)                                AS cached_tokens,
       sum(cost_usd)                                     AS cost_usd,
       (sum(latency_ms) / sum(calls))::double precision  AS mean_latency_ms
FROM hocket.all_calls
GROUP BY tenant, model, backend, day;

CREATE OR REPLACE VIEW report.prompt_cache_savings WITH (security_invoker = true) AS
SELECT tenant, pipeline, model, backend, day,
       sum(cache_reads)::bigint            AS calls,
       sum(cache_read_input_tokens)        AS input_tokens,
       sum(cached_tokens)                  AS cached_tokens,
       sum(cache_saved_microusd) / 1000000 AS saved_usd
FROM hocket.all_calls
WHERE cache_reads > 0
GROUP BY tenant, pipeline, model, backend, day;

CREATE OR REPLACE VIEW report.unpriced_calls WITH (security_invoker = true) AS
SELECT tenant, pipeline, model, backend, day,
       sum(unpriced_calls)::bigint AS calls,
       sum(unpriced_input_tokens)  AS input_tokens,
       sum(unpriced_output_tokens) AS output_tokens
FROM hocket.all_calls
WHERE unpriced_calls > 0
GROUP BY tenant, pipeline, model, backend, day;

CREATE OR REPLACE VIEW report.shared_cost WITH (security_invoker = true) AS
WITH held AS (
    SELECT backend,
           (from_at AT TIME ZONE 'UTC')::date                   AS day,
           sum(busy_ms)::numeric / 1000                         AS busy_s,
           sum(starting_ms + idle_ms + provisioned_ms)::numeric / 1000 AS idle_s,
           sum(cost_usd - wasted_usd)                           AS busy_usd,
           sum(wasted_usd)                                      AS idle_usd
    FROM hocket.warm_time
    GROUP BY backend, (from_at AT TIME ZONE 'UTC')::date
), used AS (
    SELECT backend, day, tenant, pipeline, sum(latency_ms) AS ms
    FROM hocket.all_calls
    WHERE backend IN (SELECT backend FROM held)
    GROUP BY backend, day, tenant, pipeline
), shared AS (
    SELECT held.*, used.tenant, used.pipeline,
           coalesce(used.ms / nullif(sum(used.ms) OVER (PARTITION BY held.backend, held.day), 0),
                    1.0 / count(*) OVER (PARTITION BY held.backend, held.day)) AS share
    FROM held
    LEFT JOIN used ON used.backend = held.backend AND used.day = held.day
)
SELECT tenant, pipeline, backend, day, share, busy_s * share AS busy_s, idle_s * share AS idle_s,
       busy_usd * share AS busy_usd, idle_usd * share AS idle_usd
FROM shared;

CREATE OR REPLACE VIEW report.ledger WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, kind,
       sum(calls)::bigint                      AS entries,
       sum(input_tokens + output_tokens)       AS quantity,
       'tokens'                                AS unit,
       sum(cost_usd)                           AS cost_usd,
       0::numeric                              AS saved_usd,
       sum(unpriced)::bigint                   AS unpriced,
       sum(estimated)::bigint                  AS estimated,
       'USD'::text                             AS currency
FROM hocket.all_calls
GROUP BY tenant, pipeline, version, node, day, kind
UNION ALL
SELECT tenant, pipeline, version, node, day, kind, entries, quantity, unit, cost_usd, saved_usd, unpriced, 0, 'USD'
FROM hocket.all_other_entries
UNION ALL
SELECT tenant, pipeline, NULL, NULL, day, spent.kind, count(*), sum(spent.seconds), 'seconds', sum(spent.usd), 0, 0, 0,
       'USD'
FROM report.shared_cost
CROSS JOIN LATERAL (VALUES ('gpu_seconds', busy_s, busy_usd), ('warm_idle', idle_s, idle_usd))
           AS spent(kind, seconds, usd)
GROUP BY tenant, pipeline, day, spent.kind
UNION ALL
SELECT tenant, pipeline, version, node, day, 'cache_saving', hits, hits, 'steps', 0, saved_usd, 0, 0, 'USD'
FROM report.cache_savings;

-- whole days from the rollup, and of the day seven days ago its calls since this time of day
CREATE OR REPLACE VIEW report.month_forecast WITH (security_invoker = true) AS
WITH span AS (
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC')                      AS first,
           date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month' AS ends,
           now() AT TIME ZONE 'UTC'                                           AS at
), costs AS (
    SELECT tenant, pipeline,
           CASE WHEN day >= date_trunc('month', now() AT TIME ZONE 'UTC')::date THEN cost_usd END AS month_usd,
           CASE WHEN day > (now() AT TIME ZONE 'UTC')::date - 7 THEN cost_usd END                 AS week_usd
    FROM hocket.all_cost_by_pipeline_day
    WHERE day >= least(date_trunc('month', now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date - 6)
    UNION ALL
    SELECT tenant, pipeline, NULL, cost_usd
    FROM hocket.usage
    WHERE started_at >= now() - interval '7 days'
      AND started_at < ((now() AT TIME ZONE 'UTC')::date - 6)::timestamp AT TIME ZONE 'UTC'
), spent AS (
    SELECT tenant, pipeline, coalesce(sum(month_usd), 0) AS spent_usd, coalesce(sum(week_usd), 0)  / 7 AS usd_per_day
    FROM costs
    GROUP BY tenant, pipeline
)
SELECT spent.tenant, spent.pipeline, span.first::date AS month, spent.spent_usd, spent.usd_per_day,
       spent.spent_usd + spent.usd_per_day * (extract(epoch FROM span.ends - span.at) / 86400) AS forecast_usd
FROM spent, span;

CREATE OR REPLACE VIEW report.model_swap WITH (security_invoker = true) AS
WITH pieces AS (
    SELECT tenant, pipeline, node, model, backend, metered_calls AS calls, metered_usd AS cost_usd,
           input_tokens - cached_tokens - cache_write_tokens AS fresh, cached_tokens AS cached,
           cache_write_tokens AS written, output_tokens AS output
    FROM hocket.all_calls
    WHERE day > (now() AT TIME ZONE 'UTC')::date - 7 AND metered_calls > 0
    UNION ALL
    SELECT tenant, pipeline, node, model, backend, 1, cost_usd, input_tokens - cached_tokens - cache_write_tokens,
           cached_tokens, cache_write_tokens, output_tokens
    FROM hocket.usage
    WHERE started_at >= now() - interval '7 days'
      AND started_at < ((now() AT TIME ZONE 'UTC')::date - 6)::timestamp AT TIME ZONE 'UTC'
      AND (input_tokens > 0 OR output_tokens > 0)
), calls AS (
    SELECT tenant, pipeline, node, model, backend, sum(calls)::bigint AS calls, sum(cost_usd) AS cost_usd,
           sum(fresh) AS fresh, sum(cached) AS cached, sum(written) AS written, sum(output) AS output
    FROM pieces
    GROUP BY tenant, pipeline, node, model, backend
), latest AS (
    SELECT DISTINCT ON (tenant, model, backend) * FROM hocket.price
    ORDER BY tenant, model, backend, effective_from DESC
)
SELECT c.tenant, c.pipeline, c.node, c.model, c.backend, c.calls, c.cost_usd,
       p.model AS other_model, p.backend AS other_backend,
       c.calls * p.request_usd + (c.fresh * p.input_usd_per_mtok
           + c.cached * coalesce(p.cached_usd_per_mtok, p.input_usd_per_mtok)
           + c.written * coalesce(p.cache_write_usd_per_mtok, p.input_usd_per_mtok)
           + c.output * p.output_usd_per_mtok) / 1000000 AS other_cost_usd
FROM calls c
JOIN latest p ON p.tenant = c.tenant AND (p.model, p.backend) <> (c.model, c.backend);

-- What makes a day dirty ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION hocket.today() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN date_trunc('day', clock_timestamp(), 'UTC');
COMMENT ON FUNCTION hocket.today() IS 'The first moment of this day (UTC), by the clock.';

CREATE FUNCTION hocket.day_of(at timestamptz) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (at AT TIME ZONE 'UTC')::date;

-- calls: their own day, that of their run's acceptance, those of steps that were taken over from it, and of the
-- runs above it where the HTTP door was asked
CREATE FUNCTION hocket.note_days_of_calls() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT tenant, hocket.day_of(started_at) FROM changed WHERE started_at < today
    UNION
    SELECT r.tenant, hocket.day_of(r.accepted_at)
    FROM (SELECT DISTINCT run_id FROM changed WHERE run_id IS NOT NULL) named
    CROSS JOIN LATERAL (SELECT tenant, accepted_at FROM hocket.run WHERE run_id = named.run_id OFFSET 0) r
    WHERE r.accepted_at < today
    UNION
    SELECT r.tenant, hocket.day_of(s.finished_at)
    FROM (SELECT DISTINCT run_id FROM changed WHERE run_id IS NOT NULL) named
    JOIN hocket.replayed_run replayed ON replayed.source_run_id = named.run_id
    JOIN hocket.run r ON r.run_id = replayed.run_id
    JOIN hocket.step s ON s.run_id = r.run_id
    WHERE s.finished_at < today;
    IF EXISTS (SELECT FROM changed WHERE call_id LIKE 'http:%' AND run_id IS NOT NULL) THEN
        INSERT INTO hocket.dirty_day (tenant, day)
        WITH RECURSIVE above(tenant, run_id, accepted_at) AS (
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM (SELECT DISTINCT tenant, run_id FROM changed WHERE call_id LIKE 'http:%' AND run_id IS NOT NULL) named
            JOIN hocket.run r ON r.run_id = named.run_id AND r.tenant = named.tenant
            UNION
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM above JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = above.tenant
        )
        SELECT DISTINCT tenant, hocket.day_of(accepted_at) FROM above WHERE accepted_at < today;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER dirty_days_new AFTER INSERT ON hocket.usage REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_changed AFTER UPDATE ON hocket.usage REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_before AFTER UPDATE ON hocket.usage REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_gone AFTER DELETE ON hocket.usage REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();

-- runs that begin or go: their days, and those of their calls
CREATE FUNCTION hocket.note_days_of_runs() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    IF NOT EXISTS (SELECT FROM changed) THEN
        RETURN NULL;
    END IF;
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT c.tenant, at::date
    FROM changed c
    CROSS JOIN LATERAL generate_series(hocket.day_of(c.accepted_at)::timestamp,
        hocket.day_of(least(coalesce(c.finished_at, today), today))::timestamp, interval '1 day') AS at
    WHERE c.accepted_at < today AND at < today AT TIME ZONE 'UTC'
    UNION
    SELECT u.tenant, hocket.day_of(u.started_at)
    FROM changed c
    CROSS JOIN LATERAL (SELECT tenant, started_at FROM hocket.usage
                        WHERE run_id = c.run_id AND started_at < today OFFSET 0) u;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM hocket.replayed_run WHERE run_id IN (SELECT run_id FROM changed);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER dirty_days_new AFTER INSERT ON hocket.run REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_runs();
CREATE TRIGGER dirty_days_gone AFTER DELETE ON hocket.run REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_runs();

-- runs that go on after the day of their acceptance; gateways' clocks may be some minutes behind
CREATE FUNCTION hocket.note_days_of_run() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT NEW.tenant, hocket.day_of(at)
    FROM unnest(ARRAY[OLD.accepted_at, NEW.accepted_at, OLD.finished_at, NEW.finished_at]) AS at
    WHERE at < today
    UNION
    SELECT tenant, hocket.day_of(started_at) FROM hocket.usage
    WHERE run_id = NEW.run_id AND NEW.status <> OLD.status AND started_at < today;
    RETURN NULL;
END
$$;
CREATE TRIGGER dirty_days_changed AFTER UPDATE ON hocket.run FOR EACH ROW
    WHEN (least(NEW.accepted_at, OLD.accepted_at, NEW.finished_at)
              < date_trunc('day', clock_timestamp(), 'UTC') + interval '1 hour'
          AND (NEW.status, NEW.accepted_at, NEW.finished_at, NEW.deadline_at, NEW.budget_usd, NEW.spent_usd,
               NEW.critical_path, NEW.pipeline, NEW.version)
              IS DISTINCT FROM (OLD.status, OLD.accepted_at, OLD.finished_at, OLD.deadline_at, OLD.budget_usd, OLD.spent_usd,
                                OLD.critical_path, OLD.pipeline, OLD.version))
    EXECUTE FUNCTION hocket.note_days_of_run();

-- steps that are told of on a later day than they ended
CREATE FUNCTION hocket.note_day_of_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT r.tenant, hocket.day_of(at)
    FROM hocket.run r
    CROSS JOIN unnest(ARRAY[OLD.finished_at, NEW.finished_at]) AS at
    WHERE r.run_id = NEW.run_id AND at < hocket.today();
    RETURN NULL;
END
$$;
CREATE FUNCTION hocket.note_days_of_steps() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT r.tenant, c.day
    FROM (SELECT DISTINCT run_id, hocket.day_of(finished_at) AS day FROM changed WHERE finished_at < hocket.today()) c
    JOIN hocket.run r USING (run_id);
    RETURN NULL;
END
$$;
CREATE TRIGGER dirty_day_new AFTER INSERT ON hocket.step FOR EACH ROW
    WHEN (NEW.finished_at < date_trunc('day', clock_timestamp(), 'UTC')) EXECUTE FUNCTION hocket.note_day_of_step();
CREATE TRIGGER dirty_day_changed AFTER UPDATE ON hocket.step FOR EACH ROW
    WHEN (least(NEW.finished_at, OLD.finished_at) < date_trunc('day', clock_timestamp(), 'UTC'))
    EXECUTE FUNCTION hocket.note_day_of_step();
CREATE TRIGGER dirty_days_gone AFTER DELETE ON hocket.step REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_steps();

-- those that go with their run
CREATE FUNCTION hocket.note_days_of_last_steps() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT OLD.tenant, hocket.day_of(finished_at)
    FROM hocket.step WHERE run_id = OLD.run_id AND finished_at < hocket.today();
    RETURN OLD;
END
$$;
CREATE TRIGGER dirty_days_of_steps BEFORE DELETE ON hocket.run
    FOR EACH ROW EXECUTE FUNCTION hocket.note_days_of_last_steps();

CREATE FUNCTION hocket.note_replay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.replayed_run (source_run_id, run_id)
    SELECT NEW.facts #>> '{source,run_id}', NEW.run_id WHERE NEW.facts #>> '{source,run_id}' IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER replayed AFTER INSERT OR UPDATE ON hocket.step FOR EACH ROW
    WHEN (NEW.facts #>> '{source,kind}' = 'run') EXECUTE FUNCTION hocket.note_replay();

-- runs whose calls may be of another kind
CREATE FUNCTION hocket.note_days_of_kinds() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT u.tenant, hocket.day_of(u.started_at)
    FROM (SELECT DISTINCT run_id FROM changed) c
    JOIN hocket.run r ON r.run_id = c.run_id
    CROSS JOIN LATERAL (SELECT tenant, started_at FROM hocket.usage
                        WHERE run_id = c.run_id AND started_at < today OFFSET 0) u
    WHERE r.accepted_at < today + interval '1 hour';
    RETURN NULL;
END
$$;
CREATE TRIGGER dirty_days AFTER INSERT ON hocket.kind_change REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_kinds();

-- Who may read -------------------------------------------------------------------------------------------------------------------

DO $$
DECLARE
    found record;
    login record;
BEGIN
    FOR found IN SELECT c.relname FROM pg_class c
                 WHERE c.relnamespace = 'hocket'::regnamespace AND c.relkind = 'r'
                   AND (c.relname LIKE 'rollup\_%' OR c.relname = 'dirty_day') AND c.relname <> 'rollup_state' LOOP
        EXECUTE format('ALTER TABLE hocket.%I ENABLE ROW LEVEL SECURITY', found.relname);
        EXECUTE format('CREATE POLICY report_tenant ON hocket.%I FOR SELECT TO hocket_report'
                       ' USING (tenant = (SELECT hocket.report_tenant()))', found.relname);
        FOR login IN SELECT policyname, roles[1] AS name FROM pg_policies
                     WHERE schemaname = 'hocket' AND tablename = 'usage' AND policyname LIKE 'report\_all\_%' LOOP
            EXECUTE format('CREATE POLICY %I ON hocket.%I FOR SELECT TO %I USING (true)',
                           login.policyname, found.relname, login.name);
        END LOOP;
        EXECUTE format('GRANT SELECT ON hocket.%I TO hocket_report', found.relname);
    END LOOP;
    FOR found IN SELECT c.relname FROM pg_class c
                 WHERE c.relnamespace = 'hocket'::regnamespace AND c.relkind = 'v'
                   AND (c.relname LIKE 'live\_%' OR c.relname LIKE 'all\_%') LOOP
        EXECUTE format('GRANT SELECT ON hocket.%I TO hocket_report', found.relname);
    END LOOP;
END
$$;
GRANT SELECT ON hocket.rollup_state TO hocket_report;
ANALYZE hocket.rollup_state, hocket.dirty_day;
