"""The capability key of a platform on one machine: created at the first start."""

import secrets
from pathlib import Path

from hocket.kit.embedded.secret_files import write_private

CAPABILITY_KEY = "HOCKET_CAPABILITY_KEY"
USAGE_KEY = "HOCKET_USAGE_KEY"
FILE = "capability.key"
_BYTES = 32


def kept_key(data_dir: Path) -> str:
    """Return the key of a data folder, creating it if there is none; only its user can read it. A start
    that was killed at the wrong moment left an empty file, which is no key."""
    path = data_dir / FILE
    if not (path.exists() and path.read_text().strip()):
        write_private(path, secrets.token_hex(_BYTES))
    return path.read_text().strip()
