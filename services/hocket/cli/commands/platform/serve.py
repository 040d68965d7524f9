"""`hocket serve`: run one of the platform's processes, as in a container."""

import os
import sys
from typing import Annotated

import typer

from hocket.cli.local.service_modules import MODULES


def serve(
    service: Annotated[str, typer.Argument(help=f"Process to run: {', '.join(MODULES)}.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Arguments for the process, after `--`; for a worker: `-- --types python,llm`."
        ),
    ] = None,
) -> None:
    """Run one process of a platform that uses your own NATS and Postgres (NATS_URL, DATABASE_URL).

    Settings are environment variables; a secret can be read from a file, by setting NAME_FILE to its
    path. On SIGTERM, the process finishes its work and exits.
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
