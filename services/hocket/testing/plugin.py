"""The pytest plugin: the fixture `hocket_play` makes a Play, and a failed test shows its trace."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hocket.testing.play import Play

_TRACES = pytest.StashKey[list[str]]()


@pytest.fixture
def hocket_play(request: pytest.FixtureRequest) -> Callable[..., "Play"]:
    """Return a function that makes a Play: `hocket_play("order.yaml", worker=orders.worker)`.

    Files are looked up beside the test."""
    from hocket.testing.play import Play

    traces: list[str] = []
    request.node.stash[_TRACES] = traces

    class TracedPlay(Play):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            played = super().run(*args, **kwargs)
            traces.append(str(played))
            return played

        def recorded(self, file: Any, **options: Any) -> None:
            super().recorded(request.path.parent / file, **options)

    def make(pipeline: Any, **options: Any) -> Play:
        others = options.pop("pipelines", ())
        options["pipelines"] = [_beside(request, one) for one in others]
        return TracedPlay(_beside(request, pipeline), **options)

    return make


def _beside(request: pytest.FixtureRequest, source: Any) -> Any:
    """Return a pipeline, or one with its version; a file's name is looked up beside the test."""
    if isinstance(source, tuple):
        return (_beside(request, source[0]), *source[1:])
    return request.path.parent / source if isinstance(source, str) else source


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add the traces of a test's plays to the report of its failure."""
    report = yield
    traces = item.stash.get(_TRACES, None)
    if report.when == "call" and report.failed and traces:
        for number, trace in enumerate(traces, 1):
            report.sections.append((f"hocket play {number}", trace))
    return report
