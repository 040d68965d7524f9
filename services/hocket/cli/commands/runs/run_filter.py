"""Options that say which runs are meant, of `hocket runs list`, `export` and the bulk commands."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

Pipeline = Annotated[
    str | None, typer.Option("--pipeline", "-p", help="Only runs of this pipeline.")
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status", "-s", help="Only runs with this status: running, succeeded, failed ..."
    ),
]
Hours = Annotated[
    float | None, typer.Option(min=0, max=1e6, help="Only runs accepted in the last HOURS.")
]
Since = Annotated[
    datetime | None, typer.Option(help="Only runs accepted at or after this local time.")
]
Until = Annotated[datetime | None, typer.Option(help="Only runs accepted before this local time.")]
WithLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="KEY=VALUE", help="Only runs with this label; may be repeated."
    ),
]
ErrorCode = Annotated[
    str | None, typer.Option("--error", help="Only runs that ended with this error code.")
]
Missed = Annotated[
    bool,
    typer.Option(
        "--missed",
        help="Only runs without a result by their deadline; failed ones count, those that were "
        "cancelled before do not.",
    ),
]
MinCost = Annotated[
    str | None, typer.Option(metavar="USD", help="Only runs that cost at least this much.")
]
Contains = Annotated[
    str | None, typer.Option(help="Only runs with this text in their input, output or error.")
]


def earliest(hours: float | None, since: datetime | None = None) -> str | None:
    """Return when the first of the runs meant was accepted; raise typer.BadParameter."""
    if hours is None:
        return moment(since)
    if since is not None:
        raise typer.BadParameter("--hours and --since say the same; use one of them")
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


def moment(given: datetime | None) -> str | None:
    """Return a local time as the API takes it; raise typer.BadParameter."""
    try:
        return None if given is None else given.astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{given} is not a time that can be compared: {error}") from None
