"""Ports that are chosen before a server listens on them."""

import subprocess
import sys
from pathlib import Path

from hocket.kit.embedded.ports import new_port, remembered_port

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
