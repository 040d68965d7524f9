"""What REST takes and gives where the data of a tenant, or of a customer by label, is deleted."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field

from hocket.schemas.labels import Labels
from hocket.schemas.rest import Reply, Request, Token


class DataDeletion(Request):
    """Whose data goes, for good. Ask with `dry_run` first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tenant": "acme", "label": {"customer": "initech"}, "dry_run": True}]
        }
    )

    tenant: Token
    """The tenant of the request once more, so that nobody deletes that of another one by mistake."""
    label: Annotated[Labels, Field(min_length=1, max_length=1)] | None = None
    """Only what is of tasks with this label; without it all of the tenant."""
    dry_run: bool = False
    """Only count, and delete nothing."""


class DataDeleted(Reply):
    """How many rows of each kind went, or there are."""

    complete: bool
    """Whether all of it is gone. Where not, the time of a request was over: ask again, it goes on."""
    rows: Mapping[str, int]
