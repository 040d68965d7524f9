"""Where versions are compiled: those of many templates beside everything else."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.storage.pipelines import pipeline_catalog as module
from hocket.coordinator.storage.pipelines.pipeline_catalog import LARGE_CHARS, Catalog
from support.run_player import python


async def nothing(*arguments: object) -> None:
    return


@pytest.mark.parametrize(("chars", "beside"), [(0, False), (LARGE_CHARS, True)])
async def test_a_large_version_is_compiled_once_beside_everything_else(
    monkeypatch: pytest.MonkeyPatch, chars: int, beside: bool
) -> None:
    threads: list[int] = []
    compile_pipeline = module.compile_pipeline

    def compiled(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.get_ident())
        return compile_pipeline(*arguments, **named)

    monkeypatch.setattr(module, "compile_pipeline", compiled)
    spec = {"pipeline": "p", "nodes": {"a": python(**{"with": {"text": "x" * chars}})}}

    async def stored(*arguments: object) -> str:
        return json.dumps(spec)

    store: Any = SimpleNamespace(spec=stored)
    durations: Any = SimpleNamespace(load=nothing)
    catalog = Catalog(store, durations)
    entry = await catalog.entry("t", "p", 3)
    assert (entry.version, list(entry.compiled.by_path)) == (3, ["a"])
    assert await catalog.entry("t", "p", 3) is entry
    assert [ident != threading.get_ident() for ident in threads] == [beside]
