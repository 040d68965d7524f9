"""The `hocket` command: runs it, and turns what goes wrong into one line and an exit code."""

import sys

from hocket.cli.app import app
from hocket.cli.terminal import exit_codes
from hocket.kit.process.process_secrets import read_files


def main() -> None:
    """Run the command line of this process."""
    try:
        read_files()
        app()
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
    except Exception as error:
        sys.exit(_reported(error))


def _reported(error: Exception) -> int:
    """Say in one line what is wrong and return the exit code; raise what is a fault of ours."""
    from hocket.cli.terminal.errors import exit_code
    from hocket.cli.terminal.safe_text import visible
    from hocket.schemas.errors import HocketError

    if not isinstance(error, HocketError):
        raise error
    sys.stderr.write(f"Error: {visible(str(error))}\n")
    return exit_code(error)


if __name__ == "__main__":
    main()
