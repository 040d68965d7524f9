"""What a web page of another origin can make a browser send: nothing of it does anything, at REST and at
the gateway's HTTP door."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from support.gateway.gateway_process import Gateway, running_gateway
from support.rest_rig import Rest, bearer, running_rest

JSON = {"Content-Type": "application/json"}
SPEC = {"pipeline": "evil", "nodes": {"a": {"type": "python", "handler": "subprocess:run"}}}
ATTACKS: list[tuple[str, dict[str, str], int, str]] = [
    ("a form's body", {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
    ("a form", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    ("no type", {"Content-Type": ""}, 415, "unsupported_media_type"),
    ("another charset", {"Content-Type": "application/json; charset=utf-7"}, 415,
     "unsupported_media_type"),
    ("another origin", {**JSON, "Origin": "https://evil.example"}, 403, "origin_refused"),
    ("a file's page", {**JSON, "Origin": "null"}, 403, "origin_refused"),
    ("another local server", {**JSON, "Origin": "http://127.0.0.1:3000"}, 403, "origin_refused"),
    ("another site", {**JSON, "Sec-Fetch-Site": "cross-site"}, 403, "origin_refused"),
    ("a rebound name", {**JSON, "Host": "evil.example"}, 421, "host_not_served"),
    ("no name", {**JSON, "Host": ""}, 400, "host_missing"),
]  # fmt: skip
READS = [attack for attack in ATTACKS if attack[2] != 415]


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


@pytest.fixture
async def gateway(nats_url: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    await bus.close()
    async with running_gateway(nats_url, tmp_path, None) as gateway:
        yield gateway


async def test_no_page_of_another_origin_changes_anything_by_rest(rest: Rest) -> None:
    for name, headers, status, code in ATTACKS:
        for path in ("/v1/pipelines", "/v1/runs", "/v1/pipelines/validate"):
            keyed = {**bearer(rest.key), **headers}
            told = await asked(rest.url, "POST", path, keyed, json.dumps(SPEC).encode())
            assert told[0] == status, (name, path, told)
            assert json.loads(told[2])["code"] == code, name
    assert (await rest.get("/v1/pipelines")).body == {"pipelines": []}
    assert await rest.stored("TASKS") == 0

    assert (await rest.post("/v1/pipelines", SPEC)).status == 201


async def test_no_page_of_another_origin_reads_anything_by_rest(rest: Rest) -> None:
    for name, headers, status, code in READS:
        for path in ("/v1/runs", f"/v1/runs/r{0:024x}/events", "/docs", "/openapi.json"):
            told = await asked(rest.url, "GET", path, headers)
            assert (told[0], json.loads(told[2])["code"]) == (status, code), (name, path)


async def test_a_page_is_never_told_that_it_may(rest: Rest) -> None:
    preflight = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    for method, headers in (("OPTIONS", preflight), ("OPTIONS", {}), ("GET", {})):
        _, told, _ = await asked(rest.url, method, "/v1/runs", headers)
        assert not any(name.startswith("access-control-") for name in told)


async def test_a_person_who_follows_a_link_gets_there(rest: Rest) -> None:
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert (await asked(rest.url, "GET", "/docs", headers))[0] == 200


async def test_no_page_of_another_origin_makes_a_call_at_the_gateway(gateway: Gateway) -> None:
    body = {"model": "hocket-extractive", "messages": [{"role": "user", "content": "Hi."}]}
    url = gateway.url.removesuffix("/v1")
    for name, headers, status, code in ATTACKS:
        told = await asked(url, "POST", "/v1/chat/completions", headers, json.dumps(body).encode())
        assert told[0] == status, (name, told)
        assert json.loads(told[2])["error"]["code"] == code, name
    for name, headers, status, _ in READS:
        assert (await asked(url, "GET", "/v1/models", headers))[0] == status, name

    told = await asked(url, "POST", "/v1/chat/completions", JSON, json.dumps(body).encode())
    assert told[0] == 200


async def test_no_cache_keeps_what_is_for_one_caller(rest: Rest, gateway: Gateway) -> None:
    for path in ("/v1/runs", "/v1/keys/own", "/v1/pipelines/unknown", "/v1/costs/runs"):
        told = await asked(rest.url, "GET", path, {"X-Api-Key": rest.key})
        assert told[1]["cache-control"] == "no-store", path
    told = await asked(gateway.url.removesuffix("/v1"), "GET", "/v1/models", {})
    assert (told[0], told[1]["cache-control"]) == (200, "no-store")


async def asked(
    url: str, method: str, path: str, headers: dict[str, Any], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """Send a request with exactly these headers (and `Host`, where none is given), as no client does."""
    place = url.removeprefix("http://")
    host, _, port = place.partition(":")
    sent = {"Host": place, "Content-Length": str(len(body)), "Connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    first, *rest = head.decode("latin-1").split("\r\n")
    told = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return int(first.split()[1]), told, content
