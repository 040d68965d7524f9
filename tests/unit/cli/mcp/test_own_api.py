"""The token of callers without a key is renewed beside everything else, and once for all of them."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.cli.mcp import own_api
from hocket.cli.mcp.kept_api import connections
from hocket.cli.mcp.own_api import OwnApi
from hocket.cli.mcp.server import Context, McpPlatform
from hocket.cli.remote.api import Api
from hocket.cli.remote.identity_provider import ProviderSilent
from support.shared.scripted_api import Answer, as_json, scripted_api

BOUND_S = 20.0


class Provider:
    """Stands for an identity provider that takes until `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0
        self.is_away = False

    def api(self) -> Api:
        self.asked += 1
        assert self.answers.wait(BOUND_S), "nothing else went on meanwhile"
        if self.is_away:
            raise ProviderSilent(reason="the identity provider could not be reached")
        return Api("http://127.0.0.1:9")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def caller(session: Any, key: str | None) -> Context:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    request = SimpleNamespace(headers=headers)
    return cast("Context", SimpleNamespace(request=request, lifespan_context=session))


def no_pipelines(_asked: str, _body: Any) -> Answer:
    return as_json(200, {"pipelines": []})


async def test_a_caller_with_a_key_does_not_wait_for_the_renewal_of_another() -> None:
    provider = Provider()
    with scripted_api(no_pipelines) as api:

        def api_for(key: str | None) -> Api:
            if key is None:
                provider.api()
            return Api(api.url, key=key)

        platform = McpPlatform(api_for, (), wait_ms=1_000)
        async with connections() as session:
            others = asyncio.create_task(platform.list_tools(caller(session, None), None))
            await until(lambda: provider.asked == 1)
            assert (await platform.list_tools(caller(session, "hk_a_b"), None)).tools
            assert not others.done()
            provider.answers.set()
            assert (await others).tools


async def test_calls_that_come_during_a_renewal_wait_for_the_same_one() -> None:
    provider = Provider()
    own = OwnApi(provider.api)
    calls = [asyncio.create_task(own.get()) for _ in range(50)]
    await until(lambda: provider.asked == 1)
    calls.pop().cancel()  # a client that gives up does not end it for the others
    provider.answers.set()
    assert len(set(await asyncio.gather(*calls))) == 1
    assert provider.asked == 1
    await own.get()
    assert provider.asked == 2


async def test_a_failure_is_remembered_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider()
    provider.answers.set()
    provider.is_away = True
    own = OwnApi(provider.api)
    for _ in range(3):
        with pytest.raises(ProviderSilent):
            await own.get()
    assert provider.asked == 1
    monkeypatch.setattr(own_api, "FAILURE_MS", 0.0)
    own = OwnApi(provider.api)
    with pytest.raises(ProviderSilent):
        await own.get()
    provider.is_away = False
    assert (await own.get()).url == "http://127.0.0.1:9"
