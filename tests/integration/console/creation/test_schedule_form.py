"""Schedules are created and changed with a form: by the same rules as over REST, and without scripts."""

import json
from typing import Any

import pytest

from support.administration.console_rig import (
    PAGE,
    PIPELINE,
    asked_bare,
    cookie_of,
    fault_of,
    posted,
    value_of,
)
from support.rest_rig import Rest

NEW = "/new/schedule"
FIELDS: dict[str, Any] = {
    "name": "weekly",
    "description": "Every Monday.",
    "task.pipeline": "greet",
    "cron": "30 6 * * 1",
    "time_zone": "Europe/Berlin",
    "task.input": '{"text": "hi", "count": 12345678901234567890}',
    "overlap": "buffer_one",
    "catch_up": "all",
    "catch_up_window_s": "7200",
    "jitter_s": "30.5",
    "time_field": "as_of",
    "task.version": "1",
    "task.class": "batch",
    "task.deadline_ms": "60000",
    "task.budget_usd": "$0.25",
    "task.labels": "team=search,customer=a%20b",
}


@pytest.fixture
async def mine(rest: Rest) -> dict[str, str]:
    return await cookie_of(rest, await rest.make_key("developer"))


async def _audited(rest: Rest, action: str) -> list[dict[str, Any]]:
    entries = (await rest.get("/v1/audit?limit=500")).body["entries"]
    return [one for one in entries if one["action"] == action]


async def test_a_schedule_is_created_with_all_that_rest_offers(
    rest: Rest, mine: dict[str, str]
) -> None:
    before = await _audited(rest, "schedules.create")
    answer = await posted(rest, NEW, FIELDS, mine)
    made = (await rest.get("/v1/schedules/weekly")).body
    (entry,) = (await _audited(rest, "schedules.create"))[len(before) :]

    assert (answer.status, answer.headers["Location"]) == (303, "/console/schedules/weekly")
    told = ("description", "cron", "time_zone", "overlap", "catch_up", "time_field", "paused")
    assert [made[name] for name in told] == [
        "Every Monday.", "30 6 * * 1", "Europe/Berlin", "buffer_one", "all", "as_of", False,
    ]  # fmt: skip
    assert (made["jitter_s"], made["catch_up_window_s"]) == (30.5, 7_200)
    assert made["task"] == {
        "pipeline": "greet", "version": 1, "class": "batch", "deadline_ms": 60_000,
        "budget_usd": "0.25", "labels": {"team": "search", "customer": "a b"},
        "input": {"text": "hi", "count": 12345678901234567890},
    }  # fmt: skip
    assert entry["target"] == "schedule:weekly"
    assert entry["actor"].startswith("key:")
    assert "hi" not in json.dumps(entry["after"]["task"]["input"])


async def test_a_form_with_little_in_it_is_completed_like_a_request(
    rest: Rest, mine: dict[str, str]
) -> None:
    page = await asked_bare(rest, "GET", f"/console{NEW}?pipeline=greet", headers=mine)
    given = {name: value_of(page.body, name) for name in FIELDS}
    fields = {**given, "name": "little", "cron": "0  2 * * *", "paused": "true"}
    assert (await posted(rest, NEW, fields, mine)).status == 303
    body = {"cron": "0 2 * * *", "paused": True, "task": {"pipeline": "greet"}}
    assert (await rest.ask("PUT", "/v1/schedules/same", json=body)).status == 201
    little, same = [(await rest.get(f"/v1/schedules/{one}")).body for one in ("little", "same")]

    assert page.status == 200
    assert given["task.pipeline"] == "greet"
    own = {"name", "created_at", "created_by", "changed_at", "changed_by"}
    assert {k: v for k, v in little.items() if k not in own} == {
        k: v for k, v in same.items() if k not in own
    }


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("name", "", "It is empty. Fill it in."),
        ("name", "a b", "It is not a name. Use letters"),
        (
            "cron",
            "every day",
            "It does not have the five fields of a cron expression. Write minute",
        ),
        ("cron", "0 25 * * *", "Its hour is not valid. Write minute, hour"),
        ("cron", "0 0 30 2 *", "Its day of the month is not valid"),
        ("time_zone", "Mars/Base", "There is no time zone `Mars/Base`. Write a name"),
        ("task.pipeline", "", "It is empty. Fill it in."),
        (
            "task.pipeline",
            "none",
            "There is no pipeline `none` for tenant `default`. Apply it first",
        ),
        ("task.input", "{", "It is not JSON"),
        ("task.input", "[1]", "It is a list, not a mapping."),
        ("task.input", '{"a": 1, "a": 2}', "The key `a` is used twice. Send each key once."),
        ("task.input", json.dumps({"text": "x" * 5_000}), "The payload has"),
        ("catch_up_window_s", "a day", "It is not a number. Write it in digits"),
        ("catch_up_window_s", "0", "It is out of bounds. Use more than 0."),
        ("jitter_s", "1e3", "It is not a number."),
        ("task.version", "1.5", "It is not a whole number."),
        ("task.version", "7", "Pipeline `greet` has no version 7. The latest is 1."),
        ("task.deadline_ms", "-1", "It is out of bounds. Use more than 0."),
        ("task.budget_usd", "cheap", "It is not an amount of dollars"),
        (
            "task.labels",
            "team",
            "`team` is not a list of labels. Write `customer=acme,team=search`",
        ),
        ("overlap", "never", "It is not one of its values. Use `allow`"),
    ],
)
async def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(
    rest: Rest, mine: dict[str, str], field: str, typed: str, said: str
) -> None:
    answer = await posted(rest, NEW, {**FIELDS, field: typed}, mine)

    place = answer.body.partition(f'id="{field}"')[2].partition(">")[0]
    assert 400 <= answer.status < 500
    assert fault_of(answer.body, field).startswith(said.replace("`", "")), answer.body
    assert 'aria-invalid="true"' in place
    assert f'aria-describedby="{field}-fault"' in place or f"{field}-fault" in place
    assert " autofocus" in place
    assert "No schedule was created." in answer.body
    for name, text in {**FIELDS, field: typed}.items():
        assert value_of(answer.body, name) == text, name
    assert (await rest.get("/v1/schedules/weekly")).status == 404


async def test_all_that_is_wrong_is_said_at_once(rest: Rest, mine: dict[str, str]) -> None:
    wrong = {"name": "a b", "cron": "", "jitter_s": "x", "task.labels": "x"}
    answer = await posted(rest, NEW, {**FIELDS, **wrong}, mine)

    assert answer.status == 422
    for name in wrong:
        assert fault_of(answer.body, name), name
        assert f'<a href="#{name}">' in answer.body
    assert answer.body.count(" autofocus") == 1
    assert '<details class="more-fields" open>' in answer.body


async def test_a_name_that_exists_is_refused_and_its_schedule_stays(
    rest: Rest, mine: dict[str, str]
) -> None:
    before = (await rest.get("/v1/schedules/nightly")).body
    answer = await posted(rest, NEW, {**FIELDS, "name": "nightly"}, mine)

    assert answer.status == 412
    assert "There is a schedule of this name already." in fault_of(answer.body, "name")
    assert (await rest.get("/v1/schedules/nightly")).body == before


async def test_coming_times_are_shown_and_nothing_is_saved(
    rest: Rest, mine: dict[str, str]
) -> None:
    fields = {**FIELDS, "name": "", "task.pipeline": "", "do": "preview"}
    shown = await posted(rest, NEW, fields, mine)
    wrong = await posted(rest, NEW, {**fields, "cron": "0 25 * * *"}, mine)
    body = {"cron": FIELDS["cron"], "time_zone": FIELDS["time_zone"], "jitter_s": 30.5}
    told = (await rest.post("/v1/schedule-preview?count=5", body)).body["times"]

    assert shown.status == 200
    assert 'class="fault"' not in shown.body
    for one in told:
        assert f'datetime="{one["local"]}"' in shown.body
    assert wrong.status == 422
    assert "Its hour is not valid." in fault_of(wrong.body, "cron")
    assert (await rest.get("/v1/schedules")).body["schedules"][0]["name"] == "nightly"


async def test_a_schedule_is_changed_and_what_was_not_touched_stays(
    rest: Rest, mine: dict[str, str]
) -> None:
    assert (await posted(rest, NEW, FIELDS, mine)).status == 303
    before = (await rest.get("/v1/schedules/weekly")).body
    page = await asked_bare(rest, "GET", "/console/schedules/weekly/edit", headers=mine)
    fields = {name: value_of(page.body, name) for name in FIELDS if name != "name"}
    revision = {"revision": str(before["revision"])}
    same = await posted(rest, "/schedules/weekly/edit", {**fields, **revision}, mine)
    unchanged = (await rest.get("/v1/schedules/weekly")).body
    fields |= {"cron": "0 7 * * 1", **revision}
    changed = await posted(rest, "/schedules/weekly/edit", fields, mine)
    after = (await rest.get("/v1/schedules/weekly")).body
    late = await posted(rest, "/schedules/weekly/edit", fields | {"cron": "0 8 * * 1"}, mine)

    assert f'name="revision" value="{before["revision"]}"' in page.body
    assert unchanged == before
    assert (same.status, changed.status) == (303, 303)
    assert after["cron"] == "0 7 * * 1"
    assert after["task"] == before["task"]
    assert late.status == 412
    assert "The schedule was changed in the meantime." in late.body
    assert value_of(late.body, "cron") == "0 8 * * 1"
    assert (await rest.get("/v1/schedules/weekly")).body["cron"] == "0 7 * * 1"


async def test_a_form_contains_no_input_for_those_who_may_not_see_it(rest: Rest) -> None:
    operator = await cookie_of(rest, await rest.make_key("operator"))
    page = await asked_bare(rest, "GET", "/console/schedules/nightly", headers=operator)
    edit = await asked_bare(rest, "GET", "/console/schedules/nightly/edit", headers=operator)
    made = await posted(rest, NEW, FIELDS, operator)

    assert "/schedules/nightly/edit" not in page.body
    assert edit.status == 403
    assert "content.read" in edit.body
    assert made.status == 303, "who may manage schedules may create them"


async def test_an_input_that_is_too_long_for_a_form_is_not_cut(rest: Rest) -> None:
    await rest.pool.execute(
        "UPDATE hocket.schedule"
        " SET task = jsonb_set(task, '{input}', jsonb_build_object('text', $1::text))",
        "x" * 200_001,
    )
    page = await rest.get("/console/schedules/nightly/edit", headers=PAGE)

    assert page.status == 200
    assert 'name="task.input"' not in page.body
    assert "hocket schedules put" in page.body


async def test_archived_pipelines_are_not_offered(rest: Rest, mine: dict[str, str]) -> None:
    assert (await rest.post("/v1/pipelines", {**PIPELINE, "pipeline": "retired"})).status == 201
    assert (await rest.post("/v1/pipelines/retired/archive")).status == 200
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=mine)
    answer = await posted(rest, NEW, {**FIELDS, "task.pipeline": "retired"}, mine)

    assert '<option value="greet">' in page.body
    assert "retired" not in page.body
    assert answer.status == 409
    assert "archived" in fault_of(answer.body, "task.pipeline")


async def test_with_very_many_pipelines_the_name_is_typed(
    rest: Rest, mine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.console.creation.choices.MAX_PIPELINES", 0)
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=mine)

    assert '<input id="task.pipeline"' in page.body


async def test_the_chosen_tenant_is_kept(rest: Rest) -> None:
    acme = {"X-Hocket-Tenant": "acme"}
    assert (await rest.post("/v1/pipelines", PIPELINE, headers=acme)).status == 201
    everybody = await cookie_of(rest, await rest.make_key("admin", None))
    page = await asked_bare(rest, "GET", f"/console{NEW}?tenant=acme", headers=everybody)
    answer = await posted(rest, f"{NEW}?tenant=acme", FIELDS, everybody)

    assert f'action="/console{NEW}?tenant=acme"' in page.body
    assert answer.headers["Location"] == "/console/schedules/weekly?tenant=acme"
    assert (await rest.get("/v1/schedules/weekly", headers=acme)).status == 200
    assert (await rest.get("/v1/schedules/weekly")).status == 404
