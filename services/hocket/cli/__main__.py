"""Runs the `hocket` command, and turns errors into one line and an exit code."""

import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.cli.app import app
from hocket.cli.terminal import exit_codes
from hocket.kit.process.process_secrets import read_files

if TYPE_CHECKING:
    from hocket.schemas.errors import HocketError

MAX_REASON_CHARS = 300
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a write to standard output fails with where it goes to a file, or to a terminal that is gone."""


def main() -> None:
    """Run the command line of this process."""
    _show_whatever_is_written()
    try:
        read_files()
        _run()
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
    except Exception as error:
        sys.exit(_reported(error))


def _run() -> None:
    """Run the command, and write what is left of its output: as it ends, Python would say in its own way
    that it cannot."""
    try:
        app()
    except SystemExit:
        sys.stdout.flush()
        raise


def _show_whatever_is_written() -> None:
    """Write characters that the terminal's encoding lacks as escapes: names, outputs and drawings have
    all kinds, and an encoding such as Latin-1 is no reason to fail. What goes to a stream that was
    closed (`>&-`) is dropped."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIOWrapper:
    return Path(os.devnull).open("w", encoding="utf-8")


def _reported(error: Exception) -> int:
    """Report an error in one line and return the exit code; raise it if it is an internal error."""
    from hocket.cli.terminal.errors import OutputUnwritable, exit_code
    from hocket.cli.terminal.safe_text import visible
    from hocket.schemas.errors import HocketError

    if isinstance(error, OSError) and error.filename is None:
        if error.errno == errno.EPIPE:  # whoever reads it has seen enough, as `head` does
            sys.stdout = _nowhere()
            return exit_codes.FAILED
        if error.errno in UNWRITABLE:
            sys.stdout = _nowhere()
            error = OutputUnwritable(reason=error.strerror)
    if not isinstance(error, HocketError):
        error = _about_an_answer(error)
    with suppress(OSError):
        sys.stderr.write(f"Error: {visible(str(error))}\n")
    return exit_code(error)


def _about_an_answer(error: Exception) -> "HocketError":
    """Return the error for an answer that is not from Hocket; raise internal errors."""
    import traceback

    from hocket.cli.remote.api import answered
    from hocket.cli.terminal.errors import AnswerNotUnderstood

    if not answered or not isinstance(error, LookupError | TypeError | ValueError | AttributeError):
        raise error
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{Path(frame.f_code.co_filename).name}:{line}"
    reason = f"{type(error).__name__}: {error}"[:MAX_REASON_CHARS]
    return AnswerNotUnderstood(url=answered[-1], reason=f"{reason}, at {place}")


if __name__ == "__main__":
    main()
