"""Sub-runs of a play take the version that they name, of those that the test gives."""

from pathlib import Path
from typing import Any

import pytest

from hocket.testing import NotPlayable, Play


def inner(said: str, name: str = "inner") -> dict[str, Any]:
    node = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"value": said}}
    return {"pipeline": name, "nodes": {"a": node}, "output": "{{ nodes.a.output.value }}"}


def outer(**fields: Any) -> dict[str, Any]:
    node = {"type": "pipeline", "pipeline": "inner", **fields}
    return {"pipeline": "outer", "nodes": {"a": node}, "output": "{{ nodes.a.output }}"}


def test_a_sub_run_takes_the_version_that_its_node_names_and_otherwise_the_newest() -> None:
    pipelines: list[Any] = [inner("first"), inner("second"), (inner("seventh"), 7)]
    for version, said in ((1, "first"), (2, "second"), (7, "seventh")):
        assert Play(outer(version=version), pipelines=pipelines).run().output == said
    assert Play(outer(), pipelines=pipelines).run().output == "seventh"


@pytest.mark.parametrize("pipelines", [[inner("only")], [(inner("fourth"), 4)]])
def test_a_version_that_the_test_does_not_give_fails_the_step_as_on_the_platform(
    pipelines: list[Any],
) -> None:
    played = Play(outer(version=99), pipelines=pipelines).run()
    assert (played.status, played.error and played.error.code) == ("failed", "invalid_input")
    assert played.error is not None
    assert played.error.field == "version"
    assert "pipeline `inner` has no version 99" in played.error.message
    assert "`pipelines=[(FILE, 99)]`" in played.error.message


def test_a_pipeline_that_the_test_does_not_give_is_unknown() -> None:
    played = Play(outer()).run()
    assert played.error is not None
    assert played.error.code == "pipeline_unknown"


@pytest.mark.parametrize(
    ("versions", "said"), [((2, 2), "version 2 is given twice"), ((0,), "version 0 is below 1")]
)
def test_versions_that_cannot_be_are_errors_of_the_test(
    versions: tuple[int, ...], said: str
) -> None:
    with pytest.raises(NotPlayable, match=said):
        Play(outer(), pipelines=[(inner("x"), version) for version in versions])


def test_the_fixture_finds_files_with_a_version_beside_the_test(
    hocket_play: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = tmp_path / "inner.yaml"
    file.write_text("{pipeline: inner, nodes: {a: {type: signal, signal: go}}}")
    beside = str(Path(*[".."] * (len(request.path.parents) - 1), *file.parts[1:]))
    play = hocket_play(outer(version=3), pipelines=[(beside, 3)])
    play.signals("go", "gone")
    assert play.run().status == "succeeded"
