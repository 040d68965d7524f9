"""`hocket serve`: this process becomes one of the platform's, as containers run them."""

import os
import sys
from typing import Annotated

import typer

from hocket.cli.local.service_modules import MODULES


def serve(
    service: Annotated[str, typer.Argument(help=f"Which: {', '.join(MODULES)}.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Its own arguments, after `--`: of a worker `-- --types python,llm`."),
    ] = None,
) -> None:
    """Be one process of a platform whose NATS_URL and DATABASE_URL name servers of your own.

    Settings are environment variables; a secret one may be in a file that NAME_FILE names. Ends on
    SIGTERM, after its work.
    """
    from hocket.cli.terminal.errors import ProcessUnknown
    from hocket.kit.process import process_secrets

    if service not in MODULES:
        raise ProcessUnknown(process=service, known=", ".join(MODULES))
    plain, secrets = process_secrets.split(os.environ)
    if secrets:
        descriptor = process_secrets.handed_over(secrets)
        os.set_inheritable(descriptor, True)
        plain[process_secrets.PIPE] = str(descriptor)
    command = [sys.executable, "-m", MODULES[service], *(arguments or ())]
    os.execve(sys.executable, command, plain)
