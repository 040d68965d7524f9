"""`hocket webhooks`: who is notified about runs by HTTP, and the deliveries."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from hocket.cli.remote.api import Api, every, path
from hocket.cli.remote.target import target_of

app = typer.Typer(
    help="Notify other systems of runs over HTTP: put, list, show, rotate, test, redeliver, "
    "delete.",
    no_args_is_help=True,
)

PAGE = 500
Name = Annotated[str, typer.Argument(help="Name of the webhook.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IfMatch = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        "--revision",
        min=1,
        help="Proceed only if the webhook still has this revision.",
    ),
]


@app.command("put")
def put(
    context: typer.Context,
    name: Name,
    url: Annotated[str, typer.Argument(help="URL that messages are sent to: https://...")],
    events: Annotated[
        list[str] | None,
        typer.Option(
            "--event", help="Event to send, such as run.failed; may be repeated. Default: all."
        ),
    ] = None,
    pipelines: Annotated[
        list[str] | None,
        typer.Option("--pipeline", "-p", help="Only runs of this pipeline; may be repeated."),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="Only runs with this label; may be repeated."
        ),
    ] = None,
    content: Annotated[
        bool, typer.Option("--content", help="Include outputs and the subject of approvals.")
    ] = False,
    description: Annotated[str, typer.Option(help="What the webhook is for.")] = "",
    revision: IfMatch = None,
    as_json: AsJson = False,
) -> None:
    """Create a webhook and print its secret once, or replace the one with that name."""
    from hocket.cli.terminal.console import notes, print_json
    from hocket.cli.terminal.sources import labels_of

    body: dict[str, Any] = {
        "url": url,
        "pipelines": pipelines or None,
        "labels": labels_of(labels or []),
        "content": content,
        "description": description,
    }
    if events:
        body["events"] = events
    made = target_of(context).api().put(path("webhooks", name), body, if_match=_etag(revision))
    if as_json:
        print_json(made)
    elif made["secret"] is None:
        typer.echo(f"{name} was updated, revision {made['revision']}")
    else:
        notes.print(f"{name} was created. Its secret is shown only once:", markup=False)
        typer.echo(made["secret"])


@app.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List webhooks."""
    from hocket.cli.terminal.console import out, print_json, print_table

    found = list(every(target_of(context).api(), "/v1/webhooks", "webhooks", limit=PAGE))
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("There are no webhooks. Create one with `hocket webhooks put`.")
        return
    rows = [(one["name"], one["url"], ", ".join(one["events"]), _state(one)) for one in found]
    print_table(("NAME", "URL", "EVENTS", "STATE"), rows, texts=("URL", "EVENTS"))


@app.command("show")
def show(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a webhook."""
    _say(target_of(context).api().get(path("webhooks", name)), as_json=as_json)


@app.command("enable")
def enable(
    context: typer.Context, name: Name, revision: IfMatch = None, as_json: AsJson = False
) -> None:
    """Enable a webhook and send the messages that are waiting."""
    api, place = target_of(context).api(), path("webhooks", name, "enable")
    _say(api.post(place, if_match=_etag(revision)), as_json=as_json)


@app.command("disable")
def disable(
    context: typer.Context, name: Name, revision: IfMatch = None, as_json: AsJson = False
) -> None:
    """Disable a webhook: nothing is sent, and no new events are stored for it."""
    api, place = target_of(context).api(), path("webhooks", name, "disable")
    _say(api.post(place, if_match=_etag(revision)), as_json=as_json)


@app.command("rotate")
def rotate(
    context: typer.Context,
    name: Name,
    overlap_s: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds for which messages are also signed with the former secret, fewer than "
            "until the next rotation; 0 ends all former ones.",
        ),
    ] = 86_400,
    as_json: AsJson = False,
) -> None:
    """Issue a new secret for a webhook and print it once."""
    from hocket.cli.terminal.console import notes, print_json

    api = target_of(context).api()
    made = api.post(path("webhooks", name, "rotate"), {"overlap_s": overlap_s})
    if as_json:
        print_json(made)
        return
    notes.print(f"The former secret also signs until {made['former_until'] or 'now'}. The new one:")
    typer.echo(made["secret"])


@app.command("test")
def send_test(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Send a message of type `webhook.test`."""
    from hocket.cli.terminal.console import print_json

    api = target_of(context).api()
    found = api.post(path("webhooks", name, "test"))
    print_json(found) if as_json else typer.echo(found["message_id"])
    _note_waiting(api, name)


@app.command("deliveries")
def deliveries(
    context: typer.Context,
    name: Name,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", "-s", help="Only deliveries in this state: pending, delivered or dead."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show a webhook's most recent messages and their outcome."""
    from hocket.cli.drawing.amounts import local
    from hocket.cli.terminal.console import out, print_json, print_table

    place = path("webhooks", name, "deliveries")
    found = target_of(context).api().get(place, state=state, limit=limit)["deliveries"]
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("There are no deliveries.")
        return
    rows = [
        (
            one["message_id"],
            one["event"],
            one["run_id"] or "",
            one["state"],
            str(one["attempts"]),
            local(one["created_at"]),
            one["last_error"],
        )
        for one in found
    ]
    columns = ("MESSAGE", "EVENT", "RUN", "STATE", "TRIES", "CREATED", "ERROR")
    print_table(columns, rows, texts=("ERROR",))


@app.command("redeliver")
def redeliver(
    context: typer.Context,
    name: Name,
    message_id: Annotated[
        str | None,
        typer.Argument(help="ID of the message; without it, all dead messages of the last HOURS."),
    ] = None,
    hours: Annotated[
        float,
        typer.Option(min=0, max=24 * 14, help="Without a message: how many hours to look back."),
    ] = 24,
    as_json: AsJson = False,
) -> None:
    """Send a message again, or all messages that were given up on."""
    from hocket.cli.terminal.console import print_json

    api = target_of(context).api()
    if message_id is not None:
        found = api.post(path("webhooks", name, "deliveries", message_id, "redeliver"))
        print_json(found) if as_json else typer.echo(f"{message_id} will be sent again")
        _note_waiting(api, name)
        return
    since = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    place, count = path("webhooks", name, "redeliver"), 0
    while again := api.post(place, {"since": since})["deliveries"]:  # a request has a limit
        count += again
    print_json({"deliveries": count}) if as_json else typer.echo(
        f"{count} messages will be sent again"
    )
    if count:
        _note_waiting(api, name)


@app.command("delete")
def delete(context: typer.Context, name: Name, revision: IfMatch = None) -> None:
    """Delete a webhook and its deliveries."""
    target_of(context).api().delete(path("webhooks", name), if_match=_etag(revision))
    typer.echo(f"{name} is deleted")


def _note_waiting(api: Api, name: str) -> None:
    """Say so if a webhook is disabled, and this key may see that."""
    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.errors import ApiRefused

    try:
        webhook = api.get(path("webhooks", name))
    except ApiRefused:
        return
    if not webhook["enabled"]:
        notes.print(
            f"The webhook {name} is disabled, so nothing is sent until it is enabled: "
            f"hocket webhooks enable {name}",
            markup=False,
        )


def _etag(revision: int | None) -> str | None:
    return None if revision is None else f'"{revision}"'


def _state(one: dict[str, Any]) -> str:
    if not one["enabled"]:
        return f"disabled: {one['disabled_reason']}"
    return f"failing since {one['failing_since']}" if one["failing_since"] else "enabled"


def _say(one: dict[str, Any], *, as_json: bool) -> None:
    from hocket.cli.terminal.console import out, print_json

    if as_json:
        print_json(one)
        return
    out.print(f"webhook    {one['name']}, revision {one['revision']}", markup=False)
    out.print(f"url        {one['url']}", markup=False)
    out.print(f"events     {', '.join(one['events'])}", markup=False)
    out.print(f"pipelines  {', '.join(one['pipelines'] or ['(all)'])}", markup=False)
    out.print(f"state      {_state(one)}", markup=False)
    if one["dropped"]:
        out.print(f"dropped    {one['dropped']} events, because too many waited", markup=False)
