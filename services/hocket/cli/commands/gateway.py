"""`hocket gateway`: routing decisions of calls, keys for its HTTP door, and models of backends whose
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
    help="Gateway: explain calls, manage replicas and experiments, create keys for its HTTP door.",
    no_args_is_help=True,
)
replicas.add_to(app)

Backend = Annotated[
    str, typer.Argument(help="Name of the backend; `name/replica` if it has several replicas.")
]
Experiment = Annotated[str, typer.Argument(help="Name of the experiment.")]
ArmName = Annotated[str, typer.Argument(help="Name of one of its arms, other than the control.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutS = Annotated[float, typer.Option(min=1, max=3_600, help="Timeout in seconds.")]


@app.command("explain")
def explain(
    context: typer.Context,
    call: Annotated[str, typer.Argument(help="ID of a call, or of a run to show all its calls.")],
    as_json: AsJson = False,
) -> None:
    """Show how a call was routed: the candidates, why one was chosen, and the outcome."""
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
        except ApiRefused as error:  # perhaps a run id: callers of the HTTP door choose their own
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
        out.print("No calls are booked for this run.")
    if found.get("truncated"):
        notes.print(f"Only the first {MAX_SHOWN} are shown.", style="dim")


@app.command("experiments")
def experiments(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """Show the experiments: each arm's share, its recent results, and whether it is off."""
    from hocket.cli.terminal.console import print_json

    found = target_of(context).api().get("/v1/experiments")["experiments"]
    if as_json:
        print_json(found)
        return
    _print_experiments(found)


@app.command("outcome")
def outcome(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="ID of the run, as its calls named it.")],
    good: Annotated[bool, typer.Option("--good/--bad", help="Whether its result was good.")],
    as_json: AsJson = False,
) -> None:
    """Report whether a run's result was good; experiments judge their arms by it."""
    from hocket.cli.terminal.console import print_json

    body = {"run_id": run, "good": good}
    sent = target_of(context).api().post("/v1/experiments/outcomes", body)
    if as_json:
        print_json(sent)
        return
    typer.echo(f"{run} is reported as {'good' if good else 'bad'}")


@app.command("rollback")
def rollback(
    context: typer.Context, experiment: Experiment, arm: ArmName, as_json: AsJson = False
) -> None:
    """Switch off an arm of an experiment: its runs go to the control."""
    _switched(context, experiment, arm, "rollback", as_json=as_json)


@app.command("restore")
def restore(
    context: typer.Context, experiment: Experiment, arm: ArmName, as_json: AsJson = False
) -> None:
    """Switch an arm back on and discard its past results."""
    _switched(context, experiment, arm, "restore", as_json=as_json)


@app.command("load")
def load(
    context: typer.Context, backend: Backend, timeout_s: TimeoutS = 300, as_json: AsJson = False
) -> None:
    """Load the backend's model, or reload it."""
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
    """Print whether the backend's model is ready, and its server's counters, as JSON."""
    from hocket.schemas.messages import BackendControl

    wanted = BackendControl(action="status", backend=backend, timeout_ms=timeout_s * 1000)
    _say(_controlled(context, wanted), "", as_json=True)


@app.command("key")
def key(
    name: Annotated[str, typer.Argument(help="Human-readable name of the key: who it is for.")],
    tenant: Annotated[
        str, typer.Option(help="Tenant to which calls with this key belong.")
    ] = "default",
    as_json: AsJson = False,
) -> None:
    """Create a key for the HTTP door, and print its configuration entry.

    The key itself is printed once and not stored anywhere.
    """
    import secrets

    from hocket.cli.terminal.console import print_json
    from hocket.cli.terminal.safe_text import visible_yaml
    from hocket.gateway.core.config.access import KEY_PREFIX, hashed
    from hocket.schemas.subjects import check_token

    made = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    check_token("--tenant", tenant)
    entry = {"name": name, "sha256": hashed(made), "tenant": tenant}
    _check_entry(entry)
    if as_json:
        print_json({"key": made, **entry})
        return
    typer.echo(f"# the key, for {name}: {made}")
    typer.echo(visible_yaml({"access": {"keys": [entry]}}), nl=False)


def _check_entry(entry: dict[str, str]) -> None:
    """Raise InvalidInput for a key whose name a gateway would refuse in its configuration."""
    from hocket.gateway.core.config.access import parse_access
    from hocket.schemas.errors import HocketError, InvalidInput

    try:
        parse_access({"keys": [entry]}, {})
    except HocketError as error:
        told = {name: error.fields[name] for name in ("reason", "cure")}
        raise InvalidInput(field="NAME", **told) from error


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
    numbers = ("SHARE", "CALLS", "FAILED", "SLOW", "UNSUCCESSFUL")
    print_table(columns, rows, numbers=numbers, texts=("MODEL", "STATE"))


def _rate(seen: list[int]) -> str:
    bad, of = seen
    return f"{bad} of {of}"


def _state(experiment: dict[str, Any], arm: dict[str, Any]) -> str:
    if arm["off"]:
        return f"off: {arm['reason']}, by {arm['by']}"
    if arm["control"]:
        return "control"
    if arm["reason"]:  # it is off for some tenants
        return f"off {arm['reason']}, by {arm['by']}"
    return "on" if experiment["judged"] else "on, not judged"


def _controlled(context: typer.Context, wanted: "BackendControl") -> "BackendControlled":
    """Return a gateway's answer, or raise its error."""
    import asyncio

    from hocket.cli.terminal.console import notes
    from hocket.cli.terminal.errors import ApiRefused
    from hocket.cli.terminal.log_lines import show_warnings

    show_warnings(notes)
    done = asyncio.run(_ask(target_of(context).nats_url, wanted))
    if done.error is not None:
        raise ApiRefused(done.error)
    return done


async def _ask(nats_url: str, wanted: "BackendControl") -> "BackendControlled":
    from hocket.cli.remote.messaging import connected_bus
    from hocket.schemas import subjects
    from hocket.schemas.messages import BackendControlled

    async with connected_bus(nats_url, "hocket gateway") as bus:
        message = await bus.request(
            subjects.GATEWAY_CONTROL,
            wanted.model_dump_json().encode(),
            timeout_ms=wanted.timeout_ms + ANSWER_MARGIN_MS,
        )
    return BackendControlled.model_validate_json(message.data)
