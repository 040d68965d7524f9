"""Webhooks are created with a form, which shows the secret once."""

import re
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from support.administration.console_rig import (
    PIPELINE,
    asked_bare,
    cookie_of,
    fault_of,
    posted,
    value_of,
)
from support.administration.webhook_rig import delivering, receiving, send
from support.rest_rig import Rest

NEW = "/new/webhook"
FIELDS: dict[str, Any] = {
    "name": "audit-room",
    "description": "Tells the room.",
    "url": "https://hooks.example.com/hocket?room=1",
    "events": ["run.failed", "run.waiting"],
    "pipelines": ["greet"],
    "labels": "customer=a%20b",
    "content": "true",
}


@pytest.fixture
async def mine(rest: Rest) -> dict[str, str]:
    return await cookie_of(rest, await rest.make_key("developer"))


def secret_in(page: str) -> str:
    found = re.findall(r'<code id="once">(whsec_[^<]+)</code>', page)
    assert len(found) == 1
    return str(found[0])


async def test_a_webhook_is_created_and_its_secret_is_shown_once(
    rest: Rest, mine: dict[str, str]
) -> None:
    answer = await posted(rest, NEW, FIELDS, mine)
    secret = secret_in(answer.body)
    made = (await rest.get("/v1/webhooks/audit-room")).body
    page = await asked_bare(rest, "GET", "/console/webhooks/audit-room", headers=mine)
    audit = (await rest.get("/v1/audit?limit=500")).body["entries"]
    entry = next(one for one in audit if one["target"] == "webhook:audit-room")

    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    assert {name: made[name] for name in ("description", "url", "content", "labels")} == {
        "description": "Tells the room.",
        "url": "https://hooks.example.com/hocket?room=1",
        "content": True,
        "labels": {"customer": "a b"},
    }
    assert made["events"] == ["run.failed", "run.waiting"]
    assert (made["pipelines"], made["enabled"]) == (["greet"], True)
    assert entry["action"] == "webhooks.create"
    assert secret not in page.body
    assert secret not in str(audit)


async def test_the_secret_that_is_shown_verifies_messages(rest: Rest, mine: dict[str, str]) -> None:
    async with receiving() as receiver, delivering(rest) as sender:
        fields = {**FIELDS, "url": receiver.url}
        secret = secret_in((await posted(rest, NEW, fields, mine)).body)
        assert (await rest.post("/v1/webhooks/audit-room/test")).status == 202
        await send(sender)
        (got,) = receiver.got

    assert Webhook(secret).verify(got.text, got.headers)["type"] == "webhook.test"


async def test_an_empty_form_stands_for_all_events_and_pipelines(
    rest: Rest, mine: dict[str, str]
) -> None:
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=mine)
    chosen = re.findall(r'name="events" value="([^"]+)" checked', page.body)
    fields = {
        "name": "all",
        "url": FIELDS["url"],
        "events": chosen,
        "labels": "",
        "description": "",
    }
    assert (await posted(rest, NEW, fields, mine)).status == 201
    made = (await rest.get("/v1/webhooks/all")).body
    assert (await rest.ask("PUT", "/v1/webhooks/same", json={"url": FIELDS["url"]})).status == 201
    same = (await rest.get("/v1/webhooks/same")).body

    assert (made["events"], made["pipelines"], made["content"]) == (
        same["events"], same["pipelines"], same["content"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("name", "a/b", "It is not a name."),
        ("url", "", "It is empty. Fill it in."),
        ("url", "hooks.example.com", "It is not a web address. Write an address such as"),
        ("url", "https://me:secret@hooks.example.com", "It contains credentials"),
        ("url", "http://hooks.example.com/x", "It has no TLS. Write https://"),
        ("url", "https://10.0.0.1/x", "`10.0.0.1` is a private address"),
        ("events", [], "None is chosen. Choose at least one."),
        ("events", ["run.born"], "Entry 1: it is not one of its values. Use `run.succeeded`"),
        ("pipelines", ["greet, a/b"], "Entry 2: it is not a name."),
        ("labels", "x", "`x` is not a list of labels."),
        ("description", "x" * 1_001, "It has 1001 characters. Use at most 1000."),
    ],
)
async def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(
    rest: Rest, mine: dict[str, str], field: str, typed: Any, said: str
) -> None:
    fields = {**FIELDS, field: typed}
    answer = await posted(rest, NEW, fields, mine)

    assert answer.status == 422
    assert fault_of(answer.body, field).startswith(said.replace("`", "")), answer.body
    assert f"{field}-fault" in answer.body.partition(f'id="{field}"')[2].partition(">")[0]
    for name in ("name", "description", "url", "labels"):
        assert value_of(answer.body, name) == fields[name], name
    assert 'name="content" type="checkbox" value="true" checked' in answer.body
    assert (await rest.get("/v1/webhooks/audit-room")).status == 404


async def test_a_name_that_exists_is_refused_and_its_webhook_stays(
    rest: Rest, mine: dict[str, str]
) -> None:
    before = (await rest.get("/v1/webhooks/ops")).body
    answer = await posted(rest, NEW, {**FIELDS, "name": "ops"}, mine)
    first = await posted(rest, NEW, FIELDS, mine)
    reloaded = await posted(rest, NEW, FIELDS, mine)

    assert answer.status == 412
    assert "There is a webhook of this name already." in fault_of(answer.body, "name")
    assert (await rest.get("/v1/webhooks/ops")).body == before
    assert (first.status, reloaded.status) == (201, 412), "to reload the page changes nothing"


async def test_a_tenant_with_all_its_webhooks_is_told_so(
    rest: Rest, mine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.admin.webhooks.changes.MAX_WEBHOOKS", 1)
    answer = await posted(rest, NEW, FIELDS, mine)

    assert answer.status == 409
    assert "The tenant has 1 webhooks, which is the limit." in answer.body
    assert value_of(answer.body, "url") == FIELDS["url"]


async def test_content_is_offered_to_those_who_may_see_it(rest: Rest) -> None:
    operator = await cookie_of(rest, await rest.make_key("operator"))
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=operator)
    refused = await posted(rest, NEW, FIELDS, operator)
    made = await posted(rest, NEW, {**FIELDS, "content": ""}, operator)

    assert 'name="content"' not in page.body
    assert refused.status == 403
    assert "content.read" in refused.body
    assert made.status == 201


async def test_with_very_many_pipelines_their_names_are_typed(
    rest: Rest, mine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await rest.post("/v1/pipelines", {**PIPELINE, "pipeline": "other"})).status == 201
    monkeypatch.setattr("hocket.admin.console.creation.choices.MAX_PIPELINES", 1)
    page = await asked_bare(rest, "GET", f"/console{NEW}", headers=mine)
    answer = await posted(rest, NEW, {**FIELDS, "pipelines": "greet, other"}, mine)

    assert '<input id="pipelines"' in page.body
    assert answer.status == 201
    assert (await rest.get("/v1/webhooks/audit-room")).body["pipelines"] == ["greet", "other"]
