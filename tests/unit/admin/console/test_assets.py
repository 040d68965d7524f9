import gzip

from hocket.admin.console.assets import NAMES, assets

MOST_BYTES = 70_000


def test_all_scripts_together_are_small_and_all_files_are_served() -> None:
    scripts = [asset.body for name, asset in assets().items() if name.endswith(".js")]

    assert sum(len(gzip.compress(body)) for body in scripts) < MOST_BYTES
    assert set(assets()) == set(NAMES)
