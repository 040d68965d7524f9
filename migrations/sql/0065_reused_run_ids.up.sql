-- A run id is used again once retention has deleted its run: reports keep what the former run cost, and take none of its calls
-- for the new one's. A former run's calls began more than a day before the new one was accepted, and are no stray calls of it.
-- Days that were rolled up otherwise stay as they are until something of theirs changes: to look for them reads all calls, while
-- nobody can begin a run.

-- cost by run: what a former run cost stays `deleted`; whole days are ruled out before any row is read
CREATE OR REPLACE VIEW hocket.live_cost_by_other_run WITH (security_invoker = true) AS
SELECT named.tenant, u.pipeline, u.version, named.run_id,
       CASE WHEN named.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END AS status,
       u.started_at AS accepted_at, NULL::timestamptz AS finished_at, NULL::numeric AS duration_ms,
       NULL::boolean AS met_deadline, u.calls, u.input_tokens, u.output_tokens, u.cost_usd, named.day
FROM (SELECT tenant, run_id, day FROM hocket.live_usage WHERE run_id IS NOT NULL
      UNION
      SELECT tenant, run_id, day FROM hocket.live_kept_charge
      OFFSET 0) named
LEFT JOIN LATERAL (SELECT r.accepted_at FROM hocket.run r
                   WHERE r.run_id = named.run_id AND r.tenant = named.tenant OFFSET 0) run ON true
CROSS JOIN LATERAL (
    SELECT max(c.pipeline) AS pipeline, max(c.version) AS version, min(c.at) AS started_at, sum(c.calls)::bigint AS calls,
           sum(c.input_tokens) AS input_tokens, sum(c.output_tokens) AS output_tokens, sum(c.cost_usd) AS cost_usd
    FROM (SELECT pipeline, version, started_at AS at, 1 AS calls, input_tokens, output_tokens, cost_usd
          FROM hocket.usage own
          WHERE run_id = named.run_id AND tenant = named.tenant
            AND started_at >= named.day::timestamp AT TIME ZONE 'UTC'
            AND started_at < (named.day + 1)::timestamp AT TIME ZONE 'UTC'
            AND (run.accepted_at IS NULL
                 OR started_at < run.accepted_at - interval '1 day'
                    AND NOT EXISTS (SELECT FROM hocket.stray_call s
                                    WHERE s.call_id = own.call_id AND s.started_at = own.started_at))
          UNION ALL
          SELECT pipeline, version, finished_at, 0, 0, 0, cost_usd
          FROM hocket.kept_charge
          WHERE run_id = named.run_id AND tenant = named.tenant
            AND finished_at >= named.day::timestamp AT TIME ZONE 'UTC'
            AND finished_at < (named.day + 1)::timestamp AT TIME ZONE 'UTC'
            AND (run.accepted_at IS NULL OR finished_at < run.accepted_at)) c
    OFFSET 0) u
WHERE (run.accepted_at IS NULL OR named.day < (run.accepted_at AT TIME ZONE 'UTC')::date)
  AND u.started_at IS NOT NULL;

-- waste: calls of one run, kind and day are together; those of a former run and of the new one are not of one day
CREATE OR REPLACE VIEW hocket.live_waste WITH (security_invoker = true) AS
SELECT u.tenant, u.pipeline, u.day, CASE WHEN u.kind = 'call' THEN 'failed_run' ELSE u.kind END AS kind,
       sum(u.calls)::bigint AS calls, sum(u.cost_usd) AS cost_usd
FROM (
    SELECT tenant, pipeline, day, run_id, kind, count(*) AS calls, sum(cost_usd) AS cost_usd, max(started_at) AS latest
    FROM hocket.live_usage
    GROUP BY tenant, pipeline, day, run_id, kind
) u
LEFT JOIN hocket.run r
  ON r.run_id = u.run_id AND r.tenant = u.tenant
 AND (u.latest >= r.accepted_at - interval '1 day'
      OR EXISTS (SELECT FROM hocket.stray_call s WHERE s.run_id = u.run_id AND s.started_at = u.latest))
WHERE u.kind <> 'call' OR r.status IN ('failed', 'expired', 'cancelled')
GROUP BY u.tenant, u.pipeline, u.day, CASE WHEN u.kind = 'call' THEN 'failed_run' ELSE u.kind END;

CREATE OR REPLACE VIEW hocket.live_experiments WITH (security_invoker = true) AS
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
LEFT JOIN hocket.run r
  ON r.run_id = u.run_id AND r.tenant = u.tenant
 AND (u.started_at >= r.accepted_at - interval '1 day'
      OR EXISTS (SELECT FROM hocket.stray_call s WHERE s.call_id = u.call_id AND s.started_at = u.started_at))
WHERE u.experiment IS NOT NULL
GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, u.day;

CREATE OR REPLACE VIEW report.experiment_results WITH (security_invoker = true) AS
WITH runs AS (
    SELECT u.experiment, u.arm, u.tenant, u.pipeline, u.node, coalesce(u.run_id, u.call_id) AS run,
           count(*)                                        AS calls,
           sum(u.cost_usd)                                 AS usd,
           avg(u.latency_ms) FILTER (WHERE u.status = 'ok') AS ms,
           bool_or(r.status = 'succeeded')                 AS good,
           bool_or(r.status IN ('succeeded', 'degraded', 'failed', 'expired')) AS ended
    FROM hocket.usage u
    LEFT JOIN hocket.run r
      ON r.run_id = u.run_id AND r.tenant = u.tenant
     AND (u.started_at >= r.accepted_at - interval '1 day'
          OR EXISTS (SELECT FROM hocket.stray_call s WHERE s.call_id = u.call_id AND s.started_at = u.started_at))
    WHERE u.experiment IS NOT NULL
    GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, coalesce(u.run_id, u.call_id), r.run_id IS NULL
), sums AS (
    SELECT experiment, arm, tenant, pipeline, node, count(*) AS runs, sum(calls) AS calls,
           count(*) FILTER (WHERE ended)              AS n,
           count(*) FILTER (WHERE ended AND good)     AS won,
           avg(ms) AS ms, stddev_samp(ms) / sqrt(nullif(count(ms), 0)) AS ms_error,
           avg(usd) AS usd, stddev_samp(usd) / sqrt(count(*)) AS usd_error
    FROM runs
    GROUP BY experiment, arm, tenant, pipeline, node
)
SELECT experiment, arm, tenant, pipeline, node, runs, calls,
       n                                                                       AS runs_judged,
       won::double precision / nullif(n, 0)                                    AS success_rate,
       (won + 1.9208 - 1.96 * sqrt(won * (n - won)::double precision / nullif(n, 0) + 0.9604)) / nullif(n + 3.8416, 3.8416)
                                                                               AS success_rate_low,
       (won + 1.9208 + 1.96 * sqrt(won * (n - won)::double precision / nullif(n, 0) + 0.9604)) / nullif(n + 3.8416, 3.8416)
                                                                               AS success_rate_high,
       ms AS mean_latency_ms, ms - 1.96 * ms_error AS latency_ms_low, ms + 1.96 * ms_error AS latency_ms_high,
       usd AS usd_per_run, usd - 1.96 * usd_error AS usd_per_run_low, usd + 1.96 * usd_error AS usd_per_run_high
FROM sums;

CREATE OR REPLACE VIEW hocket.live_run_budgets WITH (security_invoker = true) AS
WITH RECURSIVE below(tenant, top, run_id, accepted_at) AS (
    SELECT tenant, run_id, run_id, accepted_at FROM hocket.live_run WHERE budget_usd IS NOT NULL
    UNION ALL
    SELECT below.tenant, below.top, r.run_id, r.accepted_at
    FROM below
    JOIN hocket.run r ON r.parent ->> 'run_id' = below.run_id AND r.tenant = below.tenant
    WHERE r.parent IS NOT NULL
), outside(tenant, run_id, usd) AS (
    SELECT below.tenant, below.top, sum(u.cost_usd)
    FROM below
    JOIN hocket.usage u ON u.run_id = below.run_id AND u.tenant = below.tenant
    WHERE u.call_id LIKE 'http:%'
      AND (u.started_at >= below.accepted_at - interval '1 day'
           OR EXISTS (SELECT FROM hocket.stray_call s WHERE s.call_id = u.call_id AND s.started_at = u.started_at))
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

-- a stray call is of the run that had its id when it was booked: it goes with that run
CREATE FUNCTION hocket.forget_stray_calls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM hocket.stray_call s USING (SELECT run_id FROM changed) c WHERE s.run_id = c.run_id;
    RETURN NULL;
END
$$;
-- triggers of one event fire in the order of their names: after `dirty_days_gone`, which reads them
CREATE TRIGGER stray_calls_gone AFTER DELETE ON hocket.run REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.forget_stray_calls();

DELETE FROM hocket.stray_call s
WHERE NOT EXISTS (SELECT FROM hocket.run r WHERE r.run_id = s.run_id)
   OR EXISTS (SELECT FROM hocket.run r
              JOIN hocket.usage u ON u.call_id = s.call_id AND u.started_at = s.started_at
              WHERE r.run_id = s.run_id AND u.recorded_at < r.accepted_at - interval '1 day');

-- lost calls: a later call under the same id does not say that an earlier one was booked
CREATE OR REPLACE VIEW report.lost_calls WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, run_id, node, step, attempt, call_id, model, backend, replica, gateway,
       expected_usd, started_at, deadline_at
FROM hocket.open_call o
WHERE deadline_at < now() - interval '1 minute'
  AND NOT EXISTS (SELECT FROM hocket.usage u
                  WHERE u.call_id = o.call_id AND u.tenant = o.tenant AND u.started_at >= o.started_at
                    AND u.started_at <= o.deadline_at + interval '1 minute');

COMMENT ON VIEW report.cost_by_run IS
    'What each run cost, with what its tools charged. met_deadline: it gave its result in time (null while it runs). Status `external`: calls of the HTTP door name the run, and Hocket did not run it; `deleted`: the run is not kept any more, what it cost is. Both have the start of their first call as accepted_at, or the end of their first charge. A run whose idempotency key was used before, by a run that has been deleted, has a row of its own beside the `deleted` one.';
