"""Files that a variable names: no shell has replaced `~` in it."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.terminal import folders


def test_a_file_may_be_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "h.yaml").write_text("{}")
    assert folders.file("~/h.yaml") == tmp_path / "h.yaml"
    assert folders.file(str(tmp_path / "h.yaml")) == tmp_path / "h.yaml"


@pytest.mark.parametrize("text", ["~/none.yaml", "~", "~no-such-user-x/h.yaml", "none.yaml"])
def test_what_is_no_file_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(typer.BadParameter, match=f"File '{text}' "):
        folders.file(text)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [(("up", "--log-level", "loud"), "loud"), (("dev", "none.yaml"), "none.yaml")],
)
def test_the_configuration_of_a_command_is_looked_for_below_the_home_folder(
    words: tuple[str, ...], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read first, and something else is wrong."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "h.yaml").write_text("{}")
    command, *others = words
    done = CliRunner().invoke(app, [command, "--config", "~/h.yaml", *others])
    assert (done.exit_code, wrong in done.output, "h.yaml" in done.output) == (2, True, False)
    done = CliRunner().invoke(app, [command, "--config", "~/n.yaml", *others])
    assert (done.exit_code, "n.yaml" in done.output) == (2, True)
