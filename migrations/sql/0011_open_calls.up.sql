-- Model calls that were begun and not booked yet: what a gateway that was killed left behind.
CREATE TABLE hocket.open_call (
    call_id      text        PRIMARY KEY,
    tenant       text        NOT NULL,
    pipeline     text,
    version      integer,
    run_id       text,
    node         text,
    step         text,
    attempt      integer,
    model        text        NOT NULL,
    backend      text        NOT NULL,
    replica      text        NOT NULL DEFAULT '',
    gateway      text        NOT NULL DEFAULT '',
    expected_usd numeric     NOT NULL DEFAULT 0 CHECK (expected_usd >= 0),
    started_at   timestamptz NOT NULL,
    deadline_at  timestamptz NOT NULL
);
CREATE INDEX open_call_by_deadline ON hocket.open_call (deadline_at);
COMMENT ON TABLE hocket.open_call IS
    'Model calls that a gateway has begun: the row goes when the call is booked in hocket.usage.';

CREATE VIEW report.lost_calls AS
SELECT tenant, pipeline, version, run_id, node, step, attempt, call_id, model, backend, replica, gateway,
       expected_usd, started_at, deadline_at
FROM hocket.open_call o
WHERE deadline_at < now() - interval '1 minute'
  AND NOT EXISTS (SELECT FROM hocket.usage u WHERE u.call_id = o.call_id);
COMMENT ON VIEW report.lost_calls IS
    'Calls that were begun, whose deadline is over, and that nobody booked: their gateway was killed. What the backend charges for them is unknown; expected_usd is what such a call was expected to cost.';
GRANT SELECT ON report.lost_calls TO hocket_report;
