"""How statements look up rows by given ids, what steps charged, and what runs cost in all."""

OF_THIS_RUN = """NOT EXISTS (
    SELECT FROM hocket.run own
    WHERE own.run_id = u.run_id AND own.tenant = u.tenant
      AND u.started_at < own.accepted_at - interval '1 day'
      AND NOT EXISTS (SELECT FROM hocket.stray_call s
                      WHERE s.call_id = u.call_id AND s.started_at = u.started_at))"""
"""Whether a call `u` is of the run that has its run id now. Earlier calls, unless a gateway's clock was
wrong, are those of a deleted run whose idempotency key was used again."""

KEPT_OF_THIS_RUN = """NOT EXISTS (
    SELECT FROM hocket.run own
    WHERE own.run_id = c.run_id AND own.tenant = c.tenant
      AND c.kept_at < own.accepted_at - interval '1 day')"""
"""Whether stored content or a log line `c` is of the run that has its run id now, by the clock of the
database: what is older is of a deleted run whose idempotency key was used again."""

HAS_CHARGE = (
    "s.facts ? 'charged_usd' AND s.role = 'leaf' AND s.type NOT IN ('llm', 'planning', 'agent')"
)
"""Of steps `s`: those that charged something and called no model."""

OUTSIDE_USD = f"""(CASE WHEN EXISTS (
           SELECT FROM hocket.usage u
           WHERE u.tenant = run.tenant AND u.run_id LIKE 'r%' AND u.call_id LIKE 'http:%'
       ) THEN (
           WITH RECURSIVE below(run_id) AS (
               SELECT run.run_id
               UNION ALL
               SELECT child.run_id FROM below CROSS JOIN LATERAL (
                   SELECT r.run_id FROM hocket.run r
                   WHERE r.parent ->> 'run_id' = below.run_id AND r.tenant = run.tenant
                     AND r.parent IS NOT NULL OFFSET 0) child
           )
           SELECT coalesce(sum(call.cost_usd), 0) FROM below CROSS JOIN LATERAL (
               SELECT u.cost_usd FROM hocket.usage u
               WHERE u.tenant = run.tenant AND u.run_id = below.run_id
                 AND u.call_id LIKE 'http:%' AND {OF_THIS_RUN} OFFSET 0) call
       ) ELSE 0 END)"""
"""The cost of calls at the HTTP door that name the row of `hocket.run` named `run` or its sub-runs, for
which steps do not account: `spent_usd` does not have it.

Rows are read one run at a time, through indexes. Postgres expects hundreds of sub-runs of each run, and
would read all calls and runs of the tenant instead, for each row."""


def rows_of_runs(table: str, ids: str = "$1::text[]") -> str:
    """Return the FROM clause of a statement that reads the rows of the runs with these ids, one id at a
    time, through the table's index.

    A plan that Postgres made for `run_id = ANY` while the table was empty scans the whole table until
    the connection ends or the table is analyzed; and there are new tables of steps every day."""
    return (
        f"FROM unnest({ids}) AS asked(id) CROSS JOIN LATERAL"
        f" (SELECT * FROM {table} one WHERE one.run_id = asked.id OFFSET 0) found"
    )


def charged_since(since: str, ended: str = "max(a.finished_at)") -> str:
    """Return the expression for what a step `s` charged since a point in time, with which `ended`, of
    its attempts `a`, is compared.

    Of a step that has not ended, its facts say what each attempt cost (`counted`; attempt 0 stands for
    all those before the next, and a negative execution for model calls that no result told): of the
    attempts that did not end before, that is the most that they can have charged."""
    return f"""CASE
    WHEN s.finished_at IS NOT NULL OR NOT s.facts ? 'counted'
    THEN (s.facts ->> 'charged_usd')::numeric
    ELSE least((s.facts ->> 'charged_usd')::numeric, (
        SELECT coalesce(sum((paid.entry ->> 2)::numeric), 0)
        FROM jsonb_array_elements(s.facts -> 'counted') AS paid(entry)
        WHERE (paid.entry ->> 1)::int >= 0 AND coalesce((
            SELECT {ended} FROM hocket.attempt a
            WHERE a.run_id = s.run_id AND a.key = s.key AND a.attempt = coalesce(
                nullif((paid.entry ->> 0)::int, 0), (
                    SELECT min((later.entry ->> 0)::int)
                    FROM jsonb_array_elements(s.facts -> 'counted') AS later(entry)
                    WHERE (later.entry ->> 0)::int > 0))
        ), 'infinity') >= {since}
    )) END"""
