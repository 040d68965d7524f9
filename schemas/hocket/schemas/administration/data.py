"""REST bodies for deleting the data of a tenant, or of a customer by label."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool

from hocket.schemas.labels import Labels
from hocket.schemas.rest import Reply, Request, Token


class DataDeletion(Request):
    """Whose data to delete permanently. Send a `dry_run` first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tenant": "acme", "label": {"customer": "initech"}, "dry_run": True}]
        }
    )

    tenant: Token
    """The tenant of the request, repeated as a safeguard against deleting another tenant's data by
    mistake."""
    label: Annotated[Labels, Field(min_length=1, max_length=1)] | None = None
    """Only data of tasks with this label; without it, all data of the tenant."""
    dry_run: StrictBool = False
    """Only count, without deleting anything."""


class DataDeleted(Reply):
    """How many rows of each kind were deleted or, in a dry run, exist."""

    complete: bool
    """Whether everything was deleted. If not, the request ran out of time: repeat it to continue."""
    rows: Mapping[str, int]
