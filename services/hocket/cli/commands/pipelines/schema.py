"""`hocket schema`."""

import json

import typer


def schema() -> None:
    """Print the JSON Schema of a pipeline.

    Editors can complete and check YAML with it. Put this on the first line of a pipeline file:

    # yaml-language-server: $schema=pipeline.schema.json
    """
    from hocket.schemas.pipeline.spec import pipeline_schema

    typer.echo(json.dumps(pipeline_schema(), indent=2, sort_keys=True))
