"""The demo's query catalog, in the form that a planning node takes."""

from importlib.resources import files

import yaml
from pydantic import TypeAdapter

from hocket.schemas.pipeline.node_parts import CatalogQuery


def catalog() -> tuple[CatalogQuery, ...]:
    """Return the queries that the demo's author wrote."""
    text = files(__package__).joinpath("catalog.yaml").read_text("utf-8")
    return TypeAdapter(tuple[CatalogQuery, ...]).validate_python(yaml.safe_load(text))
