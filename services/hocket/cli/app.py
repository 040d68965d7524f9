"""The command line: its commands, and the options before them."""

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import commands
from hocket.cli.remote.contexts import CONTEXT_ENV
from hocket.cli.remote.target import API_ENV, DEFAULT_TENANT, NATS_NAMES, Target
from hocket.cli.terminal import folders
from hocket.cli.terminal.usage_errors import Commands

app = typer.Typer(
    name="hocket",
    cls=Commands,
    help="Event-driven orchestration for compound AI: every run has a deadline, a budget and a ledger.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `hocket up`; it prints the next steps.",
)


@app.callback()
def options(
    context: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            parser=folders.path,
            envvar="HOCKET_DATA_DIR",
            help="Data folder of the platform to talk to. Default: ~/.local/share/hocket.",
            show_default=False,
        ),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option(
            envvar=API_ENV, help="URL of the REST API; overrides the one found in the data folder."
        ),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(
            envvar=NATS_NAMES,
            help="URL of NATS; overrides the one found in the data folder.",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            envvar="HOCKET_TENANT",
            help="Tenant to act for, when using an all-tenants key. Default: `default`.",
            show_default=False,
        ),
    ] = None,
    named: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar=CONTEXT_ENV,
            help="Context (platform) to talk to instead of the current one; see `hocket context list`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    context.obj = Target(
        data_dir=_folder(data_dir),
        named_tenant=_tenant(tenant),
        named_api=api,
        named_nats=nats,
        named_context=named or None,
        is_folder_named=data_dir is not None,
    )


commands.add_to(app)


def _folder(named: Path | None) -> Path:
    if named is not None:
        return named.expanduser().absolute()
    from hocket.kit.process.platform_facts import default_data_dir

    return default_data_dir()


def _tenant(named: str | None) -> str | None:
    if named in (None, DEFAULT_TENANT):
        return named
    from hocket.schemas.subjects import check_token

    return check_token("--tenant", named)
