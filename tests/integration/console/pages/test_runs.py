"""The list of runs: its filters, its search, its chart, its rows."""

import html
import re
from datetime import timedelta

import pytest

from hocket.admin.pages import cursor
from support.administration.console_rig import CHILD, NOW, PAGE, RUN, add_run, asked_bare, cookie_of
from support.rest_rig import Answer, Rest


async def test_filters_are_an_address(rest: Rest) -> None:
    await add_run(rest, took_ms=1_000)
    await add_run(rest, CHILD, took_ms=9_000, cost=3)

    async def shown(query: str) -> set[str]:
        page = (await rest.get(f"/console/runs?{query}", headers=PAGE)).body
        return {run_id for run_id in (RUN, CHILD) if f"/console/runs/{run_id}" in page}

    assert await shown("") == {RUN, CHILD}
    assert await shown("missed=true") == {CHILD}
    assert await shown("min_cost=2.5") == {CHILD}
    assert await shown("status=failed") == set()
    assert await shown("pipeline=other") == set()
    earlier = (NOW - timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    assert await shown(f"since={earlier}&until={earlier}") == set()


COSTS = (
    "much", "NaN", "-1", "1e99", "1e-20000", "0e999999", "0e-5", "1_000", "0x1", "$", ".", "5.",
    "$$1", "%d9%a3", "1" * 13, f"0.{'1' * 13}",
)  # fmt: skip


@pytest.mark.parametrize("cost", COSTS)
async def test_a_cost_that_is_no_amount_is_told_on_a_page(rest: Rest, cost: str) -> None:
    answer = await rest.get(f"/console/runs?min_cost={cost}", headers=PAGE)

    assert answer.status == 422
    assert "<code>min_cost</code> is not valid: it is not an amount of dollars." in answer.body
    assert answer.headers["Content-Type"].startswith("text/html")
    assert (await rest.get(f"/console/runs/histogram.json?min_cost={cost}")).status == 422


@pytest.mark.parametrize(
    "cost", ["0", "$0.05", ".05", "+$1.5+", "0.000000000001", "999999999999", "00001"]
)
async def test_a_cost_is_written_as_people_write_dollars(rest: Rest, cost: str) -> None:
    assert (await rest.get(f"/console/runs?min_cost={cost}", headers=PAGE)).status == 200
    assert (await rest.get(f"/console/runs/histogram.json?min_cost={cost}")).status == 200


async def test_the_search_field_leads_to_a_run_or_says_that_there_is_none(rest: Rest) -> None:
    await add_run(rest)

    async def found(text: str) -> Answer:
        return await rest.get("/console/find", params={"q": text}, headers=PAGE)

    run, nothing = await found(f" `{RUN}` "), await found(" ")
    unknown = [await found(text) for text in ("nope", "\N{SNOWMAN}", "<b>", RUN.upper(), RUN + "0")]
    opened = await rest.get("/console/runs/nope", headers=PAGE)

    assert (run.status, f'data-run="{RUN}"' in run.body) == (200, True)
    assert (nothing.status, "<title>Runs" in nothing.body) == (200, True)
    for answer in (*unknown, opened):
        assert answer.status == 404
        assert "There is no run <code>" in answer.body
        assert "pattern" not in answer.body
    assert "There is no run <code>&lt;b&gt;</code>" in unknown[2].body


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "/runs?version=x",
            "<code>version</code> is not valid: it is not a whole number in digits.",
        ),
        (
            "/runs?version=0",
            "<code>version</code> is not valid: it is out of bounds. Use 1 or more.",
        ),
        ("/runs?since=x", "<code>since</code> is not valid: it is not a time with a zone"),
        (
            f"/runs/{RUN}?level=x",
            "<code>level</code> is not valid: it is not one of its values. Use",
        ),
        (
            "/models?tenant=%0d%0a",
            "<code>tenant</code> is not valid: it is not a name. Use letters",
        ),
        ("/runs?tenant=a.b", "<code>tenant</code> is not valid: it is not a name. Use letters"),
    ],
)
async def test_a_parameter_that_is_not_valid_is_named(rest: Rest, path: str, said: str) -> None:
    answer = await rest.get(f"/console{path}", headers=PAGE)

    assert answer.status == 422
    assert said in html.unescape(answer.body)


async def test_a_form_keeps_the_tenant_and_what_was_typed(rest: Rest) -> None:
    page = (
        await rest.get("/console/runs?tenant=acme&labels=a%3Db&contains=x%22y", headers=PAGE)
    ).body

    assert page.count('<input type="hidden" name="tenant" value="acme">') == 2
    assert 'name="labels" class="label" placeholder="customer=acme" value="a=b"' in page
    assert 'value="x&#34;y"' in page


async def test_a_pipeline_that_is_not_among_those_offered_stays_the_filter(rest: Rest) -> None:
    page = (await rest.get("/console/runs?pipeline=gone", headers=PAGE)).body
    known = (await rest.get("/console/runs?pipeline=greet", headers=PAGE)).body

    assert "<option selected>gone</option>" in page
    assert known.count("<option selected>greet</option>") == 1


async def test_runs_are_found_by_label_error_and_content(rest: Rest) -> None:
    await add_run(rest, text='says "100%" of a_b', labels={"customer": "acme"})
    await add_run(rest, CHILD, text="other", status="failed", code="budget_spent")

    async def shown(query: str) -> set[str]:
        page = (await rest.get(f"/console/runs?{query}", headers=PAGE)).body
        return {run_id for run_id in (RUN, CHILD) if f"/console/runs/{run_id}" in page}

    assert await shown("labels=customer%3Dacme") == {RUN}
    assert await shown("labels=customer%3Dother") == set()
    assert await shown("error=budget_spent") == {CHILD}
    assert await shown("contains=100%25") == {RUN}
    assert await shown("contains=%22100") == {RUN}
    assert await shown("contains=a_b") == {RUN}
    assert await shown("contains=a%25b") == set()
    assert await shown("contains=OTHER") == {CHILD}


async def test_a_search_reads_so_many_runs_and_goes_on_from_there(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.runs.reads.SEARCHED_RUNS", 2)
    for number in range(4):
        text = "needle" if number == 3 else "hay"
        run_id = f"r{number:024x}"
        await add_run(rest, run_id, text, accepted_at=NOW - timedelta(minutes=number))

    first = (await rest.get("/console/runs?contains=needle", headers=PAGE)).body
    older = html.unescape(re.findall(r'href="(\?[^"]*)" rel="next"', first)[0])
    second = (await rest.get(f"/console/runs{older}", headers=PAGE)).body

    assert "None of the searched runs match" in first
    assert f"/console/runs/r{3:024x}" in second


async def test_the_chart_of_a_search_counts_no_more_runs_than_its_page_reads(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.runs.reads.SEARCHED_RUNS", 2)
    for number in range(5):
        moment = NOW - timedelta(minutes=number)
        await add_run(rest, f"r{number:024x}", "needle", accepted_at=moment)

    async def counted(query: str, number: int) -> int:
        after = cursor(NOW - timedelta(minutes=number), f"r{number:024x}")
        path = f"/console/runs/histogram.json?{query}&after={after}"
        return int((await rest.get(path)).body["total"])

    assert [await counted("contains=needle", number) for number in (0, 3, 4)] == [2, 1, 0]
    assert await counted("pipeline=greet", 4) == 5, "what no search bounds is counted as a whole"


async def test_costs_and_deadlines_are_compared_in_so_many_runs(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.runs.reads.TRIED_RUNS", 2)
    for number in range(5):
        moment = NOW - timedelta(minutes=number)
        await add_run(
            rest, f"r{number:024x}", accepted_at=moment, took_ms=10 if number < 4 else 10**8
        )

    for query in ("deadline_missed=true", "min_cost_usd=900"):
        found, after, pages = [], "", 0
        while pages < 4:
            page = (await rest.get(f"/v1/runs?{query}{after}")).body
            found += [run["run_id"] for run in page["runs"]]
            pages += 1
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert (pages, found) == (3, [f"r{4:024x}"] if "missed" in query else []), query


async def test_the_chart_counts_each_run_once_where_it_was_accepted(rest: Rest) -> None:
    begun = NOW.replace(microsecond=0) - timedelta(hours=2)
    kinds = ("succeeded", "degraded", "failed", "cancelled", "expired", "running")
    for number, status in enumerate(kinds):
        moment = begun + timedelta(minutes=number + 0.5)
        await add_run(rest, f"r{number:024x}", accepted_at=moment, status=status)
    times = {"since": begun.isoformat(), "until": (begun + timedelta(hours=1)).isoformat()}

    bars = (await rest.get("/console/runs/histogram.json", params=times)).body

    assert (bars["start"], bars["width"], bars["total"]) == (begun.timestamp(), 60, 6)
    places = {
        kind: [place for place, runs in enumerate(bars[kind]) if runs]
        for kind in ("good", "failed", "cancelled", "running")
    }
    assert places == {"good": [0, 1], "failed": [2, 4], "cancelled": [3], "running": [5]}


async def test_who_sees_no_content_searches_none(rest: Rest) -> None:
    viewer = await cookie_of(rest, await rest.make_key("viewer"))

    answer = await asked_bare(rest, "GET", "/console/runs?contains=x", headers=viewer)
    page = await asked_bare(rest, "GET", "/console/runs", headers=viewer)

    assert answer.status == 403
    assert 'name="contains"' not in page.body


async def test_a_list_of_what_no_run_can_have_is_empty_and_offers_no_bulk_operation(
    rest: Rest,
) -> None:
    for asked in ("error=two+words", f"error={'x' * 150}", "pipeline=two+words"):
        page = await rest.get(f"/console/runs?{asked}", headers=PAGE)
        assert page.status == 200, asked


async def test_rows_that_changed_come_alone_and_new_ones_only_where_they_fit(rest: Rest) -> None:
    await add_run(rest, status="failed")
    await add_run(rest, CHILD)

    async def rows(query: str) -> list[str]:
        answer = await rest.get(f"/console/live/rows?{query}", headers=PAGE)
        return re.findall(r'<tr data-run="(\w+)"', answer.body)

    assert await rows(f"shown={RUN},{CHILD}&status=running") == [CHILD, RUN]
    assert await rows(f"fresh={RUN},{CHILD}&status=failed") == [RUN]
    assert (await rest.get("/console/live/rows?shown=x", headers=PAGE)).status == 422
