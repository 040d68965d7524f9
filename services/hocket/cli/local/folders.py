"""The default data folder, the same as that of the embedded servers, without importing them."""

import os
from pathlib import Path


def default_data_dir() -> Path:
    """Return the user's data folder for Hocket (XDG base directory specification)."""
    base = os.environ.get("XDG_DATA_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return root / "hocket"
