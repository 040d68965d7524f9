"""`python -m hocket.workers [--types python,llm] [--handlers my_package] [--drain-s 10]`: a worker
process, by default for every type, and for `python` nodes with the functions of the packages that are
named."""

import argparse
import sys
from dataclasses import dataclass

from hocket.kit.process.process_secrets import start_without_secrets


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The options on the command line of a worker; None for those that are not given."""

    types: tuple[str, ...]
    handlers: str | None
    drain_s: float | None


def main() -> None:
    """Read the command line and run until SIGTERM."""
    start_without_secrets()  # before the slow imports
    from hocket.kit.process.lifecycle import run
    from hocket.workers.process import serve

    asked = command_line("python -m hocket.workers", __doc__)
    run(
        "worker",
        serve(asked.types, handlers=asked.handlers, drain_s=asked.drain_s),
        hide_secrets="*",
    )


def command_line(prog: str, description: str | None) -> CommandLine:
    """Return the options on the command line of a worker, or exit with an error message."""
    from hocket.schemas.errors import HocketError
    from hocket.workers.configuration import parse_drain, parse_types

    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(
        "--types",
        default="",
        help="node types to run, comma-separated; `python@gpu`: the steps of a queue",
    )
    parser.add_argument(
        "--handlers",
        help="modules whose functions `python` nodes may run, comma-separated; HOCKET_HANDLERS",
    )
    parser.add_argument(
        "--drain-s",
        help="how long running steps may go on when the worker is told to stop; `workers.drain_s`",
    )
    asked = parser.parse_args()
    try:
        drain_s = None if asked.drain_s is None else parse_drain(asked.drain_s)
        return CommandLine(parse_types(asked.types), asked.handlers, drain_s)
    except HocketError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
