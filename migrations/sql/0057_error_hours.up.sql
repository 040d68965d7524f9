-- How many runs of each hour ended with which error: the console's chart of one error over a month read each of them.
-- Rolled up by day like the reports (docs/decisions/0018), but read by the console alone: logins of reports may not read
-- the errors of runs, whose messages may quote their content.

CREATE VIEW hocket.live_error_hours WITH (security_invoker = true) AS
SELECT tenant, day, date_trunc('hour', accepted_at, 'UTC') AS hour, pipeline, version, code, status, count(*) AS runs
FROM (
    SELECT r.tenant, (r.accepted_at AT TIME ZONE 'UTC')::date AS day, r.accepted_at, r.pipeline, r.version,
           r.error ->> 'code' AS code, r.status
    FROM hocket.run r
    WHERE r.accepted_at >= hocket.open_from() AND r.accepted_at < hocket.open_until() AND r.error IS NOT NULL
    UNION ALL
    SELECT r.tenant, d.day, r.accepted_at, r.pipeline, r.version, r.code, r.status
    FROM hocket.live_day d CROSS JOIN LATERAL (
        SELECT r.tenant, r.accepted_at, r.pipeline, r.version, r.error ->> 'code' AS code, r.status
        FROM hocket.run r
        WHERE r.tenant = d.tenant AND r.accepted_at >= d.from_at AND r.accepted_at < d.to_at AND r.error IS NOT NULL
        OFFSET 0
    ) r
) failed
GROUP BY tenant, day, date_trunc('hour', accepted_at, 'UTC'), pipeline, version, code, status;

CREATE TABLE hocket.rollup_error_hours AS SELECT * FROM hocket.live_error_hours WITH NO DATA;
CREATE INDEX ON hocket.rollup_error_hours (tenant, day);
CREATE INDEX error_hours_by_code ON hocket.rollup_error_hours (tenant, code, day)
    INCLUDE (hour, pipeline, version, status, runs);
COMMENT ON TABLE hocket.rollup_error_hours IS
    'What hocket.live_error_hours said of each day when it was over, or changed last.';
INSERT INTO hocket.rollup_error_hours
SELECT tenant, hocket.day_of(accepted_at), date_trunc('hour', accepted_at, 'UTC'), pipeline, version, error ->> 'code',
       status, count(*)
FROM hocket.run
WHERE accepted_at < hocket.open_from() AND error IS NOT NULL
GROUP BY tenant, hocket.day_of(accepted_at), date_trunc('hour', accepted_at, 'UTC'), pipeline, version,
         error ->> 'code', status;

ANALYZE hocket.rollup_error_hours;

-- Lists of a pipeline's runs in their order, and of one of its versions, from the index alone.
CREATE INDEX run_of_pipeline ON hocket.run (tenant, pipeline, accepted_at DESC, run_id DESC) INCLUDE (version);
DROP INDEX hocket.run_recent;
