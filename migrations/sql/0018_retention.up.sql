-- What the janitor of the ledger deletes by, and what it did. Sub-runs go before their parents.

CREATE TABLE hocket.retention (
    kind         text        PRIMARY KEY,
    days         integer     NOT NULL CHECK (days > 0),
    deleted      bigint      NOT NULL DEFAULT 0 CHECK (deleted >= 0),
    last_pass_at timestamptz NOT NULL
);
COMMENT ON TABLE hocket.retention IS
    'What is deleted after how many days, how many rows went so far, and when the last pass ended.';

CREATE INDEX run_child ON hocket.run ((parent ->> 'run_id')) WHERE parent IS NOT NULL;
-- rows come in the order of their time, so that a block range says all
CREATE INDEX usage_by_age ON hocket.usage USING brin (recorded_at);
CREATE INDEX warm_time_by_age ON hocket.warm_time USING brin (to_at);

CREATE VIEW report.retention AS SELECT kind, days, deleted, last_pass_at FROM hocket.retention;
COMMENT ON VIEW report.retention IS
    'What is deleted after how many days, how many rows went so far, and when the last pass ended.';
GRANT SELECT ON report.retention TO hocket_report;
