"""How rows are looked up whose ids a statement is given."""


def rows_of_runs(table: str, ids: str = "$1::text[]") -> str:
    """Return the FROM of a statement that reads the rows of the runs with these ids, one id after the
    other, by the table's index.

    A plan that Postgres made for `run_id = ANY` while the table was empty reads all of the table, for as
    long as the connection lives or nobody analyzes it; and tables of steps are new each day."""
    return (
        f"FROM unnest({ids}) AS asked(id) CROSS JOIN LATERAL"
        f" (SELECT * FROM {table} one WHERE one.run_id = asked.id OFFSET 0) found"
    )
