"""The page of the `sql` node says what is so."""

import re

import pytest
import yaml

from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.workers.sql import errors
from hocket.workers.sql.guard import guard
from hocket.workers.sql.targets import TargetSettings
from support.places import ROOT

PAGE = (ROOT / "docs" / "reference" / "nodes" / "sql.md").read_text()
PIPELINE, DATABASES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_compiles_and_its_query_is_allowed_on_its_database() -> None:
    document = parse_document(PIPELINE)
    assert compile_pipeline(document)
    node = document["nodes"]["orders"]
    settings = TargetSettings.model_validate(yaml.safe_load(DATABASES)["databases"]["shop"])
    checked = guard.check_query(
        node["query"],
        dialect="postgres",
        tables=node["tables"],
        within=settings.tables,
        max_rows=node["max_rows"],
    )
    assert set(checked.parameters) == set(node["params"])


@pytest.mark.parametrize(
    "code",
    [
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
        if kind is not errors.SqlRefused
    ],
)
def test_every_error_is_listed(code: str) -> None:
    assert f"`{code}`" in PAGE
