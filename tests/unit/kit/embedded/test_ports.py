"""Ports that are chosen before a server listens on them."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from hocket.kit.embedded.ports import new_port, port_is_free, remembered_port
from support.shared.ipv6 import needs_ipv6

CHOOSES = """
import sys
from pathlib import Path
from hocket.kit.embedded.ports import new_port
print(new_port(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_a_port_that_another_process_chose_is_not_chosen_until_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHOOSES, str(tmp_path / "theirs.port")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        mine = tmp_path / "mine.port"
        mine.write_text(f"{theirs}\n")
        assert remembered_port(mine) != theirs
        other.communicate("")
    mine.write_text(f"{theirs}\n")
    assert remembered_port(mine) == theirs


def test_a_process_keeps_the_port_that_it_chose_for_a_file(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.port" for number in range(3)]
    chosen = [new_port(file) for file in files]
    assert len(set(chosen)) == len(chosen)
    assert [remembered_port(file) for file in files] == chosen


@needs_ipv6
def test_a_port_is_looked_for_on_the_address_that_listens(tmp_path: Path) -> None:
    with ExitStack() as stack:
        taken = [
            stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
            for _ in range(20)
        ]
        ports = [one.getsockname()[1] for one in taken]
        assert not any(port_is_free(port, "::1") for port in ports)
        assert any(map(port_is_free, ports))  # others may have some of them on 127.0.0.1

        file = tmp_path / "api.port"
        file.write_text(f"{ports[0]}\n")
        assert remembered_port(file, "::1") != ports[0]


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "a..b"])
def test_no_port_is_taken_of_an_address_that_this_machine_does_not_have(host: str) -> None:
    """The server says what is wrong with it."""
    assert port_is_free(8080, host)
