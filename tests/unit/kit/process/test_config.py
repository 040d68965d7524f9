"""The configuration file: what is not plain data is refused with its place, in any section."""

import itertools
from pathlib import Path

import pytest

from hocket.kit.process.config import load
from hocket.schemas.errors import InvalidInput


def read(folder: Path, text: str | bytes) -> dict[str, object]:
    file = folder / "hocket.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(file)


def test_dates_are_text(tmp_path: Path) -> None:
    found = read(tmp_path, "models: {day: 2024-02-01, at: 2024-13-45, y: on}\n")
    assert found == {"models": {"day": "2024-02-01", "at": "2024-13-45", "y": True}}


LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, key in itertools.pairwise("abcdefgh")
)
"""A hundred million values, by aliases."""


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("models: {a: .nan}", "models.a", "finite"),
        ("models: {a: [-.inf]}", "models.a.0", "finite"),
        ("models: {1: a}", "models", "the key 1 is not text"),
        ("models: {on: a}", "models", "the key True is not text"),
        ('models: {"\\0": a}', "models", "U+0000"),
        ('databases: {a: "\\ud800"}', "hocket.yaml", "column 19: found invalid Unicode"),
        ("models: !!set {a, b}", "models", "set"),
        ("models: !!binary aGk=", "models", "bytes"),
        ("models: [[[" + "[" * 70 + "]" * 70 + "]]]", "models", "64 levels"),
        ("1: {}", "hocket.yaml", "the section 1"),
        ("models: {}\nmodels: {}", "hocket.yaml", "the key `models` is used twice"),
        ("models: " + "[" * 3_000, "hocket.yaml", "nests too deep"),
        (f"models: {{a: {'1' * 5_000}}}", "hocket.yaml", "digits"),
        ("models: &a [*a, *a]", "hocket.yaml", ""),
        (LAUGHS, "hocket.yaml", "1000000 values"),
        (b"models: \xff\xfe", "hocket.yaml", "not YAML"),
        ("models: {a: \x00}", "hocket.yaml", "not YAML"),
        ("models: !!python/object:os.system x", "hocket.yaml", "could not determine"),
        ("[]", "hocket.yaml", "not a mapping"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_refused_with_its_place(
    tmp_path: Path, text: str | bytes, place: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, text)

    fields = refused.value.fields
    assert place in fields["field"], fields
    assert reason in fields["reason"], fields
    assert fields["cure"]


def test_a_file_that_is_not_there_is_refused_with_what_names_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Check HOCKET_CONFIG"):
        load(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="Check --config"):
        load(tmp_path / "none.yaml", named_by="--config")


def test_a_file_below_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell has replaced `~` in a variable."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "h.yaml").write_text("models: {}")
    assert load(Path("~/h.yaml")) == {"models": {}}
    with pytest.raises(InvalidInput, match=r"there is no such home folder\. Check HOCKET_CONFIG"):
        load(Path("~no-such-user-x/h.yaml"))
