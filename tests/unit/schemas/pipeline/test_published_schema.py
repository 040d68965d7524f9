"""The published JSON Schema of a pipeline."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

import hocket.schemas.pipeline.spec as spec_module
from hocket.schemas.pipeline.spec import pipeline_schema

FILE = Path(spec_module.__file__).parent.parent / "pipeline.schema.json"


def test_the_published_schema_is_current() -> None:
    """Write it anew with `hocket schema > schemas/hocket/schemas/pipeline.schema.json`."""
    assert json.loads(FILE.read_text("utf-8")) == pipeline_schema()


def test_the_published_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(json.loads(FILE.read_text("utf-8")))


def test_every_property_is_described_for_editors() -> None:
    bare = []

    def walk(part: Any, place: str) -> None:
        if isinstance(part, dict):
            properties = part.get("properties")
            if isinstance(properties, dict):
                bare.extend(
                    f"{place}.{name}"
                    for name, one in properties.items()
                    if not one.get("description", "").endswith((".", ")"))
                )
            for name, one in part.items():
                walk(one, f"{place}/{name}")
        elif isinstance(part, list):
            for one in part:
                walk(one, place)

    walk(pipeline_schema(), "")
    assert bare == []
