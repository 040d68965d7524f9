"""`python -m hocket.workers [--types python,llm]`: a worker process, by default for every type."""

import argparse
import sys

from hocket.kit.lifecycle import run
from hocket.schemas.errors import HocketError
from hocket.workers.configuration import parse_types
from hocket.workers.process import serve


def main() -> None:
    """Read the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m hocket.workers", description=__doc__)
    parser.add_argument("--types", default="", help="node types to run, comma-separated")
    try:
        types = parse_types(parser.parse_args().types)
    except HocketError as error:
        sys.exit(str(error))
    run("worker", serve(types))


if __name__ == "__main__":
    main()
