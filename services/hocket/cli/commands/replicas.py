"""`hocket gateway replicas`, `drain`, `resume`, `warm`, `reset`: the state of replicas and orders for
them; `rates` and `budgets`: how much of them is used."""

from typing import Annotated, Any

import typer

from hocket.cli.remote.target import target_of

Backend = Annotated[str, typer.Argument(help="Name of the backend in the configuration.")]
ReplicaKey = Annotated[
    str | None, typer.Option("--replica", help="Only this replica, `BACKEND/REPLICA`.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[
    str, typer.Option("--reason", help="Recorded in decisions and in the audit log.")
]


def replicas(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """Show the replicas of all backends, as seen by each gateway: breakers, calls, warmth, orders."""
    from hocket.cli.terminal.console import print_json

    found = target_of(context).api().get("/v1/backends")
    if as_json:
        print_json(found)
        return
    _print_replicas(found)


def rates(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """Show how much of each tenant and model rate limit was used in the last minute."""
    from hocket.cli.terminal.console import out, print_json, print_table

    found = target_of(context).api().get("/v1/model-rates")
    if as_json:
        print_json(found)
        return
    if not found["rates"]:
        out.print("No rate limit was used. Add `rates:` to the configuration.")
        return
    rows = [
        (
            one["tenant"] or "(all)",
            one["model"] or "(all)",
            _of(one["requests"], one["requests_per_min"]),
            _of(one["tokens"], one["tokens_per_min"]),
            str(one["waiting"]),
        )
        for one in found["rates"]
    ]
    columns = ("TENANT", "MODEL", "REQUESTS", "TOKENS", "WAITING")
    print_table(columns, rows, texts=("TENANT", "MODEL"))


def budgets(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how much of each configured budget is spent in the current hour, day or month."""
    from hocket.cli.drawing.amounts import money
    from hocket.cli.terminal.console import out, print_json, print_table

    found = target_of(context).api().get("/v1/costs/budgets")
    if as_json:
        print_json(found)
        return
    if not found["budgets"]:
        out.print("There are no budgets. Add `budgets:` to the configuration.")
        return
    rows = [
        (one["level"], one["name"], money(one["spent_usd"]), money(one["usd"]), one["per"])
        for one in found["budgets"]
    ]
    columns = ("OF", "NAME", "SPENT", "BUDGET", "PER")
    print_table(columns, rows, numbers=("SPENT", "BUDGET"), texts=("NAME",))


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,} of {limit:,}"


def drain(
    context: typer.Context,
    backend: Backend,
    replica: ReplicaKey = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Stop sending calls to a backend, from any gateway, until it is resumed; calls in flight finish."""
    _change(context, backend, "drain", replica, as_json=as_json, reason=reason)


def resume(
    context: typer.Context,
    backend: Backend,
    replica: ReplicaKey = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Resume sending calls to a drained backend."""
    _change(context, backend, "resume", replica, as_json=as_json, reason=reason)


def warm(
    context: typer.Context,
    backend: Backend,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes", min=0, max=10_080, help="How long, in minutes from now; 0 ends it."
        ),
    ] = 60,
    replica: ReplicaKey = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Start a backend's model now and keep it ready for a time."""
    for_s = minutes * 60
    _change(context, backend, "warm", replica, as_json=as_json, reason=reason, for_s=for_s)


def reset(
    context: typer.Context,
    backend: Backend,
    replica: ReplicaKey = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Close a backend's breakers at all gateways, and end any pause that it requested."""
    _change(context, backend, "reset", replica, as_json=as_json, reason=reason)


def add_to(app: typer.Typer) -> None:
    """Add these commands to a group."""
    for command in (replicas, rates, budgets, drain, resume, warm, reset):
        app.command(command.__name__)(command)


def _change(
    context: typer.Context,
    backend: str,
    action: str,
    replica: str | None,
    *,
    as_json: bool,
    **said: Any,
) -> None:
    from hocket.cli.remote.api import path
    from hocket.cli.terminal.console import print_json

    body = {"replica": replica, **said}
    found = target_of(context).api().post(path("backends", backend, action), body)
    print_json(found) if as_json else _print_replicas(found, backend)


def _print_replicas(found: dict[str, Any], backend: str | None = None) -> None:
    from hocket.cli.terminal.console import notes, out, print_table

    shown = [one for one in found["replicas"] if backend in (None, one["backend"])]
    if not shown:
        out.print("There are no backends. Add `models:` to the configuration.")
        return
    rows = [
        (
            one["replica"],
            ", ".join(one["models"]),
            _state(one),
            f"{one['in_flight']} of {one['limit']}",
            *(_of_all(one, name) for name in ("waiting", "openings")),
            _order(one),
        )
        for one in shown
    ]
    columns = "REPLICA SERVES STATE CALLS WAITING OPENED ORDER".split()
    print_table(columns, rows, numbers=("CALLS", "WAITING", "OPENED"), texts=("SERVES", "ORDER"))
    for name in found["silent"]:
        notes.print(f"Gateway {name} is alive but did not answer; its view is missing.")


def _state(one: dict[str, Any]) -> str:
    parts = ["drained"] if one["drained"] else []
    breakers = {seen["breaker"] for seen in one["gateways"]}
    if breakers != {"closed"}:
        worst = "open" if "open" in breakers else "half open"
        parts.append(f"breaker {worst} at {_hurt(one)}")
    if one["level"] not in (None, "ready"):
        parts.append("starting" if one["ready_at"] else one["level"])
    if any(seen["rests_ms"] for seen in one["gateways"]):
        parts.append("rests")
    return ", ".join(parts) or "serves"


def _hurt(one: dict[str, Any]) -> str:
    hurt = sum(seen["breaker"] != "closed" for seen in one["gateways"])
    return f"{hurt} of {len(one['gateways'])} gateways"


def _of_all(one: dict[str, Any], name: str) -> str:
    return str(sum(seen[name] for seen in one["gateways"]))


def _order(one: dict[str, Any]) -> str:
    from hocket.cli.drawing.amounts import local

    if not one["changed_at"]:
        return ""
    until = f"warm until {local(one['warm_until'])}, " if one["warm_until"] else ""
    reason = f": {one['reason']}" if one["reason"] else ""
    return f"{until}by {one['by']}{reason}"
