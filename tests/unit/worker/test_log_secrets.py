"""What a worker writes to its standard output shows no secrets, whoever logs it."""

import subprocess
import sys

PROGRAM = """
import logging
from hocket.worker.command import _configure_logs

_configure_logs("nats://team:pw-4711-abc@h:4222")
try:
    raise OSError("cannot reach nats://team:pw-4711-abc@h:4222")
except OSError:
    logging.getLogger("somebody.nats").exception("lost; password was %s", "pw-4711-abc")
"""


def test_lines_of_libraries_show_no_password() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "ERROR:somebody.nats:lost; password was ***" in done.stdout
    assert "nats://team:***@h:4222" in done.stdout
    assert "4711" not in done.stdout + done.stderr
