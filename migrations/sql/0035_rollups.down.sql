-- Reports add up all rows again.

CREATE OR REPLACE VIEW report.cost_by_pipeline_day WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    ((started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    count(DISTINCT run_id) AS runs,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(cached_tokens) AS cached_tokens,
    sum(cost_usd) AS cost_usd
   FROM usage
  GROUP BY tenant, pipeline, (((started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant,
    ((started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    count(DISTINCT run_id) AS runs,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(cost_usd) AS cost_usd
   FROM usage
  GROUP BY tenant, (((started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.cost_by_kind WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    version,
    node,
    ((started_at AT TIME ZONE 'UTC'::text))::date AS day,
    kind,
    count(*) AS calls,
    count(DISTINCT run_id) AS runs,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(cost_usd) AS cost_usd
   FROM report.usage
  GROUP BY tenant, pipeline, version, node, (((started_at AT TIME ZONE 'UTC'::text))::date), kind;

CREATE OR REPLACE VIEW report.cost_by_label WITH (security_invoker = true) AS
SELECT u.tenant,
    label.key AS label,
    label.value,
    u.pipeline,
    ((u.started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    count(DISTINCT u.run_id) AS runs,
    sum(u.input_tokens) AS input_tokens,
    sum(u.output_tokens) AS output_tokens,
    sum(u.cost_usd) AS cost_usd
   FROM (usage u
     CROSS JOIN LATERAL jsonb_each_text(u.labels) label(key, value))
  GROUP BY u.tenant, label.key, label.value, u.pipeline, (((u.started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.waste WITH (security_invoker = true) AS
SELECT u.tenant,
    u.pipeline,
    ((u.started_at AT TIME ZONE 'UTC'::text))::date AS day,
        CASE
            WHEN (u.kind = 'call'::text) THEN 'failed_run'::text
            ELSE u.kind
        END AS kind,
    count(*) AS calls,
    sum(u.cost_usd) AS cost_usd
   FROM (report.usage u
     LEFT JOIN run r ON (((r.run_id = u.run_id) AND (r.tenant = u.tenant))))
  WHERE ((u.kind <> 'call'::text) OR (r.status = ANY (ARRAY['failed'::text, 'expired'::text, 'cancelled'::text])))
  GROUP BY u.tenant, u.pipeline, (((u.started_at AT TIME ZONE 'UTC'::text))::date),
        CASE
            WHEN (u.kind = 'call'::text) THEN 'failed_run'::text
            ELSE u.kind
        END;

CREATE OR REPLACE VIEW report.experiments WITH (security_invoker = true) AS
SELECT u.experiment,
    u.arm,
    u.tenant,
    u.pipeline,
    u.node,
    ((u.started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    count(*) FILTER (WHERE (u.status = 'error'::text)) AS failed_calls,
    count(DISTINCT u.run_id) AS runs,
    count(DISTINCT u.run_id) FILTER (WHERE (r.status = 'succeeded'::text)) AS runs_succeeded,
    count(DISTINCT u.run_id) FILTER (WHERE (r.status = ANY (ARRAY['degraded'::text, 'failed'::text, 'expired'::text]))) AS runs_not_succeeded,
    sum(u.cost_usd) AS cost_usd,
    avg(u.latency_ms) FILTER (WHERE (u.status = 'ok'::text)) AS mean_latency_ms,
    percentile_cont((0.95)::double precision) WITHIN GROUP (ORDER BY u.latency_ms) FILTER (WHERE (u.status = 'ok'::text)) AS p95_latency_ms
   FROM (usage u
     LEFT JOIN run r ON (((r.run_id = u.run_id) AND (r.tenant = u.tenant))))
  WHERE (u.experiment IS NOT NULL)
  GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, (((u.started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.cost_by_run WITH (security_invoker = true) AS
SELECT r.tenant,
    r.pipeline,
    r.version,
    r.run_id,
    r.status,
    r.accepted_at,
    r.finished_at,
    (EXTRACT(epoch FROM (r.finished_at - r.accepted_at)) * (1000)::numeric) AS duration_ms,
        CASE
            WHEN (r.finished_at IS NULL) THEN NULL::boolean
            ELSE ((r.status = ANY (ARRAY['succeeded'::text, 'degraded'::text])) AND (r.finished_at <= r.deadline_at))
        END AS met_deadline,
    COALESCE(u.calls, (0)::bigint) AS calls,
    COALESCE(u.input_tokens, (0)::numeric) AS input_tokens,
    COALESCE(u.output_tokens, (0)::numeric) AS output_tokens,
    COALESCE(u.cost_usd, (0)::numeric) AS cost_usd
   FROM (run r
     LEFT JOIN ( SELECT usage.tenant,
            usage.run_id,
            count(*) AS calls,
            sum(usage.input_tokens) AS input_tokens,
            sum(usage.output_tokens) AS output_tokens,
            sum(usage.cost_usd) AS cost_usd
           FROM usage
          GROUP BY usage.tenant, usage.run_id) u USING (tenant, run_id))
UNION ALL
 SELECT u.tenant,
    max(u.pipeline) AS pipeline,
    max(u.version) AS version,
    u.run_id,
        CASE
            WHEN (u.run_id ~ '^r[0-9a-f]{24}$'::text) THEN 'deleted'::text
            ELSE 'external'::text
        END AS status,
    min(u.started_at) AS accepted_at,
    NULL::timestamp with time zone AS finished_at,
    NULL::numeric AS duration_ms,
    NULL::boolean AS met_deadline,
    count(*) AS calls,
    sum(u.input_tokens) AS input_tokens,
    sum(u.output_tokens) AS output_tokens,
    sum(u.cost_usd) AS cost_usd
   FROM usage u
  WHERE ((u.run_id IS NOT NULL) AND (NOT (EXISTS ( SELECT
           FROM run r
          WHERE ((r.tenant = u.tenant) AND (r.run_id = u.run_id))))))
  GROUP BY u.tenant, u.run_id;

CREATE OR REPLACE VIEW report.cost_by_outcome WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    version,
    ((accepted_at AT TIME ZONE 'UTC'::text))::date AS day,
    status,
    count(*) AS runs,
    sum(calls) AS calls,
    sum(cost_usd) AS cost_usd,
    avg(cost_usd) AS usd_per_run
   FROM report.cost_by_run
  GROUP BY tenant, pipeline, version, (((accepted_at AT TIME ZONE 'UTC'::text))::date), status;

CREATE OR REPLACE VIEW report.unit_cost WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    version,
    ((accepted_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS runs,
    count(*) FILTER (WHERE (status = 'succeeded'::text)) AS runs_succeeded,
    sum(cost_usd) AS cost_usd,
    (sum(cost_usd) / (count(*))::numeric) AS usd_per_run,
    (sum(cost_usd) / (NULLIF(count(*) FILTER (WHERE (status = 'succeeded'::text)), 0))::numeric) AS usd_per_success
   FROM report.cost_by_run
  WHERE (status <> 'running'::text)
  GROUP BY tenant, pipeline, version, (((accepted_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.run_budgets WITH (security_invoker = true) AS
WITH RECURSIVE door(tenant, run_id, usd) AS (
         SELECT usage.tenant,
            usage.run_id,
            sum(usage.cost_usd) AS sum
           FROM usage
          WHERE ((usage.call_id ~~ 'http:%'::text) AND (usage.run_id IS NOT NULL))
          GROUP BY usage.tenant, usage.run_id
        ), above(tenant, run_id, usd) AS (
         SELECT door.tenant,
            door.run_id,
            door.usd
           FROM door
        UNION ALL
         SELECT above.tenant,
            (r.parent ->> 'run_id'::text),
            above.usd
           FROM (above
             JOIN run r ON (((r.run_id = above.run_id) AND (r.tenant = above.tenant))))
          WHERE (r.parent IS NOT NULL)
        ), outside(tenant, run_id, usd) AS (
         SELECT above.tenant,
            above.run_id,
            sum(above.usd) AS sum
           FROM above
          GROUP BY above.tenant, above.run_id
        ), runs AS (
         SELECT r.tenant,
            r.pipeline,
            r.version,
            r.accepted_at,
            r.budget_usd,
            (r.spent_usd + COALESCE(outside.usd, (0)::numeric)) AS spent_usd
           FROM (run r
             LEFT JOIN outside ON (((outside.run_id = r.run_id) AND (outside.tenant = r.tenant))))
          WHERE (r.budget_usd IS NOT NULL)
        )
 SELECT tenant,
    pipeline,
    version,
    ((accepted_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS runs,
    avg(budget_usd) AS mean_budget_usd,
    avg(spent_usd) AS mean_spent_usd,
    avg((spent_usd / NULLIF(budget_usd, (0)::numeric))) AS mean_burn,
    count(*) FILTER (WHERE (spent_usd >= budget_usd)) AS runs_exhausted
   FROM runs
  GROUP BY tenant, pipeline, version, (((accepted_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.slo_attainment WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    version,
    ((finished_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS runs,
    count(*) FILTER (WHERE in_time) AS met,
    count(*) FILTER (WHERE (gave_result AND (NOT in_time))) AS late,
    count(*) FILTER (WHERE (NOT gave_result)) AS without_result,
    round(((count(*) FILTER (WHERE in_time))::numeric / (count(*))::numeric), 6) AS attainment
   FROM ( SELECT run.tenant,
            run.pipeline,
            run.version,
            run.finished_at,
            (run.status = ANY (ARRAY['succeeded'::text, 'degraded'::text])) AS gave_result,
            ((run.status = ANY (ARRAY['succeeded'::text, 'degraded'::text])) AND (run.finished_at <= run.deadline_at)) AS in_time
           FROM run
          WHERE ((run.finished_at IS NOT NULL) AND (run.status <> 'cancelled'::text))) ended
  GROUP BY tenant, pipeline, version, (((finished_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.critical_path WITH (security_invoker = true) AS
SELECT r.tenant,
    r.pipeline,
    r.version,
    ((r.finished_at AT TIME ZONE 'UTC'::text))::date AS day,
    (p.piece ->> 1) AS node,
    (p.piece ->> 3) AS kind,
    count(DISTINCT r.run_id) AS runs,
    (sum(((p.piece ->> 4))::numeric) / (1000)::numeric) AS ms,
    (sum(((p.piece ->> 4))::numeric) / NULLIF(sum(sum(((p.piece ->> 4))::numeric)) OVER (PARTITION BY r.tenant, r.pipeline, r.version, (((r.finished_at AT TIME ZONE 'UTC'::text))::date)), (0)::numeric)) AS share
   FROM (run r
     CROSS JOIN LATERAL jsonb_array_elements(r.critical_path) p(piece))
  GROUP BY r.tenant, r.pipeline, r.version, (((r.finished_at AT TIME ZONE 'UTC'::text))::date), (p.piece ->> 1), (p.piece ->> 3);

CREATE OR REPLACE VIEW report.latency_by_node WITH (security_invoker = true) AS
SELECT r.tenant,
    r.pipeline,
    r.version,
    s.path AS node,
    ((s.finished_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS steps,
    avg((EXTRACT(epoch FROM (s.started_at - s.dispatched_at)) * (1000)::numeric)) AS mean_queue_ms,
    avg(s.took_ms) AS mean_execution_ms,
    percentile_cont((0.5)::double precision) WITHIN GROUP (ORDER BY (((EXTRACT(epoch FROM (s.finished_at - s.ready_at)) * (1000)::numeric))::double precision)) AS p50_ms,
    percentile_cont((0.95)::double precision) WITHIN GROUP (ORDER BY (((EXTRACT(epoch FROM (s.finished_at - s.ready_at)) * (1000)::numeric))::double precision)) AS p95_ms
   FROM (step s
     JOIN run r USING (run_id))
  WHERE ((s.role = 'leaf'::text) AND (s.state = 'succeeded'::text) AND (s.finished_at IS NOT NULL) AND (NOT COALESCE((s.facts ? 'source'::text), false)))
  GROUP BY r.tenant, r.pipeline, r.version, s.path, (((s.finished_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.cost_by_node WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    version,
    node,
    model,
    backend,
    count(*) AS calls,
    count(*) FILTER (WHERE (status <> 'ok'::text)) AS failed_calls,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(cost_usd) AS cost_usd,
    avg(latency_ms) AS mean_latency_ms
   FROM usage
  GROUP BY tenant, pipeline, version, node, model, backend;

CREATE OR REPLACE VIEW report.cost_by_model WITH (security_invoker = true) AS
SELECT tenant,
    model,
    backend,
    ((started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    count(*) FILTER (WHERE (status <> 'ok'::text)) AS failed_calls,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(cached_tokens) AS cached_tokens,
    sum(cost_usd) AS cost_usd,
    avg(latency_ms) AS mean_latency_ms
   FROM usage
  GROUP BY tenant, model, backend, (((started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.prompt_cache_savings WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    model,
    backend,
    ((started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    sum(input_tokens) AS input_tokens,
    sum(cached_tokens) AS cached_tokens,
    (sum(((cached_tokens)::numeric * (input_usd_per_mtok - COALESCE(cached_usd_per_mtok, input_usd_per_mtok)))) / (1000000)::numeric) AS saved_usd
   FROM usage
  WHERE (cached_tokens > 0)
  GROUP BY tenant, pipeline, model, backend, (((started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.unpriced_calls WITH (security_invoker = true) AS
SELECT tenant,
    pipeline,
    model,
    backend,
    ((started_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS calls,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens
   FROM usage
  WHERE (unpriced AND ((input_tokens > 0) OR (output_tokens > 0)))
  GROUP BY tenant, pipeline, model, backend, (((started_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.cache_savings WITH (security_invoker = true) AS
SELECT r.tenant,
    r.pipeline,
    r.version,
    s.path AS node,
    ((s.finished_at AT TIME ZONE 'UTC'::text))::date AS day,
    count(*) AS hits,
    count(DISTINCT s.run_id) AS runs,
    sum(((s.facts #>> '{source,saved_usd}'::text[]))::numeric) AS saved_usd
   FROM (step s
     JOIN run r USING (run_id))
  WHERE ((s.facts ? 'source'::text) AND ((s.facts #>> '{source,kind}'::text[]) = 'cache'::text))
  GROUP BY r.tenant, r.pipeline, r.version, s.path, (((s.finished_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.shared_cost WITH (security_invoker = true) AS
WITH held AS (
         SELECT warm_time.backend,
            ((warm_time.from_at AT TIME ZONE 'UTC'::text))::date AS day,
            ((sum(warm_time.busy_ms))::numeric / (1000)::numeric) AS busy_s,
            ((sum(((warm_time.starting_ms + warm_time.idle_ms) + warm_time.provisioned_ms)))::numeric / (1000)::numeric) AS idle_s,
            sum((warm_time.cost_usd - warm_time.wasted_usd)) AS busy_usd,
            sum(warm_time.wasted_usd) AS idle_usd
           FROM warm_time
          GROUP BY warm_time.backend, (((warm_time.from_at AT TIME ZONE 'UTC'::text))::date)
        ), used AS (
         SELECT usage.backend,
            ((usage.started_at AT TIME ZONE 'UTC'::text))::date AS day,
            usage.tenant,
            usage.pipeline,
            (sum(usage.latency_ms))::numeric AS ms
           FROM usage
          WHERE (usage.backend IN ( SELECT held.backend
                   FROM held))
          GROUP BY usage.backend, (((usage.started_at AT TIME ZONE 'UTC'::text))::date), usage.tenant, usage.pipeline
        ), shared AS (
         SELECT held.backend,
            held.day,
            held.busy_s,
            held.idle_s,
            held.busy_usd,
            held.idle_usd,
            used.tenant,
            used.pipeline,
            COALESCE((used.ms / NULLIF(sum(used.ms) OVER (PARTITION BY held.backend, held.day), (0)::numeric)), (1.0 / (count(*) OVER (PARTITION BY held.backend, held.day))::numeric)) AS share
           FROM (held
             LEFT JOIN used ON (((used.backend = held.backend) AND (used.day = held.day))))
        )
 SELECT tenant,
    pipeline,
    backend,
    day,
    share,
    (busy_s * share) AS busy_s,
    (idle_s * share) AS idle_s,
    (busy_usd * share) AS busy_usd,
    (idle_usd * share) AS idle_usd
   FROM shared;

CREATE OR REPLACE VIEW report.ledger WITH (security_invoker = true) AS
SELECT calls.tenant,
    calls.pipeline,
    calls.version,
    calls.node,
    calls.day,
    calls.kind,
    (sum(calls.entries))::bigint AS entries,
    sum(calls.tokens) AS quantity,
    'tokens'::text AS unit,
    sum(calls.cost_usd) AS cost_usd,
    (0)::numeric AS saved_usd,
    (sum(calls.unpriced))::bigint AS unpriced,
    (sum(calls.estimated))::bigint AS estimated,
    'USD'::text AS currency
   FROM ( SELECT usage.tenant,
            usage.pipeline,
            usage.version,
            usage.node,
            ((usage.started_at AT TIME ZONE 'UTC'::text))::date AS day,
            usage.kind,
            count(*) AS entries,
            sum((usage.input_tokens + usage.output_tokens)) AS tokens,
            sum(usage.cost_usd) AS cost_usd,
            count(*) FILTER (WHERE usage.unpriced) AS unpriced,
            count(*) FILTER (WHERE usage.estimated) AS estimated
           FROM usage
          WHERE ((usage.run_id IS NULL) OR (NOT (usage.run_id IN ( SELECT kind_change.run_id
                   FROM kind_change))))
          GROUP BY usage.tenant, usage.pipeline, usage.version, usage.node, (((usage.started_at AT TIME ZONE 'UTC'::text))::date), usage.kind
        UNION ALL
         SELECT usage.tenant,
            usage.pipeline,
            usage.version,
            usage.node,
            ((usage.started_at AT TIME ZONE 'UTC'::text))::date AS day,
            usage.kind,
            count(*) AS entries,
            sum((usage.input_tokens + usage.output_tokens)) AS tokens,
            sum(usage.cost_usd) AS cost_usd,
            count(*) FILTER (WHERE usage.unpriced) AS unpriced,
            count(*) FILTER (WHERE usage.estimated) AS estimated
           FROM report.usage
          WHERE (usage.run_id IN ( SELECT kind_change.run_id
                   FROM kind_change))
          GROUP BY usage.tenant, usage.pipeline, usage.version, usage.node, (((usage.started_at AT TIME ZONE 'UTC'::text))::date), usage.kind) calls
  GROUP BY calls.tenant, calls.pipeline, calls.version, calls.node, calls.day, calls.kind
UNION ALL
 SELECT r.tenant,
    r.pipeline,
    r.version,
    s.path AS node,
    ((s.finished_at AT TIME ZONE 'UTC'::text))::date AS day,
    'tool'::text AS kind,
    count(*) AS entries,
    ((sum(s.took_ms))::numeric / (1000)::numeric) AS quantity,
    'seconds'::text AS unit,
    NULL::numeric AS cost_usd,
    0 AS saved_usd,
    count(*) AS unpriced,
    0 AS estimated,
    'USD'::text AS currency
   FROM (step s
     JOIN run r USING (run_id))
  WHERE ((s.role = 'leaf'::text) AND (s.type <> ALL (ARRAY['llm'::text, 'planning'::text])) AND (s.took_ms IS NOT NULL) AND (s.finished_at IS NOT NULL))
  GROUP BY r.tenant, r.pipeline, r.version, s.path, (((s.finished_at AT TIME ZONE 'UTC'::text))::date)
UNION ALL
 SELECT shared_cost.tenant,
    shared_cost.pipeline,
    NULL::integer AS version,
    NULL::text AS node,
    shared_cost.day,
    spent.kind,
    count(*) AS entries,
    sum(spent.seconds) AS quantity,
    'seconds'::text AS unit,
    sum(spent.usd) AS cost_usd,
    0 AS saved_usd,
    0 AS unpriced,
    0 AS estimated,
    'USD'::text AS currency
   FROM (report.shared_cost
     CROSS JOIN LATERAL ( VALUES ('gpu_seconds'::text,shared_cost.busy_s,shared_cost.busy_usd), ('warm_idle'::text,shared_cost.idle_s,shared_cost.idle_usd)) spent(kind, seconds, usd))
  GROUP BY shared_cost.tenant, shared_cost.pipeline, shared_cost.day, spent.kind
UNION ALL
 SELECT cache_savings.tenant,
    cache_savings.pipeline,
    cache_savings.version,
    cache_savings.node,
    cache_savings.day,
    'cache_saving'::text AS kind,
    cache_savings.hits AS entries,
    cache_savings.hits AS quantity,
    'steps'::text AS unit,
    0 AS cost_usd,
    cache_savings.saved_usd,
    0 AS unpriced,
    0 AS estimated,
    'USD'::text AS currency
   FROM report.cache_savings
UNION ALL
 SELECT r.tenant,
    r.pipeline,
    r.version,
    s.path AS node,
    ((s.finished_at AT TIME ZONE 'UTC'::text))::date AS day,
    'replay_saving'::text AS kind,
    count(*) AS entries,
    count(*) AS quantity,
    'steps'::text AS unit,
    0 AS cost_usd,
    COALESCE(sum(spared.usd), (0)::numeric) AS saved_usd,
    0 AS unpriced,
    0 AS estimated,
    'USD'::text AS currency
   FROM ((step s
     JOIN run r USING (run_id))
     CROSS JOIN LATERAL ( SELECT sum(u.cost_usd) AS usd
           FROM usage u
          WHERE ((u.run_id = (s.facts #>> '{source,run_id}'::text[])) AND (u.step = (s.facts #>> '{source,step}'::text[])) AND (u.tenant = r.tenant))) spared)
  WHERE ((s.facts ? 'source'::text) AND ((s.facts #>> '{source,kind}'::text[]) = 'run'::text))
  GROUP BY r.tenant, r.pipeline, r.version, s.path, (((s.finished_at AT TIME ZONE 'UTC'::text))::date);

CREATE OR REPLACE VIEW report.month_forecast WITH (security_invoker = true) AS
WITH span AS (
         SELECT date_trunc('month'::text, (now() AT TIME ZONE 'UTC'::text)) AS first,
            (date_trunc('month'::text, (now() AT TIME ZONE 'UTC'::text)) + '1 mon'::interval) AS ends,
            (now() AT TIME ZONE 'UTC'::text) AS at
        ), spent AS (
         SELECT u.tenant,
            u.pipeline,
            COALESCE(sum(u.cost_usd) FILTER (WHERE (u.started_at >= (span_1.first AT TIME ZONE 'UTC'::text))), (0)::numeric) AS spent_usd,
            (COALESCE(sum(u.cost_usd) FILTER (WHERE (u.started_at >= (now() - '7 days'::interval))), (0)::numeric) / (7)::numeric) AS usd_per_day
           FROM usage u,
            span span_1
          WHERE (u.started_at >= LEAST((span_1.first AT TIME ZONE 'UTC'::text), (now() - '7 days'::interval)))
          GROUP BY u.tenant, u.pipeline
        )
 SELECT spent.tenant,
    spent.pipeline,
    (span.first)::date AS month,
    spent.spent_usd,
    spent.usd_per_day,
    (spent.spent_usd + (spent.usd_per_day * (EXTRACT(epoch FROM (span.ends - span.at)) / (86400)::numeric))) AS forecast_usd
   FROM spent,
    span;

CREATE OR REPLACE VIEW report.model_swap WITH (security_invoker = true) AS
WITH calls AS (
         SELECT usage.tenant,
            usage.pipeline,
            usage.node,
            usage.model,
            usage.backend,
            count(*) AS calls,
            sum(usage.cost_usd) AS cost_usd,
            sum(((usage.input_tokens - usage.cached_tokens) - usage.cache_write_tokens)) AS fresh,
            sum(usage.cached_tokens) AS cached,
            sum(usage.cache_write_tokens) AS written,
            sum(usage.output_tokens) AS output
           FROM usage
          WHERE ((usage.started_at >= (now() - '7 days'::interval)) AND ((usage.input_tokens > 0) OR (usage.output_tokens > 0)))
          GROUP BY usage.tenant, usage.pipeline, usage.node, usage.model, usage.backend
        ), latest AS (
         SELECT DISTINCT ON (price.tenant, price.model, price.backend) price.tenant,
            price.model,
            price.backend,
            price.input_usd_per_mtok,
            price.output_usd_per_mtok,
            price.cached_usd_per_mtok,
            price.cache_write_usd_per_mtok,
            price.request_usd,
            price.currency,
            price.effective_from
           FROM price
          ORDER BY price.tenant, price.model, price.backend, price.effective_from DESC
        )
 SELECT c.tenant,
    c.pipeline,
    c.node,
    c.model,
    c.backend,
    c.calls,
    c.cost_usd,
    p.model AS other_model,
    p.backend AS other_backend,
    (((c.calls)::numeric * p.request_usd) + (((((c.fresh * p.input_usd_per_mtok) + (c.cached * COALESCE(p.cached_usd_per_mtok, p.input_usd_per_mtok))) + (c.written * COALESCE(p.cache_write_usd_per_mtok, p.input_usd_per_mtok))) + (c.output * p.output_usd_per_mtok)) / (1000000)::numeric)) AS other_cost_usd
   FROM (calls c
     JOIN latest p ON (((p.tenant = c.tenant) AND ((p.model <> c.model) OR (p.backend <> c.backend)))));

COMMENT ON VIEW report.cost_by_outcome IS
    'What runs cost by how they ended, by pipeline version and the day (UTC) of their acceptance. A sub-run is a run of its own pipeline.';

DROP TRIGGER dirty_days ON hocket.kind_change;
DROP TRIGGER replayed ON hocket.step;
DROP TRIGGER dirty_days_gone ON hocket.step;
DROP TRIGGER dirty_day_changed ON hocket.step;
DROP TRIGGER dirty_day_new ON hocket.step;
DROP TRIGGER dirty_days_of_steps ON hocket.run;
DROP TRIGGER dirty_days_changed ON hocket.run;
DROP TRIGGER dirty_days_gone ON hocket.run;
DROP TRIGGER dirty_days_new ON hocket.run;
DROP TRIGGER dirty_days_gone ON hocket.usage;
DROP TRIGGER dirty_days_before ON hocket.usage;
DROP TRIGGER dirty_days_changed ON hocket.usage;
DROP TRIGGER dirty_days_new ON hocket.usage;
DROP FUNCTION hocket.note_days_of_last_steps(), hocket.note_replay(), hocket.note_days_of_kinds(), hocket.note_days_of_steps(), hocket.note_day_of_step(),
    hocket.note_days_of_run(), hocket.note_days_of_runs(), hocket.note_days_of_calls(), hocket.day_of(timestamptz),
    hocket.today();
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['calls', 'cost_by_pipeline_day', 'cost_by_tenant', 'cost_by_kind', 'cost_by_label', 'waste',
        'experiments', 'cost_by_outcome', 'cost_by_run', 'run_budgets', 'slo_attainment', 'critical_path',
        'latency_by_node', 'cache_savings', 'other_entries'] LOOP
        EXECUTE format('DROP VIEW hocket.all_%I', name);
        EXECUTE format('DROP TABLE hocket.rollup_%I', name);
        EXECUTE format('DROP VIEW hocket.live_%I', name);
    END LOOP;
END
$$;
DROP VIEW hocket.live_step, hocket.live_ended_run, hocket.live_run, hocket.live_usage, hocket.live_day;
DROP TABLE hocket.replayed_run, hocket.dirty_day, hocket.rollup_state;
DROP INDEX hocket.step_by_end, hocket.run_by_end, hocket.run_by_acceptance, hocket.usage_of_experiment,
    hocket.usage_by_start;
