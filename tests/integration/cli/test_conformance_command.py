"""`hocket conformance worker`: what it prints for programs, and for a command that is none."""

from pathlib import Path

from support.shared.commands import run_hocket


def test_a_command_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """And what its servers log is not on standard output, where programs expect JSON."""
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = run_hocket("conformance", "worker", "--json", "--", "no-such-command", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "`no-such-command` cannot be started: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = run_hocket("conformance", "worker", "--json", "--", "sh", "-c", "exit 3", env=env)
    assert done.returncode == 1, done.stderr
    assert "ended with exit code 3 before an announcement" in done.stdout
    assert "did not arrive" not in done.stdout
