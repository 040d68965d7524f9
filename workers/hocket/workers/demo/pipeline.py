"""The demo's pipeline, with the query catalog in its planning node."""

from importlib.resources import files
from typing import Any

import yaml

from hocket.workers.demo.catalog import catalog


def pipeline() -> dict[str, Any]:
    """Return the pipeline document of the demo."""
    text = files(__package__).joinpath("report.yaml").read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    document["nodes"]["plan"]["catalog"] = [
        query.model_dump(mode="json", exclude_defaults=True) for query in catalog()
    ]
    return document
