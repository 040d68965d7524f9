"""A platform on which something happened, whose console a browser opens."""

from collections.abc import AsyncIterator

import pytest

from support.administration.console_scene import set_up
from support.rest_rig import Rest, running_rest


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        await set_up(rest)
        yield rest


@pytest.fixture
async def below(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    """The same below a path of a proxy."""
    async with running_rest(nats_url, database_url, root_path="/hocket") as rest:
        await set_up(rest)
        yield rest
