"""Reads the stored prompts and answers of a run."""

from typing import Any

from hocket.cli.remote.api import Api

Json = dict[str, Any]


def kept_content(api: Api, run_id: str, *, limit: int) -> Json:
    """Return up to `limit` stored prompts and answers as one page: long ones come in several, each of
    which has a limit in bytes."""
    page: Json = api.get("/v1/content", run=run_id, limit=limit)
    found = list(page["content"])
    while page["next"] is not None and len(found) < limit:
        rest = limit - len(found)
        page = api.get("/v1/content", run=run_id, limit=rest, after=page["next"])
        found += page["content"]
    return {**page, "content": found}
