"""Keys on a whole platform: the admin's of `hocket up`, the command line, the gateway's HTTP door, and
where secrets may stand afterwards: nowhere."""

import asyncio
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import aiohttp
import yaml

from hocket.cli.local.platform import Platform
from hocket.schemas.access.keys import parts_of
from support.gateway.mock_upstream import running_upstream
from support.rest_rig import bearer
from support.shared.commands import run_hocket

BOUND_S = 60.0
REVOKED_WITHIN_S = 5.0
SPEC = {
    "pipeline": "p",
    "nodes": {"a": {"type": "python", "handler": "hocket.workers.builtin:echo"}},
}
ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "?"}]}


async def hocket(platform: Platform, *arguments: str, **env: str) -> str:
    """Run the command as its user does, and return what it prints."""
    own = {**os.environ, "HOCKET_DATA_DIR": str(platform.data_dir), **env}
    done = await asyncio.to_thread(run_hocket, *arguments, env=own, timeout_s=BOUND_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def secret_of(key: str) -> bytes:
    parts = parts_of(key)
    assert parts is not None, key
    return parts[1].encode()


async def test_keys_open_every_door_until_they_are_revoked_and_stand_nowhere() -> None:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    async with running_upstream() as upstream:
        backend = {"base_url": upstream.base_url, "model": "m-1"}
        config = folder / "hocket.yaml"
        config.write_text(yaml.safe_dump({"models": {"m": {"backends": [backend]}}}))
        async with Platform(folder / "d", config=config, worker_types=("python",)) as platform:
            file = platform.data_dir / "admin.key"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            own = json.loads(await hocket(platform, "keys", "own", "--json"))
            assert (own["role"], own["tenant"]) == ("admin", None)

            key = await hocket(platform, "keys", "create", "app", "--role", "developer")
            key_id = key.split("_")[1]
            other = await hocket(platform, "keys", "rotate", key_id)
            assert other.split("_")[1] == key_id
            await asyncio.to_thread(platform.api().post, "/v1/pipelines", SPEC)
            for text in (key, other):
                async with aiohttp.ClientSession(headers=bearer(text)) as session:
                    await ask_everywhere(platform, session, text)

            piece = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
            upstream.answer = upstream.streams(piece, then="hang")
            async with (
                aiohttp.ClientSession(headers=bearer(other)) as session,
                session.post(f"{platform.gateway_url}/chat/completions", json=ASK) as stream,
            ):
                assert stream.status == 200, await stream.text()
                await stream.content.readline()
                await hocket(platform, "keys", "revoke", key_id)
                async with asyncio.timeout(REVOKED_WITHIN_S):
                    try:
                        rest = await stream.read()
                    except aiohttp.ClientError:
                        rest = b""
                assert b"[DONE]" not in rest
                async with session.get(f"{platform.gateway_url}/models") as refused:
                    assert refused.status == 401
            assert "revoked" in await hocket(platform, "keys", "list", "--all")
            assert (await hocket(platform, "audit", "verify")).startswith("intact: ")
            exported = await hocket(platform, "audit", "export")
            actions = [json.loads(line)["action"] for line in exported.splitlines()]
            assert actions.count("keys.rotate") == actions.count("keys.revoke") == 1
            secrets = [secret_of(text) for text in (key, other, platform.api_key)]
            told = exported.encode()
    found = [told, *(path.read_bytes() for path in files_of(folder))]
    for secret in secrets:
        assert not any(secret in content for content in found)
    assert sum(key_id.encode() in content for content in found) > 1  # ids are no secret
    assert len(found) > 100  # logs, streams, journals, tables and their log
    shutil.rmtree(folder)


async def ask_everywhere(platform: Platform, session: aiohttp.ClientSession, key: str) -> None:
    """Use a key well, and in every wrong way that is written down somewhere."""
    task = {"pipeline": "p", "input": {"n": 1}, "wait_ms": 20_000}
    async with session.post(f"{platform.api_url}/v1/runs", json=task) as answer:
        assert answer.status == 200, await answer.text()
    place = f"nats://{platform.nats_url.rpartition('@')[2]}"
    by_nats = {"NATS_URL": place, "HOCKET_API_URL": platform.api_url, "HOCKET_API_KEY": key}
    end = json.loads(await hocket(platform, "run", "p", "-i", "n=1", "--json", **by_nats))
    assert end["status"] == "succeeded"
    wrong = f"{key[:-1]}{'0' if key[-1] != '0' else '1'}"
    for headers in ({"X-Api-Key": key}, bearer(f" {key} "), bearer(wrong), bearer(key + "x")):
        for url in (f"{platform.api_url}/v1/runs", f"{platform.gateway_url}/models"):
            async with aiohttp.ClientSession() as bare, bare.get(url, headers=headers) as answer:
                assert answer.status in (200, 401), await answer.text()
                assert key not in await answer.text()
    async with session.post(f"{platform.api_url}/v1/runs?key={key}", json=task) as answer:
        assert answer.status == 422
        assert key not in await answer.text()


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "admin.key"]
