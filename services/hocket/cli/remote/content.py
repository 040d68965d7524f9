"""Reads the stored prompts and answers of a run, or of one call."""

from typing import Any

from hocket.cli.remote.api import Api
from hocket.schemas.ids import is_run_id

MAX_RUN_CHARS = 256
"""The most characters of a run's id that the REST service accepts, of one from elsewhere too. Those of
calls can be longer."""
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


def content_of(api: Api, given_id: str, *, limit: int) -> Json:
    """Return what is stored of the run with an id or, if no call names such a run, of the call with
    it."""
    if len(given_id) <= MAX_RUN_CHARS:
        found = kept_content(api, given_id, limit=limit)
        if found["content"] or is_run_id(given_id):
            return found
    of_call: Json = api.get("/v1/content", call=given_id)
    return of_call
