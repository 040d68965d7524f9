"""What `hocket doctor` says of a real pgbouncer before Postgres."""

from pathlib import Path

import pytest

from hocket.cli.doctor.database import Database, look_at_database
from hocket.cli.doctor.findings import Verdict
from hocket.kit.embedded import EmbeddedServers
from integration.servers.test_pgbouncer import before, folder
from support.servers.pgbouncer import MISSING, PROGRAM

__all__ = ["folder"]
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)


async def test_doctor_says_what_is_between(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    for mode, verdict in (("session", Verdict.OK), ("transaction", Verdict.FAILED)):
        async with before(servers, folder, database_url, pool_mode=mode) as bouncer:
            found = Database()
            await look_at_database(bouncer.url, found)
            assert [one.verdict for one in found.findings if one.name == "pooler"] == [verdict]
