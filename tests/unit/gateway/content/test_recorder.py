"""Content that waits: as much as is kept of it, and no more."""

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.content import recorder as recorders
from hocket.gateway.content.recorder import ContentRecorder
from hocket.gateway.core.content.policy import read
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.messages import Attribution, CallReply, CallRequest, OpenAIBody
from hocket.schemas.tracing.content import ContentBatch


class Ledger:
    """A ledger that does not answer; it sees how much is held meanwhile."""

    def __init__(self) -> None:
        self.recorder: ContentRecorder | None = None
        self.held_bytes: list[int] = []
        self.batches: list[ContentBatch] = []

    async def request(self, _: str, body: bytes, **__: Any) -> None:
        assert self.recorder is not None
        self.held_bytes.append(self.recorder._bytes)
        self.batches.append(ContentBatch.model_validate_json(body))
        raise BusUnavailable(reason="nobody")


def recorded(ledger: Ledger, keep: str = "full") -> tuple[ContentRecorder, CollectorRegistry]:
    registry = CollectorRegistry()
    policy = read({"keep": keep}, {})
    made = ContentRecorder(cast(Bus, ledger), lambda: policy, registry)
    ledger.recorder = made
    return made, registry


def call(content: Any, number: int = 1) -> tuple[CallRequest, CallReply]:
    body = {
        "model": "w",
        "messages": [{"role": "user", "content": content}],
        "tools": ["x" * 10**6],
    }
    request = CallRequest(
        call_id=f"c{number}",
        model="w",
        openai=OpenAIBody(path="chat/completions", body=body),
        deadline_at_ms=1.0,
    )
    return request, CallReply(call_id=request.call_id, text="a cat", backend="b")


def picture() -> list[dict[str, Any]]:
    url = "data:image/png;base64," + "A" * 1_000_000
    return [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": url}}]


def test_of_a_call_with_a_picture_only_what_may_be_kept_is_held_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorders, "MAX_WAITING_BYTES", 1_000_000)
    made, registry = recorded(Ledger())
    for number in range(20):
        made.record(*call(picture(), number))
    dropped = registry.get_sample_value("hocket_content_dropped_total")
    assert dropped is not None
    assert 0 < dropped < 10  # more than half of them fit, of 1 MB each
    assert 500_000 < made._bytes <= 1_000_000


def test_many_small_values_count_with_the_memory_that_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorders, "MAX_WAITING_BYTES", 5_000_000)
    made, registry = recorded(Ledger())
    for number in range(10):
        made.record(*call([[] for _ in range(100_000)], number))
    assert registry.get_sample_value("hocket_content_dropped_total") == 10 - len(made._waiting)
    assert len(made._waiting) < 5


async def test_what_is_on_its_way_counts_until_the_ledger_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorders, "FLUSH_S", 0.01)
    ledger = Ledger()
    made, _ = recorded(ledger)
    async with made.running():
        made.record(*call(picture()))
    assert len(ledger.held_bytes) == recorders.TRIES
    assert min(ledger.held_bytes) > 60_000
    assert made._bytes == 0
    assert ledger.batches[0].calls[0].is_cut


async def test_content_that_takes_too_long_to_mask_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorders, "FLUSH_S", 0.01)
    monkeypatch.setattr(recorders, "MASK_S", 0.0)
    ledger = Ledger()
    made, registry = recorded(ledger, "redacted")
    async with made.running():
        made.record(*call("1 " * 30_000))
    assert not ledger.batches
    assert registry.get_sample_value("hocket_content_dropped_total") == 1


RUN = "r" + 24 * "a"
SECTION = {"keep": "full", "pipelines": {"secret": "none", "names": "redacted"}}
OPEN_ONLY = {"keep": "none", "pipelines": {"open": "full", "names": "redacted"}}


@pytest.mark.parametrize(
    ("section", "run_id", "named", "pipeline", "kept"),
    [
        (SECTION, RUN, None, "secret", None),
        (SECTION, RUN, "open", "secret", None),
        (SECTION, RUN, "secret", "open", None),
        (SECTION, RUN, "names", "open", ("open", "redacted")),
        (SECTION, RUN, "open", "names", ("names", "redacted")),
        (SECTION, RUN, "open", None, None),
        (SECTION, "trip-42", "open", None, ("open", "full")),
        (SECTION, "trip-42", "secret", None, None),
        (SECTION, None, "open", None, ("open", "full")),
        (OPEN_ONLY, RUN, None, "open", ("open", "full")),
        (OPEN_ONLY, RUN, "open", "open", ("open", "full")),
        (OPEN_ONLY, RUN, None, "names", ("names", "redacted")),
        (OPEN_ONLY, RUN, None, "other", None),
        (OPEN_ONLY, RUN, "other", "open", None),
        (OPEN_ONLY, RUN, None, None, None),
    ],
)
def test_a_call_over_http_is_kept_as_its_runs_pipeline_says_or_the_one_it_names_if_stricter(
    section: dict[str, Any],
    run_id: str | None,
    named: str | None,
    pipeline: str | None,
    kept: tuple[str, str] | None,
) -> None:
    policy = read(section, {})
    made = ContentRecorder(
        cast(Bus, Ledger()),
        lambda: policy,
        CollectorRegistry(),
        pipeline_of=lambda _: pipeline,
    )
    request, reply = call("How often?")
    who = Attribution(run_id=run_id, pipeline=named)
    made.record(request.model_copy(update={"attribution": who}), reply)
    found = [(one.attribution.pipeline, one.kept) for one in made._waiting]
    assert found == ([] if kept is None else [kept])


def test_a_call_of_a_worker_is_kept_as_the_pipeline_says_that_it_carries() -> None:
    policy = read(SECTION, {})
    made = ContentRecorder(cast(Bus, Ledger()), lambda: policy, CollectorRegistry())
    who = Attribution(run_id=RUN, pipeline="open")
    request, reply = call("How often?")
    made.record(request.model_copy(update={"openai": None, "attribution": who}), reply)
    assert [one.kept for one in made._waiting] == ["full"]
