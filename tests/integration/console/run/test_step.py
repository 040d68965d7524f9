"""A step in the console: a page of its own, or a part of the run's page."""

import json

from hocket.admin.console.rendering import MAX_SHOWN_CHARS
from support.administration.console_rig import (
    NOW,
    PAGE,
    RUN,
    add_run,
    add_step,
    asked_bare,
    cookie_of,
)
from support.rest_rig import Rest
from support.runs.rows import insert_step

STEP = f"/console/runs/{RUN}/steps/hello"


async def test_a_script_gets_the_part_that_a_page_shows_whole(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")

    page = (await rest.get(STEP, headers=PAGE)).body
    part = (await rest.get(STEP, headers={**PAGE, "X-Hocket-Part": "1"})).body

    assert "<html" in page
    assert "<html" not in part
    for shown in (page, part):
        assert '<h2 class="mono">hello</h2>' in shown
        assert "Earlier attempts" in shown


ASKS = {
    "pipeline": "asks",
    "nodes": {"hello": {"type": "approval", "prompt": "Send <i>it</i>?", "wait_ms": 60_000}},
}


async def test_an_approval_shows_its_question_while_it_waits_to_whoever_may_see_the_run(
    rest: Rest,
) -> None:
    assert (await rest.post("/v1/pipelines", ASKS)).status == 201
    await add_run(rest, pipeline="asks", status="running")
    await insert_step(rest.pool, RUN, "hello", NOW, type="approval", state="waiting")

    shown = (await rest.get(STEP, headers=PAGE)).body
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    bare = (await asked_bare(rest, "GET", STEP, headers=viewer)).body
    await rest.pool.execute("UPDATE hocket.step SET state = 'succeeded' WHERE run_id = $1", RUN)
    answered = (await rest.get(STEP, headers=PAGE)).body

    question = "<p>Send &lt;i&gt;it&lt;/i&gt;?</p>"
    assert shown.index(question) < shown.index("Approve")
    assert question in bare
    assert "Approve" not in bare
    assert question not in answered


async def test_a_step_that_succeeded_when_retried_shows_no_fault_of_its_own(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello")
    shown = (await rest.get(STEP, headers=PAGE)).body
    assert '<div class="error">' not in shown

    await rest.pool.execute("UPDATE hocket.step SET state = 'failed' WHERE run_id = $1", RUN)
    shown = (await rest.get(STEP, headers=PAGE)).body
    assert '<div class="error">' in shown


async def test_who_sees_no_content_sees_no_values_of_a_step(rest: Rest) -> None:
    await add_run(rest)
    await add_step(rest, "hello", "a secret answer")

    shown = (await rest.get(STEP, headers=PAGE)).body
    viewer = await cookie_of(rest, await rest.make_key("viewer"))
    hidden = (await asked_bare(rest, "GET", STEP, headers=viewer)).body

    assert "&#34;text&#34;: &#34;a secret answer&#34;" in shown
    assert "&#34;text&#34;" not in hidden
    assert "Your key may not read inputs and outputs." in hidden


async def test_a_step_with_an_input_too_long_to_edit_runs_again_with_the_pipelines_own(
    rest: Rest,
) -> None:
    await add_run(rest)
    await add_step(rest, "hello")
    short = (await rest.get(STEP, headers=PAGE)).body
    text = json.dumps({"text": "x" * MAX_SHOWN_CHARS})
    await rest.pool.execute("UPDATE hocket.step SET input = $2 WHERE run_id = $1", RUN, text)
    long = (await rest.get(STEP, headers=PAGE)).body

    for page in (short, long):
        assert f'<form data-api="POST /runs/{RUN}/rerun" data-follow>' in page
    assert '<textarea name="step_input"' in short
    assert "<textarea" not in long
    assert "too long to edit here" in long
    assert "more follows" in long


async def test_a_step_that_is_not_there_says_so(rest: Rest) -> None:
    await add_run(rest)
    assert (await rest.get(STEP, headers=PAGE)).status == 404
