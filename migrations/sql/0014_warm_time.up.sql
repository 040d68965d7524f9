-- The time that replicas of models were held, as the gateway that keeps them counts it: one row for each
-- stretch of a replica. What is idle or only provisioned was paid for nothing.
CREATE TABLE hocket.warm_time (
    record_id      text PRIMARY KEY,
    backend        text NOT NULL,
    replica        text NOT NULL DEFAULT '',
    model          text NOT NULL,
    reason         text NOT NULL DEFAULT '',
    from_at        timestamptz NOT NULL,
    to_at          timestamptz NOT NULL,
    starting_ms    double precision NOT NULL DEFAULT 0,
    busy_ms        double precision NOT NULL DEFAULT 0,
    idle_ms        double precision NOT NULL DEFAULT 0,
    provisioned_ms double precision NOT NULL DEFAULT 0,
    usd_per_hour   numeric NOT NULL DEFAULT 0,
    cost_usd       numeric NOT NULL DEFAULT 0,
    wasted_usd     numeric NOT NULL DEFAULT 0,
    CHECK (to_at >= from_at),
    CHECK (least(starting_ms, busy_ms, idle_ms, provisioned_ms) >= 0),
    CHECK (wasted_usd <= cost_usd)
);
CREATE INDEX warm_time_from_at ON hocket.warm_time (from_at);

CREATE VIEW report.warm_time AS
SELECT model,
       backend,
       replica,
       reason,
       from_at,
       to_at,
       starting_ms / 1000                                       AS starting_s,
       busy_ms / 1000                                           AS busy_s,
       idle_ms / 1000                                           AS idle_s,
       provisioned_ms / 1000                                    AS provisioned_s,
       (starting_ms + busy_ms + idle_ms + provisioned_ms) / 1000 AS held_s,
       (idle_ms + provisioned_ms) / 1000                        AS wasted_s,
       usd_per_hour,
       cost_usd,
       wasted_usd
FROM hocket.warm_time;
COMMENT ON VIEW report.warm_time IS
    'Every stretch of time that a replica was held: starting, busy with calls, idle, provisioned without its model; wasted is idle and provisioned.';

CREATE VIEW report.warm_by_model_day AS
SELECT model,
       backend,
       (from_at AT TIME ZONE 'UTC')::date AS day,
       sum(starting_s)                    AS starting_s,
       sum(busy_s)                        AS busy_s,
       sum(idle_s)                        AS idle_s,
       sum(provisioned_s)                 AS provisioned_s,
       sum(held_s)                        AS held_s,
       sum(wasted_s)                      AS wasted_s,
       sum(cost_usd)                      AS cost_usd,
       sum(wasted_usd)                    AS wasted_usd
FROM report.warm_time
GROUP BY model, backend, (from_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.warm_by_model_day IS
    'What each backend was held for on each day (UTC), in seconds, and what of it was wasted.';
GRANT SELECT ON report.warm_time, report.warm_by_model_day TO hocket_report;
