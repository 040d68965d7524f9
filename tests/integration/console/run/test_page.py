"""The page of a run, and its views."""

import html
import json
import re

import pytest

from hocket.admin.console.rendering import MAX_SHOWN_CHARS
from hocket.admin.console.run.page import View
from hocket.schemas import journals, subjects
from hocket.schemas.journals import JournalEntry, JournalWritten
from hocket.schemas.messages import encoded
from support.administration.console_rig import NOW, PAGE, RUN, add_run, add_step
from support.rest_rig import Rest
from support.runs.rows import insert_call


@pytest.mark.parametrize("view", list(View))
async def test_each_view_is_marked_as_the_one_that_is_shown(rest: Rest, view: View) -> None:
    await add_run(rest)
    page = (await rest.get(f"/console/runs/{RUN}?view={view}", headers=PAGE)).body
    for one in View:
        marked = f'aria-current="page">{one.label}</a>' in page
        assert marked == (one is view), one


async def test_a_view_that_there_is_not_is_refused(rest: Rest) -> None:
    await add_run(rest)
    answer = await rest.get(f"/console/runs/{RUN}?view=none", headers=PAGE)
    assert answer.status == 422
    assert "view" in answer.body


async def test_the_steps_of_a_long_run_come_in_pages(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.run.views.STEP_ROWS", 2)
    await add_run(rest)
    for number in range(3):
        await add_step(rest, f"hello[{number}]")

    first = (await rest.get(f"/console/runs/{RUN}?view=steps", headers=PAGE)).body
    (link,) = re.findall(r'href="(\?[^"]*)" rel="next"', first)
    second = (await rest.get(f"/console/runs/{RUN}{html.unescape(link)}", headers=PAGE)).body

    shown = [[f"hello[{number}]" in page for number in range(3)] for page in (first, second)]
    assert shown == [[True, True, False], [False, False, True]]


async def test_what_is_too_long_for_a_page_is_a_click_away(rest: Rest) -> None:
    text = "x" * (MAX_SHOWN_CHARS + 50)
    await add_run(rest, text=text)

    page = (await rest.get(f"/console/runs/{RUN}?view=values", headers=PAGE)).body
    link = re.search(r'href="([^"]*)">The whole run as JSON', page)

    assert "more follows" in page
    assert link is not None
    assert (await rest.get(link[1])).body["output"] == text


async def test_a_run_with_an_input_too_long_to_edit_is_not_sent_a_part_of_it(rest: Rest) -> None:
    await add_run(rest)
    short = (await rest.get(f"/console/runs/{RUN}", headers=PAGE)).body
    text = json.dumps({"text": "x" * MAX_SHOWN_CHARS})
    await rest.pool.execute("UPDATE hocket.run SET input = $2 WHERE run_id = $1", RUN, text)
    long = (await rest.get(f"/console/runs/{RUN}", headers=PAGE)).body

    assert '<form data-api="POST /runs" data-follow>' in short
    assert '<textarea name="input"' in short
    assert 'data-api="POST /runs"' not in long
    assert "<textarea" not in long
    assert "Its input is too long for this form." in long
    assert "hocket run greet --version 1 --input @FILE" in long


async def test_a_long_journal_is_shown_in_part_and_says_how_long_it_is(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_run(rest)
    entry = JournalEntry(ordinal=1, name="charge", value=1, started_at_ms=1e12, finished_at_ms=1e12)
    subject = subjects.journal(RUN, journals.name_of(RUN, "hello"))
    for number in range(2):
        written = JournalWritten(
            run_id=RUN, step="hello", attempt=1, number=number, entries=(entry,) * 600
        )
        await rest.bus.publish(subject, encoded(written))

    async def shown() -> tuple[int, str]:
        page = (await rest.get(f"/console/runs/{RUN}?view=journal", headers=PAGE)).body
        rest_of_it = page.partition('aria-label="Journal"')[2]
        return rest_of_it.count("<tr>") - 1, re.sub(r"<[^>]+>", "", rest_of_it)

    rows, text = await shown()
    assert rows == 1_000
    assert "These are the first 1,000 of 1,200 entries; " in text
    assert f"GET /v1/runs/{RUN}/journal returns all of them." in text

    monkeypatch.setattr("hocket.admin.runs.step_journals.MAX_SHOWN_ENTRIES", 1_100)
    rows, text = await shown()
    assert rows == 1_000
    assert "More entries exist than are shown. These are the first 1,000; " in text
    assert f"GET /v1/runs/{RUN}/journal returns the first 1,100." in text

    monkeypatch.setattr("hocket.admin.runs.step_journals.MAX_SHOWN_ENTRIES", 5_000)
    monkeypatch.setattr("hocket.admin.console.run.page.JOURNAL_ROWS", 1_200)
    rows, text = await shown()
    assert (rows, "entries" in text) == (1_200, False)


async def test_a_label_leads_to_the_runs_that_have_it(rest: Rest) -> None:
    await add_run(rest, labels={"customer": "a,b %41 & c"})

    for path in (f"/console/runs/{RUN}", "/console/runs"):
        page = (await rest.get(path, headers=PAGE)).body
        link = re.search(r'class="tag" href="([^"]*)">customer=a,b %41 &amp; c</a>', page)
        assert link is not None, path
        found = await rest.get(html.unescape(link[1]), headers=PAGE)
        assert (found.status, RUN in found.body) == (200, True), path


async def test_what_sub_runs_spent_counts_in_a_run_s_cost_and_budget(rest: Rest) -> None:
    await add_run(rest, cost=3, budget=4)
    await insert_call(rest.pool, "c1", NOW, run_id=RUN, cost=1)

    page = (await rest.get(f"/console/runs/{RUN}", headers=PAGE)).body
    compared = (await rest.get(f"/console/compare?a={RUN}&b={RUN}", headers=PAGE)).body

    assert "<b>$3.00</b>" in page
    assert "75\N{NO-BREAK SPACE}% of the budget spent" in page
    assert compared.count("<td>$3.00</td>") == 2
