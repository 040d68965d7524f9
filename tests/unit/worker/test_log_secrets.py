"""What a worker writes to its standard output shows no secrets, whoever logs it."""

import os
import subprocess
import sys

import pytest

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


UNREADABLE = """
import structlog
from hocket.worker.command import _configure_logs

class Bad:
    def __repr__(self):
        raise ValueError("no text")

_configure_logs("nats://h:4222")
structlog.get_logger().info("begun", bad=Bad(), number=7)
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_value_that_cannot_be_read_does_not_fail_the_code_that_logs_it(form: str) -> None:
    command = [sys.executable, "-c", UNREADABLE]
    environment = os.environ | {"HOCKET_LOG_FORMAT": form}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert "begun" in done.stdout
    assert "7" in done.stdout
    assert "(a value that cannot be written down)" in done.stdout
