"""Contexts of the command line over a real REST service: the commands of the docs as they are."""

import asyncio
import json
import os
import re
import stat
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hocket.kit.access import people_store
from support.rest_rig import Rest, running_rest

BOUND_S = 120
PAGE = Path(__file__).parents[3] / "docs/how-to/contexts.md"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def shell(script: str, folder: Path) -> tuple[int, str, str]:
    """Run commands as a user with an empty home does."""
    head = f'set -e\nhocket() {{ "{sys.executable}" -m hocket.cli "$@"; }}\n'
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", head + script),
        cwd=folder,
        env={"HOME": str(folder), "PATH": os.environ["PATH"], "COLUMNS": "120"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_page_s_commands_do_what_it_says(rest: Rest, tmp_path: Path) -> None:
    key = await rest.make_key("viewer", "acme", name="ci")
    (tmp_path / "key.txt").write_text(key + "\n")
    sign_in, other, leave = (
        block.replace("https://hocket.example.com", rest.url)
        for block in BLOCK.findall(PAGE.read_text())
    )
    code, out, err = await shell(sign_in, tmp_path)
    assert code == 0, err
    assert f"Signed in to {rest.url} as ci, viewer of the tenant acme." in err
    assert re.search(rf"\* +staging +{rest.url} +acme +yes", out), out
    file = tmp_path / ".config/hocket/contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) & 0o077 == 0
    assert key not in out + err

    code, out, err = await shell(other, tmp_path)
    assert code == 0, err
    assert "ci" in out
    assert [one["name"] for one in json.loads(out[out.index("[") :])] == ["local", "staging"]

    code, _, err = await shell("hocket login <<< hk_000000000000_" + "0" * 64, tmp_path)
    assert code != 0
    assert "refused" in err
    assert key in file.read_text(), "a key that does not count replaces none"

    person = "oidc-" + "0" * 20, "ann", ["builders"], time.time() + 60, "127.0.0.1"
    async with rest.pool.acquire() as connection:
        await people_store.sign_in(connection, *person)
    (tmp_path / "admin.txt").write_text(rest.key)
    listed = "hocket login < admin.txt; hocket keys list --all-tenants"
    code, out, err = await shell(listed, tmp_path)
    assert code == 0, err
    assert re.search(r" ann +by groups: builders", out), out

    code, out, err = await shell(leave, tmp_path)
    assert code == 0, err
    assert key not in file.read_text()
    assert json.loads(file.read_text()) == {"current": "local", "contexts": {}}
    assert (
        await rest.get("/v1/keys/own", headers={"Authorization": f"Bearer {key}"})
    ).status == 200
