"""The published page of settings is that of the settings as they are, and each says what it is for."""

from hocket.cli.settings_page import page
from hocket.kit.process.settings import Settings
from support.places import ROOT


def test_the_published_page_is_current() -> None:
    assert (ROOT / "docs/reference/settings.md").read_text("utf-8") == page(), "run `make docs`"


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
