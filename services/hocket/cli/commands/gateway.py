"""`hocket gateway`: why calls went where they went, keys of its HTTP door, and models of backends whose
servers load and unload them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.target import target_of

if TYPE_CHECKING:
    from hocket.schemas.messages import BackendControl, BackendControlled

KEY_BYTES = 32
ANSWER_MARGIN_MS = 5_000.0
RUN_ID = r"r[0-9a-f]{24}"
MAX_SHOWN = 200

app = typer.Typer(
    help="The gateway: explain calls; keys for its HTTP door; load and unload models of backends.",
    no_args_is_help=True,
)

Backend = Annotated[
    str, typer.Argument(help="A backend's name; `name/replica` where it has several.")
]
TimeoutS = Annotated[float, typer.Option(min=1, max=3_600, help="How long it may take.")]


@app.command("explain")
def explain(
    context: typer.Context,
    call: Annotated[str, typer.Argument(help="A call's id, or a run's for all of its calls.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show how a call came to its backend: what was looked at, why one was chosen, what became of it."""
    import re

    from hocket.cli.api import path
    from hocket.cli.console import notes, out, print_json
    from hocket.cli.drawing.decisions import explained_lines

    api = target_of(context).api()
    if re.fullmatch(RUN_ID, call):
        found = api.get("/v1/calls", run=call, limit=MAX_SHOWN)
        shown: dict[str, Any] = {"attempts": found["calls"]}
    else:
        found = shown = api.get(path("calls", call))
    if as_json:
        print_json(found)
        return
    for line in explained_lines(shown):
        out.print(line)
    if not any(shown.values()):
        out.print("The run has made no calls that are booked.")
    if found.get("truncated"):
        notes.print(f"There are more than {MAX_SHOWN}.", style="dim")


@app.command("load")
def load(context: typer.Context, backend: Backend, timeout_s: TimeoutS = 300) -> None:
    """Load the backend's model, or load it again."""
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="load", backend=backend, timeout_ms=timeout_s * 1000)
    done = _controlled(context, wanted)
    typer.echo(f"{backend} is {'ready' if done.ready else 'not ready yet'}")


@app.command("unload")
def unload(context: typer.Context, backend: Backend, timeout_s: TimeoutS = 60) -> None:
    """Unload the backend's model; calls to it fail until it is loaded again."""
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="unload", backend=backend, timeout_ms=timeout_s * 1000)
    done = _controlled(context, wanted)
    typer.echo(f"{backend} is {'still ready' if done.ready else 'unloaded'}")


@app.command("status")
def status(context: typer.Context, backend: Backend, timeout_s: TimeoutS = 10) -> None:
    """Print whether the backend's model is ready, and what its server counted, as JSON."""
    from hocket.cli.console import print_json
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="status", backend=backend, timeout_ms=timeout_s * 1000)
    done = _controlled(context, wanted)
    print_json(done.model_dump(exclude={"error"}))


@app.command("key")
def key(
    name: Annotated[str, typer.Argument(help="Whose key it is, for people.")],
    tenant: Annotated[str, typer.Option(help="Whose calls come with it.")] = "default",
) -> None:
    """Make a key for the HTTP door, and print what the configuration needs to know of it.

    The key itself is printed once and kept nowhere.
    """
    import secrets

    from hocket.gateway.core.access import KEY_PREFIX, hashed
    from hocket.schemas.subjects import check_token

    made = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    typer.echo(f"# the key, for {name}: {made}")
    typer.echo("access:\n  keys:")
    typer.echo(f"    - name: {name}\n      sha256: {hashed(made)}")
    typer.echo(f"      tenant: {check_token('--tenant', tenant)}")


def _controlled(context: typer.Context, wanted: "BackendControl") -> "BackendControlled":
    """Return what a gateway says, or raise its error."""
    import asyncio

    from hocket.cli.errors import ApiRefused

    done = asyncio.run(_ask(target_of(context).nats_url, wanted))
    if done.error is not None:
        raise ApiRefused(done.error)
    return done


async def _ask(nats_url: str, wanted: "BackendControl") -> "BackendControlled":
    from hocket.kit.bus import Bus
    from hocket.schemas import subjects
    from hocket.schemas.messages import BackendControlled

    bus = await Bus.connect(nats_url, name="hocket gateway")
    try:
        message = await bus.request(
            subjects.GATEWAY_CONTROL,
            wanted.model_dump_json().encode(),
            timeout_ms=wanted.timeout_ms + ANSWER_MARGIN_MS,
        )
    finally:
        await bus.close()
    return BackendControlled.model_validate_json(message.data)
