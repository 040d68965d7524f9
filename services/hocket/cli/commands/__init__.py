"""One module per command or group of commands."""

from importlib import import_module
from importlib.util import find_spec

import typer

from hocket.cli.commands import gateway, version
from hocket.cli.commands.access import audit, contexts, data, grants, keys, login
from hocket.cli.commands.pipelines import (
    conformance,
    index,
    pipeline,
    releases,
    schedules,
    schema,
    types,
)
from hocket.cli.commands.platform import (
    backup,
    config,
    console,
    dev,
    doctor,
    emulate,
    mcp,
    migrate,
    nats,
    parts,
    serve,
    up,
)
from hocket.cli.commands.reports import cost, report_login
from hocket.cli.commands.runs import (
    approvals,
    bulk,
    compare,
    dlq,
    export,
    flow,
    logs,
    record,
    run,
    runs,
    trace,
    webhooks,
)
from hocket.cli.importing import command


def add_to(app: typer.Typer) -> None:
    """Add all commands, in the order in which `--help` shows them."""
    app.command("up")(up.up)
    if find_spec("hocket.cli.local.demo") is not None:
        app.command("demo")(import_module("hocket.cli.local.demo").demo)
    app.command("doctor")(doctor.doctor)
    app.add_typer(config.app, name="config")
    releases.add_to(pipeline.app)
    app.add_typer(pipeline.app, name="pipeline")
    app.add_typer(command.app, name="import")
    app.command("run")(run.run)
    app.command("dev")(dev.dev)
    runs.app.command("compare")(compare.compare)
    runs.app.command("export")(export.export)
    runs.app.command("record")(record.record)
    runs.app.command("approvals")(approvals.approvals)
    runs.app.command("approve")(approvals.approve)
    runs.app.command("refuse")(approvals.refuse)
    runs.app.command("signal")(approvals.signal)
    runs.app.command("submit")(bulk.submit)
    runs.app.command("bulk-cancel")(bulk.bulk_cancel)
    runs.app.command("bulk-retry")(bulk.bulk_retry)
    runs.app.command("bulk-show")(bulk.bulk_show)
    runs.app.command("bulk-stop")(bulk.bulk_stop)
    app.add_typer(runs.app, name="runs")
    app.add_typer(flow.app, name="flow")
    app.add_typer(schedules.app, name="schedules")
    app.add_typer(webhooks.app, name="webhooks")
    app.command("trace")(trace.trace)
    app.command("logs")(logs.logs)
    app.command("console")(console.console)
    app.command("types")(types.types)
    app.command("cost")(cost.cost)
    app.add_typer(index.app, name="index")
    app.add_typer(dlq.app, name="dlq")
    app.add_typer(gateway.app, name="gateway")
    app.add_typer(conformance.app, name="conformance")
    app.command("mcp")(mcp.mcp)
    app.command("emulate")(emulate.emulate)
    app.command("login")(login.login)
    app.command("logout")(login.logout)
    app.add_typer(contexts.app, name="context")
    app.add_typer(keys.app, name="keys")
    app.add_typer(grants.app, name="grants")
    app.add_typer(audit.app, name="audit")
    app.add_typer(data.app, name="data")
    app.add_typer(parts.app, name="platform")
    app.add_typer(nats.app, name="nats")
    app.command("migrate")(migrate.migrate)
    app.command("backup")(backup.backup)
    app.command("restore")(backup.restore)
    app.command("serve")(serve.serve)
    app.add_typer(report_login.app, name="report-login")
    app.command("schema")(schema.schema)
    app.command("version")(version.version)
