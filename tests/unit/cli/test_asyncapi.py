"""The published AsyncAPI documents are those of the messages as they are."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.cli import worker_asyncapi
from hocket.cli.asyncapi import document, in_order
from support.places import ROOT

PUBLISHED = ROOT / "docs" / "reference" / "asyncapi.yaml"
OF_WORKERS = ROOT / "docs" / "reference" / "worker-protocol.yaml"
BOTH = pytest.mark.parametrize("published", [PUBLISHED, OF_WORKERS], ids=lambda path: path.stem)


def test_the_published_document_is_current() -> None:
    assert PUBLISHED.read_text() == document(), "run `make docs`"
    assert OF_WORKERS.read_text() == worker_asyncapi.document(), "run `make docs`"


def test_the_order_of_the_document_does_not_vary() -> None:
    published = PUBLISHED.read_text()
    shuffled = yaml.safe_load(published)
    for holder in (shuffled, shuffled["components"]):
        for name, named in holder.items():
            if name in ("channels", "operations", "messages", "schemas"):
                holder[name] = dict(reversed(named.items()))
    in_order(shuffled)
    assert yaml.safe_dump(shuffled, sort_keys=False) == yaml.safe_dump(
        yaml.safe_load(published), sort_keys=False
    )


def test_every_public_subject_is_described() -> None:
    channels = yaml.safe_load(PUBLISHED.read_text())["channels"].values()
    addresses = {channel["address"] for channel in channels}
    assert {"hocket.task.{tenant}.{pipeline}", "hocket.usage"} <= addresses
    assert "hocket.event.{tenant}.{pipeline}.run-finished" in addresses


def test_whatever_the_page_of_the_protocol_names_is_described() -> None:
    described = yaml.safe_load(OF_WORKERS.read_text())
    addresses = {channel["address"] for channel in described["channels"].values()}
    page = OF_WORKERS.with_suffix(".md").read_text("utf-8")
    named = {
        re.sub(r"<(\w+)>", r"{\1}", subject)
        for subject in re.findall(r"`(hocket\.[\w.<>]+)`", page)
    }
    assert len(named) >= 15
    assert not named - addresses - {"hocket.worker"}


def test_each_request_of_the_protocol_says_where_its_reply_is() -> None:
    described = yaml.safe_load(OF_WORKERS.read_text())
    replies = {
        name for name, one in described["channels"].items() if one["address"] == "{reply_to}"
    }
    answered = {
        one["reply"]["channel"]["$ref"].rpartition("/")[2]
        for one in described["operations"].values()
        if "reply" in one
    }
    assert answered == replies


@BOTH
def test_every_reference_leads_somewhere(published: Path) -> None:
    described = yaml.safe_load(published.read_text())
    found = list(references(described))
    assert found
    for reference in found:
        node = described
        for token in reference.removeprefix("#/").split("/"):
            node = node[token.replace("~1", "/").replace("~0", "~")]


@BOTH
def test_every_parameter_of_an_address_is_described(published: Path) -> None:
    for channel in yaml.safe_load(published.read_text())["channels"].values():
        names = re.findall(r"{(\w+)}", channel["address"])
        assert sorted(channel.get("parameters", {})) == sorted(names)


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [r for value in node.values() for r in references(value)]
    if isinstance(node, list):
        return [r for value in node for r in references(value)]
    return []
