-- Where the time of every run went: its critical path, and the times of attempts that it is made of.
ALTER TABLE hocket.step
    ADD COLUMN queued_at timestamptz,
    ADD COLUMN took_ms double precision;
COMMENT ON COLUMN hocket.step.queued_at IS 'Since when the attempt waited for a worker.';
COMMENT ON COLUMN hocket.step.took_ms IS 'How long the worker had the attempt, by its own clock.';

ALTER TABLE hocket.run ADD COLUMN critical_path jsonb;
COMMENT ON COLUMN hocket.run.critical_path IS
    'Of an ended run: [[step, node, attempt, kind, microseconds, pieces folded], ...] from its acceptance on; the sum is its time. report.run_critical_path spells it out.';

CREATE VIEW report.run_critical_path AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       r.run_id,
       r.accepted_at,
       r.finished_at,
       p.place,
       p.piece ->> 0                          AS step,
       p.piece ->> 1                          AS node,
       (p.piece ->> 2)::integer               AS attempt,
       p.piece ->> 3                          AS kind,
       coalesce(sum((p.piece ->> 4)::numeric) OVER before, 0) / 1000 AS from_ms,
       (p.piece ->> 4)::numeric / 1000        AS ms,
       (p.piece ->> 5)::integer               AS pieces
FROM hocket.run r
CROSS JOIN LATERAL jsonb_array_elements(r.critical_path) WITH ORDINALITY AS p(piece, place)
WINDOW before AS (
    PARTITION BY r.run_id ORDER BY p.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
);
COMMENT ON VIEW report.run_critical_path IS
    'The pieces of each ended run''s critical path in order: at which step, in what kind of waiting or work, from when (ms after the acceptance) and how long. A run''s pieces sum to its time.';

CREATE VIEW report.critical_path AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       (r.finished_at AT TIME ZONE 'UTC')::date AS day,
       p.piece ->> 1                            AS node,
       p.piece ->> 3                            AS kind,
       count(DISTINCT r.run_id)                 AS runs,
       sum((p.piece ->> 4)::numeric) / 1000     AS ms,
       sum((p.piece ->> 4)::numeric) / nullif(sum(sum((p.piece ->> 4)::numeric)) OVER (
           PARTITION BY r.tenant, r.pipeline, r.version, (r.finished_at AT TIME ZONE 'UTC')::date
       ), 0)                                    AS share
FROM hocket.run r
CROSS JOIN LATERAL jsonb_array_elements(r.critical_path) AS p(piece)
GROUP BY r.tenant, r.pipeline, r.version, (r.finished_at AT TIME ZONE 'UTC')::date,
         p.piece ->> 1, p.piece ->> 3;
COMMENT ON VIEW report.critical_path IS
    'Which nodes and which kinds of waiting or work made the runs of a pipeline version take their time, by the day (UTC) on which they ended. The shares of a version and day sum to 1.';
GRANT SELECT ON report.run_critical_path, report.critical_path TO hocket_report;
