"""Files of the data folder that only their owner may read: passwords, and files that contain them."""

import os
import secrets
from pathlib import Path

PASSWORD_BYTES = 24
DRAFT_BYTES = 4


def stored_password(file: Path) -> str:
    """Return the password in `file`; the first time, generate and store one."""
    try:
        return file.read_text("ascii").strip()
    except FileNotFoundError:
        password = new_password()
        write_private(file, password)
        return password


def new_password() -> str:
    """Return a random password of hexadecimal digits."""
    return secrets.token_hex(PASSWORD_BYTES)


def write_private(file: Path, text: str) -> None:
    """Replace the content of `file` by `text` and a newline, synced, with mode 0600 from the start. Of
    several processes that do so at once, one is the last, and none writes into another's draft."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(DRAFT_BYTES)}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text.rstrip("\n") + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
