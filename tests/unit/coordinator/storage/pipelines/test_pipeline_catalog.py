"""Where versions are compiled: those of many templates beside everything else."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.storage.pipelines import pipeline_catalog as module
from hocket.coordinator.storage.pipelines.pipeline_catalog import (
    LARGE_CHARS,
    RELEASE_FOR_MS,
    Catalog,
)
from hocket.coordinator.storage.pipelines.release import Release
from hocket.schemas.errors import HocketError
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


async def test_a_choice_is_as_old_as_the_question_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are answered RELEASE_FOR_MS after their commit: what was read before it is gone then,
    however long its answer was on the way."""
    at_ms, asked = 0.0, 0

    async def released(*arguments: object) -> Release:
        nonlocal at_ms, asked
        asked += 1
        at_ms += 0.6 * RELEASE_FOR_MS
        return Release(asked)

    async def stored(*arguments: object) -> str:
        return json.dumps({"pipeline": "p", "nodes": {"a": python()}})

    monkeypatch.setattr(module, "monotonic_ms", lambda: at_ms)
    store: Any = SimpleNamespace(spec=stored, release=released)
    durations: Any = SimpleNamespace(load=nothing)
    catalog = Catalog(store, durations)
    taken = []
    for later_ms in (0.0, 0.3 * RELEASE_FOR_MS, 0.2 * RELEASE_FOR_MS):
        at_ms += later_ms
        taken.append((await catalog.entry_for("t", "p", None, "r")).version)
    assert taken == [1, 1, 2]


@pytest.mark.parametrize(
    ("release", "code", "said"),
    [
        (Release(2), "invalid_input", "`version` is not valid: pipeline `p` has no version 7"),
        (None, "pipeline_unknown", "There is no pipeline `p` for tenant `t`"),
    ],
)
async def test_a_version_that_there_is_not_is_told_apart_from_a_pipeline_that_there_is_not(
    release: Release | None, code: str, said: str
) -> None:
    async def released(*arguments: object) -> Release | None:
        return release

    store: Any = SimpleNamespace(spec=nothing, release=released)
    durations: Any = SimpleNamespace(load=nothing)
    with pytest.raises(HocketError) as refused:
        await Catalog(store, durations).entry("t", "p", 7)
    assert refused.value.code == code
    assert said in str(refused.value)
