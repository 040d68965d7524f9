"""How statements look up rows by given ids."""


def rows_of_runs(table: str, ids: str = "$1::text[]") -> str:
    """Return the FROM clause of a statement that reads the rows of the runs with these ids, one id at a
    time, through the table's index.

    A plan that Postgres made for `run_id = ANY` while the table was empty scans the whole table until
    the connection ends or the table is analyzed; and there are new tables of steps every day."""
    return (
        f"FROM unnest({ids}) AS asked(id) CROSS JOIN LATERAL"
        f" (SELECT * FROM {table} one WHERE one.run_id = asked.id OFFSET 0) found"
    )
