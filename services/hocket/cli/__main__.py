"""The `hocket` command: runs it, and turns what goes wrong into one line and an exit code."""

import sys

from hocket.cli import exit_codes
from hocket.cli.app import app


def main() -> None:
    """Run the command line of this process."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
    except Exception as error:
        sys.exit(_reported(error))


def _reported(error: Exception) -> int:
    """Say in one line what is wrong and return the exit code; raise what is a fault of ours."""
    from hocket.cli.errors import exit_code
    from hocket.cli.visible import visible
    from hocket.schemas.errors import HocketError

    if not isinstance(error, HocketError):
        raise error
    sys.stderr.write(f"Error: {visible(str(error))}\n")
    return exit_code(error)


if __name__ == "__main__":
    main()
