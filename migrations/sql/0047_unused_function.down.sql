CREATE FUNCTION hocket.note_days_of_partition(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($sql$
        WITH RECURSIVE named AS MATERIALIZED (
            SELECT DISTINCT tenant, run_id FROM hocket.%1$I WHERE run_id IS NOT NULL
        ), known AS MATERIALIZED (
            SELECT r.tenant, r.run_id, r.accepted_at, r.parent ->> 'run_id' AS parent
            FROM named JOIN hocket.run r USING (run_id)
        ), above(tenant, run_id, accepted_at) AS (
            SELECT tenant, parent, accepted_at FROM known
            UNION
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM above JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = above.tenant
        )
        INSERT INTO hocket.dirty_day (tenant, day)
        SELECT tenant, hocket.day_of(started_at) FROM hocket.%1$I GROUP BY 1, 2
        UNION
        SELECT tenant, hocket.day_of(accepted_at) FROM above
        UNION
        SELECT r.tenant, hocket.day_of(s.finished_at)
        FROM named
        JOIN hocket.replayed_run replayed ON replayed.source_run_id = named.run_id
        JOIN hocket.run r ON r.run_id = replayed.run_id
        JOIN hocket.step s ON s.run_id = r.run_id
        WHERE s.finished_at IS NOT NULL
    $sql$, name);
    EXECUTE format('DELETE FROM hocket.stray_call s USING hocket.%I u'
                   ' WHERE s.call_id = u.call_id AND s.started_at = u.started_at', name);
END
$$;
COMMENT ON FUNCTION hocket.note_days_of_partition(text) IS
    'Notes the days of which the calls of a partition, that is to be dropped, were part.';
