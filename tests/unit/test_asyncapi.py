"""The published AsyncAPI document is that of the messages as they are."""

from pathlib import Path

import yaml

from hocket.cli.asyncapi import document

PUBLISHED = Path(__file__).parents[2] / "docs" / "asyncapi.yaml"


def test_the_published_document_is_current() -> None:
    assert yaml.safe_load(PUBLISHED.read_text()) == yaml.safe_load(document()), "run `make docs`"


def test_every_public_subject_is_described() -> None:
    channels = yaml.safe_load(PUBLISHED.read_text())["channels"].values()
    addresses = {channel["address"] for channel in channels}
    assert {"hocket.task.{tenant}.{pipeline}", "hocket.usage"} <= addresses
    assert "hocket.event.{tenant}.{pipeline}.run-finished" in addresses
