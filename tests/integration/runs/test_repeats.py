"""Run operations on the whole platform: retry, re-run, cancel, and the version a run began with. What
was executed stands in a journal that the handlers keep."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import nats
import pytest

from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas import subjects
from support.journal_rig import BOUND_S, Rig, command, journal_rig, until


@pytest.fixture(scope="module")
async def rig() -> AsyncIterator[Rig]:
    async with journal_rig() as running:
        yield running


def node(handler: str, value: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """A node whose handler writes `value` into the journal."""
    given = {"v": value} | {name: f"{{{{ nodes.{name}.output.v }}}}" for name in needs}
    return {"type": "python", "handler": f"journal_handlers:{handler}", "with": given} | fields


async def repeat(rig: Rig, run_id: str, operation: str, **body: Any) -> dict[str, Any]:
    """Repeat a run and return the new one at its end."""
    receipt = await asyncio.to_thread(rig.api.post, f"/v1/runs/{run_id}/{operation}", body)
    return await rig.ended(receipt["run_id"])


async def refusal(rig: Rig, run_id: str, operation: str, **body: Any) -> str:
    with pytest.raises(ApiRefused) as refused:
        await asyncio.to_thread(rig.api.post, f"/v1/runs/{run_id}/{operation}", body)
    return refused.value.info().code


def counts(rig: Rig, *values: str) -> dict[str, int]:
    return {value: rig.calls(value) for value in values}


async def test_a_retry_pays_only_for_what_failed_and_what_comes_after(rig: Rig) -> None:
    items = {"map": {"over": "[0, 1, 2, 3, 4, 5, 6, 7]"}, "needs": ["first", "paid"]}
    await rig.apply("half", {
        "first": node("count", "half-first"),
        "paid": {"type": "llm", "model": "probe", "prompt": "?", "with": {}},
        "many": node("picky", "half-{{ item }}") | items,
        "last": node("count", "half-last", needs=["many"]),
    })  # fmt: skip
    (rig.folder / "bad-half-5").touch()
    failed = await rig.run("half", {})
    assert failed["status"] == "failed"
    (rig.folder / "bad-half-5").unlink()
    done = {
        step["input"]["v"]
        for step in (await rig.steps(failed["run_id"], values=True)).values()
        if step["role"] == "leaf" and step["state"] == "succeeded" and step["type"] == "python"
    }
    before = counts(rig, *(f"half-{n}" for n in range(8)), "half-first", "half-last")
    ended = await repeat(rig, failed["run_id"], "retry")
    assert ended["status"] == "succeeded"
    assert ended["origin"] == {
        "run_id": failed["run_id"], "operation": "retry", "from_step": None, "step_input": None,
    }  # fmt: skip
    after = counts(rig, *before)
    assert {value for value in before if after[value] == before[value]} == done
    assert "half-5" not in done
    assert len(done) > 0
    cost = await asyncio.to_thread(rig.api.get, f"/v1/runs/{ended['run_id']}/cost")
    steps = await rig.steps(ended["run_id"])
    assert (cost["calls"], Decimal(ended["spent_usd"])) == (0, 0)
    assert Decimal(
        (await asyncio.to_thread(rig.api.get, f"/v1/runs/{failed['run_id']}"))["spent_usd"]
    ) == Decimal("0.01")
    assert steps["first"]["source"] == {
        "kind": "run", "run_id": failed["run_id"], "step": "first", "saved_usd": None,
    }  # fmt: skip


async def test_the_same_request_is_the_same_run_and_a_new_key_is_a_new_one(rig: Rig) -> None:
    await rig.apply("keyed", {"a": node("picky", "keyed")})
    (rig.folder / "bad-keyed").touch()
    failed = await rig.run("keyed", {})
    path = f"/v1/runs/{failed['run_id']}/retry"
    receipts = await asyncio.gather(*(asyncio.to_thread(rig.api.post, path) for _ in range(5)))
    assert len({receipt["run_id"] for receipt in receipts}) == 1
    other = await asyncio.to_thread(rig.api.post, path, {"idempotency_key": "another"})
    assert other["run_id"] != receipts[0]["run_id"]
    for receipt in (receipts[0], other):
        await rig.ended(receipt["run_id"])
    assert rig.calls("keyed") == 3


async def test_a_retry_of_a_run_whose_id_a_deleted_one_had_is_not_that_ones(rig: Rig) -> None:
    await rig.apply("reused", {"a": node("picky", "reused")})
    (rig.folder / "bad-reused").touch()
    failed = await rig.run("reused", {})
    former = await repeat(rig, failed["run_id"], "retry")
    later = "UPDATE hocket.run SET accepted_at = accepted_at + interval '1 hour' WHERE run_id = $1"
    await rig.sql(later, failed["run_id"])
    new = await repeat(rig, failed["run_id"], "retry")
    assert new["run_id"] != former["run_id"]
    assert rig.calls("reused") == 3


async def test_a_rerun_from_a_step_with_an_edited_input(rig: Rig) -> None:
    await rig.apply("edited", {
        "a": node("count", "edited-a"),
        "b": node("count", "{{ nodes.a.output.v }}-b"),
        "c": node("count", "{{ nodes.b.output.v }}-c"),
        "side": node("count", "edited-side"),
    }, output="{{ nodes.c.output.v }}")  # fmt: skip
    first = await rig.run("edited", {})
    assert first["output"] == "edited-a-b-c"
    ended = await repeat(rig, first["run_id"], "rerun", from_step="b", step_input={"v": "mine"})
    assert ended["output"] == "mine-c"
    assert counts(rig, "edited-a", "edited-a-b", "edited-side", "mine", "mine-c") == {
        "edited-a": 1, "edited-a-b": 1, "edited-side": 1, "mine": 1, "mine-c": 1,
    }  # fmt: skip


async def test_a_retry_of_a_rerun_keeps_the_step_with_the_edited_input(rig: Rig) -> None:
    await rig.apply("kept-edit", {
        "b": node("count", "kept-edit-b"), "c": node("picky", "{{ nodes.b.output.v }}-c"),
    })  # fmt: skip
    first = await rig.run("kept-edit", {})
    (rig.folder / "bad-my-edit-c").touch()
    edited = {"from_step": "b", "step_input": {"v": "my-edit"}}
    failed = await repeat(rig, first["run_id"], "rerun", **edited)
    assert failed["status"] == "failed"
    (rig.folder / "bad-my-edit-c").unlink()
    ended = await repeat(rig, failed["run_id"], "retry")
    assert ended["output"] == {"v": "my-edit-c"}
    assert ended["origin"] == {"run_id": failed["run_id"], "operation": "retry"} | edited
    assert counts(rig, "kept-edit-b", "my-edit") == {"kept-edit-b": 1, "my-edit": 1}


async def test_a_rerun_with_another_input_computes_what_reads_it(rig: Rig) -> None:
    await rig.apply("reader", {
        "x": node("count", "{{ input.x }}"), "y": node("count", "{{ input.y }}"),
    })  # fmt: skip
    first = await rig.run("reader", {"x": "rx", "y": "ry"})
    ended = await repeat(rig, first["run_id"], "rerun", input={"x": "rx", "y": "ry2"})
    assert ended["output"] == {"x": {"v": "rx"}, "y": {"v": "ry2"}}
    assert counts(rig, "rx", "ry", "ry2") == {"rx": 1, "ry": 1, "ry2": 1}


async def test_a_run_keeps_its_version_and_a_rerun_takes_another(rig: Rig) -> None:
    await rig.apply("versions", {
        "wait": node("gated", "v1-gate"), "end": node("count", "v1-end", needs=["wait"]),
    })  # fmt: skip
    run_id = await rig.submit("versions", {})
    await until(lambda: _called(rig, "v1-gate"))
    await rig.apply("versions", {
        "wait": node("gated", "v1-gate"), "end": node("count", "v2-end", needs=["wait"]),
    })  # fmt: skip
    rig.open_gate("v1-gate")
    ended = await rig.ended(run_id)
    assert (ended["version"], counts(rig, "v1-end", "v2-end")) == (1, {"v1-end": 1, "v2-end": 0})
    same = await repeat(rig, run_id, "rerun", from_step="end")
    assert (same["version"], counts(rig, "v1-end", "v2-end")) == (1, {"v1-end": 2, "v2-end": 0})
    newer = await repeat(rig, run_id, "rerun", version=2)
    assert (newer["version"], newer["status"]) == (2, "succeeded")
    assert counts(rig, "v1-gate", "v1-end", "v2-end") == {"v1-gate": 1, "v1-end": 2, "v2-end": 1}


async def test_a_retry_goes_on_inside_a_sub_run(rig: Rig) -> None:
    await rig.apply("inner", {
        "one": node("count", "inner-one"), "two": node("picky", "inner-two", "one"),
    })  # fmt: skip
    await rig.apply("outer", {
        "pre": node("count", "outer-pre"),
        "call": {"type": "pipeline", "pipeline": "inner", "needs": ["pre"], "with": {}},
    })  # fmt: skip
    (rig.folder / "bad-inner-two").touch()
    failed = await rig.run("outer", {})
    assert failed["status"] == "failed"
    (rig.folder / "bad-inner-two").unlink()
    ended = await repeat(rig, failed["run_id"], "retry")
    assert ended["status"] == "succeeded"
    assert counts(rig, "outer-pre", "inner-one", "inner-two") == {
        "outer-pre": 1, "inner-one": 1, "inner-two": 2,
    }  # fmt: skip


async def test_a_new_owner_takes_over_from_the_origin_too(rig: Rig) -> None:
    gate = node("gated", "moved-gate", needs=["a"])
    gate["with"]["n"] = "{{ input.n }}"
    await rig.apply("moved", {
        "a": node("count", "moved-a"),
        "gate": gate,
        "b": node("count", "moved-b", needs=["gate"]),
        "c": node("picky", "moved-c", needs=["b"]),
    })  # fmt: skip
    (rig.folder / "bad-moved-c").touch()
    rig.open_gate("moved-gate")
    failed = await rig.run("moved", {"n": 1})
    (rig.folder / "bad-moved-c").unlink()
    (rig.folder / "gate-moved-gate").unlink()
    path = f"/v1/runs/{failed['run_id']}/rerun"
    receipt = await asyncio.to_thread(rig.api.post, path, {"input": {"n": 2}})
    await until(lambda: _called(rig, "moved-gate", 2))
    await rig.platform.kill("coordinator")
    rig.open_gate("moved-gate")
    assert (await rig.ended(receipt["run_id"]))["status"] == "succeeded"
    assert counts(rig, "moved-a", "moved-gate", "moved-b", "moved-c") == {
        "moved-a": 1, "moved-gate": 2, "moved-b": 1, "moved-c": 2,
    }  # fmt: skip


async def test_what_cannot_be_repeated_is_refused(rig: Rig) -> None:
    await rig.apply("refused", {"a": node("count", "refused-a"), "w": node("gated", "refused-w")})
    open_run = await rig.submit("refused", {})
    await until(lambda: _called(rig, "refused-w"))
    assert await refusal(rig, open_run, "retry") == "run_open"
    assert await refusal(rig, open_run, "rerun") == "run_open"
    rig.open_gate("refused-w")
    await rig.ended(open_run)
    assert await refusal(rig, open_run, "retry") == "nothing_to_retry"
    assert await refusal(rig, open_run, "rerun", from_step="nowhere") == "invalid_input"
    assert await refusal(rig, open_run, "rerun", step_input={}) == "invalid_input"
    assert await refusal(rig, open_run, "rerun", version=9) == "invalid_input"
    assert await refusal(rig, "r" + 24 * "0", "retry") == "run_unknown"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Hocket-Origin-Run": "x"}, "invalid_input"),
        ({"Hocket-Origin-Run": "r" + 24 * "0", "Hocket-Operation": "retry"}, "run_unknown"),
        ({"Hocket-Operation": "again"}, "invalid_input"),
        ({"Hocket-Operation": "rerun", "Hocket-From-Step": "nowhere"}, "invalid_input"),
        ({"Hocket-Operation": "retry", "Hocket-From-Step": "a"}, "invalid_input"),
        (
            {"Hocket-Operation": "rerun", "Hocket-From-Step": "a", "Hocket-Step-Input": "[1]"},
            "invalid_input",
        ),
    ],
)
async def test_intake_refuses_what_the_doors_refuse(
    rig: Rig, headers: dict[str, str], code: str
) -> None:
    await rig.apply("door", {"a": node("picky", "door")})
    (rig.folder / "bad-door").touch()
    failed = await rig.run("door", {})
    said = {"Hocket-Origin-Run": failed["run_id"]} | headers
    assert (await published(rig, "door", said))["error"]["code"] == code


async def test_a_retry_by_a_bare_message_takes_the_old_input(rig: Rig) -> None:
    schema = {"type": "object", "required": ["v"]}
    await rig.apply("bare", {"a": node("picky", "{{ input.v }}")}, input=schema)
    (rig.folder / "bad-bare-v").touch()
    failed = await rig.run("bare", {"v": "bare-v"})
    (rig.folder / "bad-bare-v").unlink()
    said = {"Hocket-Origin-Run": failed["run_id"], "Hocket-Operation": "retry"}
    end = await published(rig, "bare", said)
    assert (end["status"], end["output"]) == ("succeeded", {"v": "bare-v"})


async def test_a_cancel_reaches_steps_in_flight_here_and_in_sub_runs(rig: Rig) -> None:
    await rig.apply("held-below", {"deep": node("held", "deep")})
    await rig.apply("held", {
        "flat": node("held", "flat"),
        "below": {"type": "pipeline", "pipeline": "held-below", "with": {}},
    })  # fmt: skip
    run_id = await rig.submit("held", {})
    await until(lambda: _called(rig, "flat"))
    await until(lambda: _called(rig, "deep"))
    await asyncio.to_thread(rig.api.post, f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
    assert (await rig.ended(run_id))["status"] == "cancelled"
    await until(lambda: _called(rig, "flat-stopped"))
    await until(lambda: _called(rig, "deep-stopped"))
    rows = await rig.sql("SELECT status FROM hocket.run WHERE parent ->> 'run_id' = $1", run_id)
    assert [row["status"] for row in rows] == ["cancelled"]
    again = await asyncio.to_thread(rig.api.post, f"/v1/runs/{run_id}/retry")
    await until(lambda: _called(rig, "deep", 2))
    await asyncio.to_thread(rig.api.post, f"/v1/runs/{again['run_id']}/cancel", {})
    assert (await rig.ended(again["run_id"]))["status"] == "cancelled"


async def test_the_command_line_retries_and_runs_again(rig: Rig) -> None:
    await rig.apply("by-hand", {"a": node("count", "hand-a"), "b": node("picky", "hand-b", "a")})
    (rig.folder / "bad-hand-b").touch()
    failed = await rig.run("by-hand", {})
    (rig.folder / "bad-hand-b").unlink()
    shown = await command(rig, "runs", "retry", failed["run_id"], "--wait")
    assert f"retry of {failed['run_id']}" in shown
    assert "kept" in shown
    retried = json.loads(await command(rig, "runs", "retry", failed["run_id"], "--wait", "--json"))
    ended = json.loads(
        await command(
            rig, "runs", "rerun", retried["run_id"], "--from", "b", "--step-input", '{"v": "hand-c"}',
            "--wait", "--json",
        )
    )  # fmt: skip
    assert ended["status"] == "succeeded"
    assert counts(rig, "hand-a", "hand-b", "hand-c") == {"hand-a": 1, "hand-b": 2, "hand-c": 1}


async def published(rig: Rig, pipeline: str, headers: dict[str, str]) -> Any:
    """Publish a bare task and return the answer."""
    client = await nats.connect(rig.platform.nats_url)
    try:
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox, max_msgs=1)
        subject = subjects.task("default", pipeline)
        await client.jetstream().publish(
            subject, b"{}", headers=headers | {"Hocket-Reply-To": inbox}
        )
        return json.loads((await answers.next_msg(timeout=BOUND_S)).data)
    finally:
        await client.close()


async def _called(rig: Rig, value: str, times: int = 1) -> bool:
    return rig.calls(value) >= times
