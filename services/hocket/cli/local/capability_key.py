"""The capability key of a platform on one machine: created at the first start."""

import os
import secrets
from pathlib import Path

CAPABILITY_KEY = "HOCKET_CAPABILITY_KEY"
USAGE_KEY = "HOCKET_USAGE_KEY"
FILE = "capability.key"
_BYTES = 32


def kept_key(data_dir: Path) -> str:
    """Return the key of a data folder, creating it if there is none; only its user can read it."""
    path = data_dir / FILE
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(opened, "w") as file:
        file.write(secrets.token_hex(_BYTES))
    return path.read_text().strip()
