"""The published JSON Schema of a pipeline."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

import hocket.schemas.pipeline.spec as spec_module
from hocket.schemas.pipeline.spec import pipeline_schema

FILE = Path(spec_module.__file__).parent.parent / "pipeline.schema.json"


def test_the_published_schema_is_current() -> None:
    """Write it anew with `hocket schema > schemas/hocket/schemas/pipeline.schema.json`."""
    assert json.loads(FILE.read_text("utf-8")) == pipeline_schema()


def test_the_published_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(json.loads(FILE.read_text("utf-8")))
