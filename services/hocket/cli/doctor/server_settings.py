"""The check by `hocket doctor` of the settings of Postgres that docs/how-to/postgres.md asks for."""

from typing import Any

from hocket.cli.doctor.findings import Finding, Verdict

NAME = "postgres settings"
MIN_LOCKS = 256
MIN_WORK_MEM_BYTES = 32 * 1024**2
PAGE = "docs/how-to/postgres.md"

_SETTINGS = """
SELECT current_setting('max_locks_per_transaction')::int AS locks,
       current_setting('work_mem') AS work_mem,
       pg_size_bytes(current_setting('work_mem')) AS work_mem_bytes
"""


async def server_settings(connection: Any) -> Finding:
    """Report settings with which reports fail or spill to disk; everything else works without them."""
    row = await connection.fetchrow(_SETTINGS)
    cures = []
    if row["locks"] < MIN_LOCKS:
        cures.append(
            f"Set max_locks_per_transaction = {MIN_LOCKS} and restart Postgres, or some reports at "
            "once fail with `out of shared memory`"
        )
    if row["work_mem_bytes"] < MIN_WORK_MEM_BYTES:
        cures.append("Set work_mem = '32MB', or reports of the open day sort on disk")
    found = f"max_locks_per_transaction = {row['locks']}, work_mem = {row['work_mem']}"
    if not cures:
        return Finding(NAME, Verdict.OK, found)
    return Finding(NAME, Verdict.NOTE, found, f"{'. '.join(cures)}: {PAGE}")
