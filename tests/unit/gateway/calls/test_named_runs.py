"""A call over HTTP that names a run of ours has the pipeline of that run in all that is made of it."""

from decimal import Decimal
from typing import Any, cast

import pytest

from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.experiments.experiments import Experiments
from hocket.schemas.messages import Attribution, CallOpened, CallRequest, SpentAsked, SpentTold
from support.gateway.routing_rig import Rig, Said, backend, breaks, says

RUN = "r" + 24 * "a"
UNKNOWN = "r" + 24 * "b"
MODELS = {"writer": {"backends": [backend("a")]}}
CHAT = {"path": "chat/completions", "body": {"messages": [{"role": "user", "content": "?"}]}}


class Ledger:
    """Knows one run."""

    async def ask_patiently(self, asked: SpentAsked) -> SpentTold:
        is_known = asked.run_id == RUN
        pipeline = "report" if is_known else None
        return SpentTold(spent_usd=Decimal(0), run_known=is_known, pipeline=pipeline)


class Trials:
    """Experiments that concern no call; they keep whose calls they see."""

    def __init__(self) -> None:
        self.pipelines: list[str | None] = []

    def assign(self, request: CallRequest) -> None:
        self.pipelines.append(request.attribution.pipeline)

    def use(self, *_: object) -> None:
        """Do nothing."""


class Platform(Rig):
    """A rig with a ledger and experiments, which keeps the announced calls."""

    def __init__(self, **backends: Any) -> None:
        super().__init__(MODELS, **backends)
        self.announced: list[CallOpened] = []
        self.trials = Trials()
        self.calls: Calls = self.calls_with(cast(Experiments, self.trials))
        self.calls.spending.runs._ledger = Ledger()  # type: ignore[assignment]

    async def open(self, opened: CallOpened) -> Said:
        self.announced.append(opened)
        return await super().open(opened)


async def made(rig: Platform, *, run_id: str, openai: Any = CHAT, **fields: Any) -> None:
    who = Attribution(run_id=run_id, pipeline="other", version=7)
    await rig.make(attribution=who, messages=(), openai=openai, **fields)


@pytest.mark.parametrize(
    ("run_id", "openai", "whose"),
    [
        (RUN, CHAT, ("report", None)),
        ("trip-42", CHAT, ("other", 7)),
        (RUN, None, ("other", 7)),
    ],
)
async def test_the_experiments_announcements_and_records_of_a_call_are_those_of_its_run(
    run_id: str, openai: Any, whose: tuple[str, int | None]
) -> None:
    rig = Platform(a=says("tidal"))
    await made(rig, run_id=run_id, openai=openai)
    said = [rig.announced[0].attribution, rig.records[0].attribution]
    assert [(who.pipeline, who.version) for who in said] == [whose] * 2
    assert rig.trials.pipelines == [whose[0]]


async def test_a_refusal_is_that_of_the_pipeline_of_the_run() -> None:
    rig = Platform(a=breaks())
    await made(rig, run_id=RUN, model="reader")
    assert [one.attribution.pipeline for one in rig.refused] == ["report"]


async def test_a_call_that_names_an_unknown_run_keeps_the_pipeline_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hocket.gateway.accounting.run_budgets.PAUSES_S", (0.0,))
    rig = Platform(a=says("tidal"))
    await made(rig, run_id=UNKNOWN)
    assert [one.attribution.pipeline for one in rig.records] == ["other"]
