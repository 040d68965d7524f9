"""`python -m hocket.workers [--types python,llm]`: a worker process, by default for every type."""

import argparse
import sys
from collections.abc import Sequence

from hocket.kit.lifecycle import run
from hocket.schemas.errors import HocketError
from hocket.workers.configuration import parse_types
from hocket.workers.process import serve


def main() -> None:
    """Read the command line and run until SIGTERM."""
    run("worker", serve(types_asked_for("python -m hocket.workers", __doc__)))


def types_asked_for(prog: str, description: str | None) -> Sequence[str]:
    """Return the node types that the command line of a worker names, or end with what is wrong."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--types", default="", help="node types to run, comma-separated")
    try:
        return parse_types(parser.parse_args().types)
    except HocketError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
