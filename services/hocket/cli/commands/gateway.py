"""`hocket gateway`: why calls went where they went, keys of its HTTP door, and models of backends whose
servers load and unload them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.commands import replicas
from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from hocket.schemas.messages import BackendControl, BackendControlled

KEY_BYTES = 32
ANSWER_MARGIN_MS = 5_000.0
RUN_ID = r"r[0-9a-f]{24}"
MAX_SHOWN = 200

app = typer.Typer(
    help="The gateway: explain calls; replicas and experiments; keys for its HTTP door.",
    no_args_is_help=True,
)
replicas.add_to(app)

Backend = Annotated[
    str, typer.Argument(help="A backend's name; `name/replica` where it has several.")
]
Experiment = Annotated[str, typer.Argument(help="An experiment's name.")]
ArmName = Annotated[str, typer.Argument(help="One of its arms, not the control.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
TimeoutS = Annotated[float, typer.Option(min=1, max=3_600, help="How long it may take.")]


@app.command("explain")
def explain(
    context: typer.Context,
    call: Annotated[str, typer.Argument(help="A call's id, or a run's for all of its calls.")],
    as_json: AsJson = False,
) -> None:
    """Show how a call came to its backend: what was looked at, why one was chosen, what became of it."""
    import re

    from hocket.cli.drawing.decisions import explained_lines
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.console import notes, out, print_json
    from hocket.cli.terminal.errors import ApiRefused

    api = target_of(context).api()
    unknown: ApiRefused | None = None
    found = shown = {}
    if not re.fullmatch(RUN_ID, call):
        try:
            found = shown = api.get(path("calls", call))
        except (
            ApiRefused
        ) as error:  # a run's id, perhaps: callers of the HTTP door choose their own
            unknown = error
    if not found:
        found = api.get("/v1/calls", run=call, limit=MAX_SHOWN)
        if unknown is not None and not found["calls"]:
            raise unknown
        shown = {"attempts": found["calls"]}
    if as_json:
        print_json(found)
        return
    for line in explained_lines(shown):
        out.print(line)
    if not any(shown.values()):
        out.print("The run has made no calls that are booked.")
    if found.get("truncated"):
        notes.print(f"There are more than {MAX_SHOWN}.", style="dim")


@app.command("experiments")
def experiments(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """Show the experiments: each arm's share, what was seen of it lately, and whether it is off."""
    from hocket.cli.terminal.console import print_json

    found = target_of(context).api().get("/v1/experiments")["experiments"]
    if as_json:
        print_json(found)
        return
    _print_experiments(found)


@app.command("rollback")
def rollback(
    context: typer.Context, experiment: Experiment, arm: ArmName, as_json: AsJson = False
) -> None:
    """Switch an arm of an experiment off: its runs go to the control."""
    _switched(context, experiment, arm, "rollback", as_json=as_json)


@app.command("restore")
def restore(
    context: typer.Context, experiment: Experiment, arm: ArmName, as_json: AsJson = False
) -> None:
    """Switch an arm on again, and forget what was seen of it."""
    _switched(context, experiment, arm, "restore", as_json=as_json)


@app.command("load")
def load(
    context: typer.Context, backend: Backend, timeout_s: TimeoutS = 300, as_json: AsJson = False
) -> None:
    """Load the backend's model, or load it again."""
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="load", backend=backend, timeout_ms=timeout_s * 1000)
    done = _controlled(context, wanted)
    _say(done, f"{backend} is {'ready' if done.ready else 'not ready yet'}", as_json=as_json)


@app.command("unload")
def unload(
    context: typer.Context, backend: Backend, timeout_s: TimeoutS = 60, as_json: AsJson = False
) -> None:
    """Unload the backend's model; calls to it fail until it is loaded again."""
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="unload", backend=backend, timeout_ms=timeout_s * 1000)
    done = _controlled(context, wanted)
    _say(done, f"{backend} is {'still ready' if done.ready else 'unloaded'}", as_json=as_json)


@app.command("status")
def status(context: typer.Context, backend: Backend, timeout_s: TimeoutS = 10) -> None:
    """Print whether the backend's model is ready, and what its server counted, as JSON."""
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="status", backend=backend, timeout_ms=timeout_s * 1000)
    _say(_controlled(context, wanted), "", as_json=True)


@app.command("key")
def key(
    name: Annotated[str, typer.Argument(help="Whose key it is, for people.")],
    tenant: Annotated[str, typer.Option(help="Whose calls come with it.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Make a key for the HTTP door, and print what the configuration needs to know of it.

    The key itself is printed once and kept nowhere.
    """
    import secrets

    from hocket.cli.terminal.console import print_json
    from hocket.gateway.core.config.access import KEY_PREFIX, hashed
    from hocket.schemas.subjects import check_token

    made = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    check_token("--tenant", tenant)
    if as_json:
        print_json({"key": made, "name": name, "sha256": hashed(made), "tenant": tenant})
        return
    typer.echo(f"# the key, for {name}: {made}")
    typer.echo("access:\n  keys:")
    typer.echo(f"    - name: {name}\n      sha256: {hashed(made)}")
    typer.echo(f"      tenant: {tenant}")


def _say(done: "BackendControlled", text: str, *, as_json: bool) -> None:
    from hocket.cli.terminal.console import print_json

    print_json(done.model_dump(exclude={"error"})) if as_json else typer.echo(text)


def _switched(
    context: typer.Context, experiment: str, arm: str, action: str, *, as_json: bool
) -> None:
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.console import print_json

    place = path("experiments", experiment, "arms", arm, action)
    found = target_of(context).api().post(place)["experiments"]
    changed = [one for one in found if one["experiment"] == experiment]
    print_json(changed) if as_json else _print_experiments(changed)


def _print_experiments(found: list[dict[str, Any]]) -> None:
    from hocket.cli.drawing.amounts import count
    from hocket.cli.terminal.console import out, print_table

    if not found:
        out.print("There are no experiments. Add `experiments:` to the configuration.")
        return
    rows = [
        (
            one["experiment"],
            arm["arm"],
            arm["model"],
            f"{arm['weight'] / sum(other['weight'] for other in one['arms']):.1%}",
            count(arm["calls"]),
            *(_rate(arm[kind]) for kind in ("errors", "slow", "outcomes")),
            _state(one, arm),
        )
        for one in found
        for arm in one["arms"]
    ]
    columns = "EXPERIMENT ARM MODEL SHARE CALLS FAILED SLOW UNSUCCESSFUL STATE".split()
    print_table(columns, rows, numbers=("SHARE", "CALLS", "FAILED", "SLOW", "UNSUCCESSFUL"))


def _rate(seen: list[int]) -> str:
    bad, of = seen
    return f"{bad} of {of}"


def _state(experiment: dict[str, Any], arm: dict[str, Any]) -> str:
    if arm["off"]:
        return f"off: {arm['reason']}, by {arm['by']}"
    if arm["control"]:
        return "control"
    return "on" if experiment["judged"] else "on, not judged"


def _controlled(context: typer.Context, wanted: "BackendControl") -> "BackendControlled":
    """Return what a gateway says, or raise its error."""
    import asyncio

    from hocket.cli.terminal.errors import ApiRefused

    done = asyncio.run(_ask(target_of(context).nats_url, wanted))
    if done.error is not None:
        raise ApiRefused(done.error)
    return done


async def _ask(nats_url: str, wanted: "BackendControl") -> "BackendControlled":
    from hocket.kit.nats.bus import Bus
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
