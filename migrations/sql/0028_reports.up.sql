-- Reports by model, tenant and outcome, what one good run costs, waste, forecasts, where time goes, and what experiments
-- and other prices come to. Every view runs with its reader's rights.

CREATE VIEW report.cost_by_model WITH (security_invoker = true) AS
SELECT tenant, model, backend, (started_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                               AS calls,
       count(*) FILTER (WHERE status <> 'ok') AS failed_calls,
       sum(input_tokens)                      AS input_tokens,
       sum(output_tokens)                     AS output_tokens,
       sum(cached_tokens)                     AS cached_tokens,
       sum(cost_usd)                          AS cost_usd,
       avg(latency_ms)                        AS mean_latency_ms
FROM hocket.usage
GROUP BY tenant, model, backend, (started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.cost_by_model IS 'What each model cost on each day (UTC), by backend.';

CREATE VIEW report.cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant, (started_at AT TIME ZONE 'UTC')::date AS day,
       count(*)               AS calls,
       count(DISTINCT run_id) AS runs,
       sum(input_tokens)      AS input_tokens,
       sum(output_tokens)     AS output_tokens,
       sum(cost_usd)          AS cost_usd
FROM hocket.usage
GROUP BY tenant, (started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.cost_by_tenant IS 'What each tenant''s calls cost on each day (UTC).';

CREATE VIEW report.cost_by_outcome WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date AS day, status,
       count(*)      AS runs,
       sum(calls)    AS calls,
       sum(cost_usd) AS cost_usd,
       avg(cost_usd) AS usd_per_run
FROM report.cost_by_run
GROUP BY tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date, status;
COMMENT ON VIEW report.cost_by_outcome IS
    'What runs cost by how they ended, by pipeline version and the day (UTC) of their acceptance. A sub-run is a run of its own pipeline.';

CREATE VIEW report.unit_cost WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                                       AS runs,
       count(*) FILTER (WHERE status = 'succeeded')   AS runs_succeeded,
       sum(cost_usd)                                  AS cost_usd,
       sum(cost_usd) / count(*)                       AS usd_per_run,
       sum(cost_usd) / nullif(count(*) FILTER (WHERE status = 'succeeded'), 0) AS usd_per_success
FROM report.cost_by_run
WHERE status <> 'running'
GROUP BY tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.unit_cost IS
    'What one successful run costs: all that ended runs of the day (UTC, of acceptance) cost, those that failed included, for each that succeeded.';

CREATE VIEW report.waste WITH (security_invoker = true) AS
SELECT u.tenant, u.pipeline, (u.started_at AT TIME ZONE 'UTC')::date AS day,
       CASE WHEN u.kind = 'call' THEN 'failed_run' ELSE u.kind END AS kind,
       count(*)        AS calls,
       sum(u.cost_usd) AS cost_usd
FROM report.usage u
LEFT JOIN hocket.run r ON r.run_id = u.run_id AND r.tenant = u.tenant
WHERE u.kind <> 'call' OR r.status IN ('failed', 'expired', 'cancelled')
GROUP BY u.tenant, u.pipeline, (u.started_at AT TIME ZONE 'UTC')::date,
         CASE WHEN u.kind = 'call' THEN 'failed_run' ELSE u.kind END;
COMMENT ON VIEW report.waste IS
    'What was spent for nothing, by pipeline, day (UTC) and kind: retry, speculation, cascade, and failed_run (other calls of runs that failed, expired or were cancelled).';

CREATE VIEW report.prompt_cache_savings WITH (security_invoker = true) AS
SELECT tenant, pipeline, model, backend, (started_at AT TIME ZONE 'UTC')::date AS day,
       count(*)           AS calls,
       sum(input_tokens)  AS input_tokens,
       sum(cached_tokens) AS cached_tokens,
       sum(cached_tokens * (input_usd_per_mtok - coalesce(cached_usd_per_mtok, input_usd_per_mtok))) / 1000000
                          AS saved_usd
FROM hocket.usage
WHERE cached_tokens > 0
GROUP BY tenant, pipeline, model, backend, (started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.prompt_cache_savings IS
    'Input that engines and providers read from their prompt (KV) cache, and what it would have cost more as other input. What writing the cache cost is in the cost of the calls.';

CREATE VIEW report.month_forecast WITH (security_invoker = true) AS
WITH span AS (
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC')                      AS first,
           date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month' AS ends,
           now() AT TIME ZONE 'UTC'                                           AS at
), spent AS (
    SELECT u.tenant, u.pipeline,
           coalesce(sum(u.cost_usd) FILTER (WHERE u.started_at >= span.first AT TIME ZONE 'UTC'), 0) AS spent_usd,
           coalesce(sum(u.cost_usd) FILTER (WHERE u.started_at >= now() - interval '7 days'), 0) / 7 AS usd_per_day
    FROM hocket.usage u, span
    WHERE u.started_at >= least(span.first AT TIME ZONE 'UTC', now() - interval '7 days')
    GROUP BY u.tenant, u.pipeline
)
SELECT spent.tenant, spent.pipeline, span.first::date AS month, spent.spent_usd, spent.usd_per_day,
       spent.spent_usd + spent.usd_per_day * (extract(epoch FROM span.ends - span.at) / 86400) AS forecast_usd
FROM spent, span;
COMMENT ON VIEW report.month_forecast IS
    'What each pipeline has spent in this month (UTC), and what it comes to at its end if it goes on as in the last 7 days. Compare it with the budgets of the gateway''s configuration.';

CREATE VIEW report.run_budgets WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                                           AS runs,
       avg(budget_usd)                                    AS mean_budget_usd,
       avg(spent_usd)                                     AS mean_spent_usd,
       avg(spent_usd / nullif(budget_usd, 0))             AS mean_burn,
       count(*) FILTER (WHERE spent_usd >= budget_usd)    AS runs_exhausted
FROM hocket.run
WHERE budget_usd IS NOT NULL
GROUP BY tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.run_budgets IS
    'How much of their budget runs use up: mean_burn is what they spent of it (1 is all), runs_exhausted how many spent it all. Calls of the HTTP door are not in it.';

CREATE VIEW report.latency_by_node WITH (security_invoker = true) AS
SELECT r.tenant, r.pipeline, r.version, s.path AS node, (s.finished_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                                                          AS steps,
       avg(extract(epoch FROM s.started_at - s.dispatched_at) * 1000)    AS mean_queue_ms,
       avg(s.took_ms)                                                    AS mean_execution_ms,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM s.finished_at - s.ready_at) * 1000) AS p50_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM s.finished_at - s.ready_at) * 1000) AS p95_ms
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.role = 'leaf' AND s.state = 'succeeded' AND s.finished_at IS NOT NULL AND NOT coalesce(s.facts ? 'source', false)
GROUP BY r.tenant, r.pipeline, r.version, s.path, (s.finished_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.latency_by_node IS
    'How long steps of each node take from the moment they are ready, by day (UTC): waiting for a worker, and in the worker. Steps that a cache or an earlier run served do not count.';

CREATE VIEW report.bottleneck WITH (security_invoker = true) AS
SELECT DISTINCT ON (tenant, pipeline, version, day)
       tenant, pipeline, version, day, node, kind, runs, ms, share
FROM report.critical_path
ORDER BY tenant, pipeline, version, day, share DESC NULLS LAST, node, kind;
COMMENT ON VIEW report.bottleneck IS
    'Of each pipeline version and day (UTC) the node, and the kind of waiting or work at it, that had the largest share of the critical paths.';

CREATE VIEW report.experiment_results WITH (security_invoker = true) AS
WITH runs AS (
    SELECT u.experiment, u.arm, u.tenant, u.pipeline, u.node, coalesce(u.run_id, u.call_id) AS run,
           count(*)                                        AS calls,
           sum(u.cost_usd)                                 AS usd,
           avg(u.latency_ms) FILTER (WHERE u.status = 'ok') AS ms,
           bool_or(r.status = 'succeeded')                 AS good,
           bool_or(r.status IN ('succeeded', 'degraded', 'failed', 'expired')) AS ended
    FROM hocket.usage u
    LEFT JOIN hocket.run r ON r.run_id = u.run_id AND r.tenant = u.tenant
    WHERE u.experiment IS NOT NULL
    GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, coalesce(u.run_id, u.call_id)
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
COMMENT ON VIEW report.experiment_results IS
    'What each arm of an experiment came to at each node, with intervals of 95 %: success of its runs (Wilson), mean latency of a run''s calls and cost of a run at the node (normal; null for a single run). Intervals of two arms that do not overlap differ.';

CREATE VIEW report.model_swap WITH (security_invoker = true) AS
WITH calls AS (
    SELECT tenant, pipeline, node, model, backend, count(*) AS calls, sum(cost_usd) AS cost_usd,
           sum(input_tokens - cached_tokens - cache_write_tokens) AS fresh, sum(cached_tokens) AS cached,
           sum(cache_write_tokens) AS written, sum(output_tokens) AS output
    FROM hocket.usage
    WHERE started_at >= now() - interval '7 days' AND (input_tokens > 0 OR output_tokens > 0)
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
COMMENT ON VIEW report.model_swap IS
    'What the calls of the last 7 days of each node would have cost at the latest price of each other model that the tenant uses: the same tokens, which another model would cut otherwise and answer with more or fewer.';

GRANT SELECT (budget_usd, spent_usd) ON hocket.run TO hocket_report;
GRANT SELECT ON ALL TABLES IN SCHEMA report TO hocket_report;

DO $$
DECLARE found record;
BEGIN
    FOR found IN
        SELECT c.relname, a.attname, said.text
        FROM (VALUES
            ('tenant', 'Whose it is.'),
            ('pipeline', 'The pipeline; null for calls outside of runs.'),
            ('version', 'The version of the pipeline.'),
            ('day', 'The day, in UTC.'),
            ('run_id', 'The run.'),
            ('node', 'The node of the pipeline.'),
            ('step', 'The step of the run.'),
            ('attempt', 'The attempt of the step, from 1.'),
            ('model', 'The logical name of the model.'),
            ('backend', 'The backend that was asked.'),
            ('replica', 'The replica of the backend.'),
            ('status', 'How it ended.'),
            ('kind', 'What it was; the comment of the view lists the kinds.'),
            ('calls', 'Model calls.'),
            ('runs', 'Different runs.'),
            ('failed_calls', 'Calls that were not answered.'),
            ('input_tokens', 'Tokens of prompts, cached ones included.'),
            ('output_tokens', 'Tokens of answers.'),
            ('cached_tokens', 'Tokens of prompts that were read from a prompt cache.'),
            ('cache_write_tokens', 'Tokens of prompts that were written to a prompt cache.'),
            ('cost_usd', 'What it cost, in US dollars.'),
            ('saved_usd', 'What it would have cost more, in US dollars.'),
            ('mean_latency_ms', 'Mean time of a call at the gateway, in milliseconds.'),
            ('p95_latency_ms', 'The time of a call that 95 % do not exceed, in milliseconds.'),
            ('latency_ms', 'The time of the call, in milliseconds.'),
            ('started_at', 'When the call began.'),
            ('accepted_at', 'When the run was accepted.'),
            ('finished_at', 'When the run ended.'),
            ('deadline_at', 'By when it was wanted.'),
            ('duration_ms', 'From acceptance to end, in milliseconds.'),
            ('met_deadline', 'Whether it gave its result in time; null while it runs.'),
            ('call_id', 'The id of the call.'),
            ('error_code', 'The code of the error.'),
            ('experiment', 'The experiment.'),
            ('arm', 'The arm of the experiment.'),
            ('estimated', 'Nobody metered it: an estimate (in report.ledger: how many entries).'),
            ('amended', 'Fields that could not be stored as they came.'),
            ('labels', 'The labels, as a JSON object.'),
            ('label', 'The key of the label.'),
            ('value', 'The value of the label.'),
            ('unpriced', 'No price is known (in report.ledger: how many entries).'),
            ('currency', 'The currency of all amounts.'),
            ('input_usd_per_mtok', 'US dollars for a million tokens of input.'),
            ('output_usd_per_mtok', 'US dollars for a million tokens of output.'),
            ('cached_usd_per_mtok', 'US dollars for a million cached tokens; null: as other input.'),
            ('cache_write_usd_per_mtok', 'US dollars for a million tokens written to a cache; null: as other input.'),
            ('request_usd', 'US dollars for each call.'),
            ('effective_from', 'When the first call was booked at these prices.'),
            ('hits', 'Steps that were served.'),
            ('met', 'Runs that gave their result in time.'),
            ('late', 'Runs that gave it after their deadline.'),
            ('without_result', 'Runs that gave none.'),
            ('attainment', 'Met of all, 0 to 1.'),
            ('place', 'The number of the piece on the path, from 1.'),
            ('from_ms', 'When it began, in milliseconds after the acceptance.'),
            ('ms', 'How long, in milliseconds.'),
            ('pieces', 'How many pieces are folded into this one.'),
            ('share', 'The part of the whole, 0 to 1.'),
            ('runs_succeeded', 'Runs that succeeded.'),
            ('runs_not_succeeded', 'Runs that ended otherwise.'),
            ('gateway', 'The gateway that began the call.'),
            ('expected_usd', 'What such a call was expected to cost.'),
            ('reason', 'Why it was held warm.'),
            ('from_at', 'When the stretch began.'),
            ('to_at', 'When the stretch ended.'),
            ('starting_s', 'Seconds of starting.'),
            ('busy_s', 'Seconds with calls.'),
            ('idle_s', 'Seconds without calls (in report.shared_cost those of starting and provisioning, too).'),
            ('provisioned_s', 'Seconds without the model.'),
            ('held_s', 'Seconds in all.'),
            ('wasted_s', 'Seconds idle or provisioned.'),
            ('usd_per_hour', 'What an hour costs.'),
            ('wasted_usd', 'What the wasted time cost.'),
            ('busy_usd', 'What the busy time cost.'),
            ('idle_usd', 'What the other time cost.'),
            ('days', 'After how many days it is deleted.'),
            ('deleted', 'Rows deleted so far.'),
            ('last_pass_at', 'When the last pass ended.'),
            ('entries', 'Entries of the kind.'),
            ('quantity', 'How much, in `unit`.'),
            ('unit', 'tokens, seconds or steps.'),
            ('usd_per_run', 'US dollars for each run.'),
            ('usd_per_success', 'US dollars for each run that succeeded; null where none did.'),
            ('month', 'The first day of the month.'),
            ('spent_usd', 'What was spent in it by now.'),
            ('usd_per_day', 'US dollars a day, over the last 7 days.'),
            ('forecast_usd', 'What the month comes to.'),
            ('mean_budget_usd', 'The mean budget of a run.'),
            ('mean_spent_usd', 'What a run spent, in the mean.'),
            ('mean_burn', 'Spent of budget, in the mean; 1 is all.'),
            ('runs_exhausted', 'Runs that spent it all.'),
            ('steps', 'Steps that succeeded.'),
            ('mean_queue_ms', 'Mean wait for a worker after dispatch, in milliseconds.'),
            ('mean_execution_ms', 'Mean time in the worker, in milliseconds.'),
            ('p50_ms', 'Median from ready to done, in milliseconds.'),
            ('p95_ms', 'What 95 % do not exceed from ready to done, in milliseconds.'),
            ('runs_judged', 'Runs whose end is known.'),
            ('success_rate', 'Runs that succeeded of those.'),
            ('success_rate_low', 'Lower end of the interval.'),
            ('success_rate_high', 'Upper end of the interval.'),
            ('latency_ms_low', 'Lower end of the interval.'),
            ('latency_ms_high', 'Upper end of the interval.'),
            ('usd_per_run_low', 'Lower end of the interval.'),
            ('usd_per_run_high', 'Upper end of the interval.'),
            ('other_model', 'The model it is compared with.'),
            ('other_backend', 'Its backend.'),
            ('other_cost_usd', 'What the same tokens would have cost there.')
        ) AS said(name, text)
        JOIN pg_attribute a ON a.attname = said.name AND a.attnum > 0
        JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'v' AND c.relnamespace = 'report'::regnamespace
    LOOP
        EXECUTE format('COMMENT ON COLUMN report.%I.%I IS %L', found.relname, found.attname, found.text);
    END LOOP;
END
$$;
