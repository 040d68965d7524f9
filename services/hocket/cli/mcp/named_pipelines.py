"""The pipelines that `hocket mcp --pipelines` names, against those that there are: a name that is not
there would leave a client without its tool, and nobody would be told."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hocket.cli.mcp.tools import PAGE
from hocket.cli.terminal.errors import ApiRefused, ApiUnreachable, PipelinesUnknown
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.handlers import entries_of

if TYPE_CHECKING:
    from hocket.cli.remote.api import Api

MAX_SHOWN = 20
"""How many of the pipelines that there are an error shows."""


def names_of(given: str | None) -> tuple[str, ...]:
    """Return the names in `--pipelines`, none if it is not given; raise InvalidInput for an empty list,
    which would otherwise serve all pipelines, as from a variable that is not set."""
    names = entries_of(given or "")
    if given is not None and not names:
        raise InvalidInput(
            field="--pipelines",
            reason="it names no pipeline",
            cure="Name those to serve, or leave the option out to serve all.",
        )
    return names


def missing(api: "Api", names: Sequence[str]) -> PipelinesUnknown | None:
    """Return the error for names that are not there, if any. While the platform cannot tell, there is
    none: it may be started later."""
    if not names:
        return None
    unknown, known = dict.fromkeys(names), list[str]()
    try:
        for name in _listed(api):
            unknown.pop(name, None)
            if not unknown:
                return None
            known.append(name)
    except (ApiRefused, ApiUnreachable):
        return None
    return PipelinesUnknown(unknown=_told(list(unknown)), known=_told(known) or "no pipeline")


def _listed(api: "Api") -> Iterator[str]:
    """Yield the names of the pipelines that are not archived."""
    after: str | None = None
    while True:
        page: list[dict[str, Any]] = api.get("/v1/pipelines", after=after, limit=PAGE)["pipelines"]
        yield from (one["pipeline"] for one in page)
        if len(page) < PAGE:
            return
        after = page[-1]["pipeline"]


def _told(names: Sequence[str]) -> str:
    told = ", ".join(f"`{name}`" for name in names[:MAX_SHOWN])
    more = len(names) - MAX_SHOWN
    return f"{told} and {more} more" if more > 0 else told
