"""The registry starts with what is stored, as far as this release can read it."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from hocket.admin.node_types.registry import NodeTypes
from hocket.schemas.messages import TypeDescribed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Stored:
    """A database with these descriptions, which says when they were read."""

    def __init__(self, *described: dict[str, Any]) -> None:
        self.was_read = asyncio.Event()
        self._rows = [
            {"described": json.dumps(one), "first_seen_at": NOW, "last_seen_at": NOW}
            for one in described
        ]

    async def fetch(self, _query: str, *, timeout: float) -> list[dict[str, Any]]:
        assert timeout
        self.was_read.set()
        return self._rows


class Bus:
    """Nobody says anything."""

    connected = False
    on_reconnect: list[object] = []

    async def subscribe(self, *_values: object) -> None:
        return

    def publish_nowait(self, *_values: object) -> None:
        return


def described(name: str, **more: Any) -> dict[str, Any]:
    return {"worker": "", "type": name, "version": "1", **more}


async def test_a_stored_type_that_cannot_be_read_hides_no_other_and_stops_nothing() -> None:
    stored = Stored(
        described("crm.lookup"),
        described("crm.broken", config={"type": 4711}, effects="external"),
        {"of": "another release"},
        described("crm.score"),
    )
    types = NodeTypes()
    running = asyncio.create_task(types.run(Bus(), stored))  # type: ignore[arg-type]
    await asyncio.wait_for(stored.was_read.wait(), 10)
    await asyncio.wait({running}, timeout=0)
    assert types.types.names() == ["crm.broken", "crm.lookup", "crm.score"]
    broken, lookup = (types.types.current(name) for name in ("crm.broken", "crm.lookup"))
    assert broken is not None
    assert (broken.described.config, broken.described.effects) == (None, "external")
    assert len(broken.described.faults) == 1
    told = TypeDescribed.model_validate(described("crm.lookup") | {"worker": "w"})
    assert lookup is not None
    assert not types.types.is_news(told)
    assert not running.done()
    running.cancel()
