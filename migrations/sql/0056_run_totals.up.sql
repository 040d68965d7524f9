-- The hours of hocket.rollup_run_hours without pipelines and versions: the console's chart of a month reads one row
-- an hour and status, not one for each version of each pipeline. Kept by triggers, so that it says what the hours say
-- whichever release of the ledger rolls them up, and whoever deletes them.

CREATE TABLE hocket.rollup_run_totals (
    tenant text NOT NULL,
    day date NOT NULL,
    hour timestamptz NOT NULL,
    status text NOT NULL,
    runs bigint NOT NULL
);
COMMENT ON TABLE hocket.rollup_run_totals IS
    'What the rows of hocket.rollup_run_hours come to over all pipelines and versions.';

CREATE FUNCTION hocket.add_run_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.rollup_run_totals (tenant, day, hour, status, runs)
    SELECT tenant, day, hour, status, sum(runs)::bigint FROM changed GROUP BY tenant, day, hour, status;
    RETURN NULL;
END
$$;
CREATE FUNCTION hocket.renew_run_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM hocket.rollup_run_totals t
    USING (SELECT DISTINCT tenant, day FROM changed) c WHERE t.tenant = c.tenant AND t.day = c.day;
    INSERT INTO hocket.rollup_run_totals (tenant, day, hour, status, runs)
    SELECT h.tenant, h.day, h.hour, h.status, sum(h.runs)::bigint
    FROM (SELECT DISTINCT tenant, day FROM changed) c
    JOIN hocket.rollup_run_hours h ON h.tenant = c.tenant AND h.day = c.day
    GROUP BY h.tenant, h.day, h.hour, h.status;
    RETURN NULL;
END
$$;
LOCK TABLE hocket.rollup_run_hours IN SHARE ROW EXCLUSIVE MODE;
CREATE TRIGGER totals_of_new AFTER INSERT ON hocket.rollup_run_hours REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.add_run_totals();
CREATE TRIGGER totals_of_rest AFTER DELETE ON hocket.rollup_run_hours REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.renew_run_totals();

INSERT INTO hocket.rollup_run_totals (tenant, day, hour, status, runs)
SELECT tenant, day, hour, status, sum(runs)::bigint FROM hocket.rollup_run_hours GROUP BY tenant, day, hour, status;
CREATE INDEX ON hocket.rollup_run_totals (tenant, day);

-- charts of one pipeline, which read its rows alone
CREATE INDEX run_hours_by_pipeline ON hocket.rollup_run_hours (tenant, pipeline, day) INCLUDE (hour, version, status, runs);
ANALYZE hocket.rollup_run_hours, hocket.rollup_run_totals;
