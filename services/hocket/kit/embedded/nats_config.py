"""The configuration of the embedded NATS server."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from hocket.kit.access.nats_accounts import accounts_text
from hocket.kit.embedded.ports import LOOPBACK
from hocket.schemas.access.nats_table import PLATFORM_ACCOUNT

FORMER_ACCOUNT = "$G"
"""The default account, in which servers without configured accounts keep their streams."""
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_CONNECTIONS = 4_096
WRITE_DEADLINE_S = 10
MEMORY_STORE_MAX_BYTES = 256 * 1024 * 1024
FILE_STORE_MIN_BYTES = 1024 * 1024 * 1024
FILE_STORE_DISK_SHARE = 0.5
FILE_STORE_MAX_SHARE = 0.8
"""The largest share of a disk that is so small that half of it is less than FILE_STORE_MIN_BYTES."""


def config_text(
    store_dir: Path, *, server_name: str, port: int, passwords: Mapping[str, str], issuer: str
) -> str:
    """Return the configuration file of a server; `accounts_text` describes `passwords` and `issuer`."""
    return (
        "# Written anew on every start.\n"
        f"server_name: {json.dumps(server_name)}\n"
        f"host: {json.dumps(LOOPBACK)}\n"
        f"port: {port}\n"
        f"{accounts_text(passwords, issuer)}"
        f"max_payload: {MAX_PAYLOAD_BYTES}\n"
        f"max_connections: {MAX_CONNECTIONS}\n"
        f'write_deadline: "{WRITE_DEADLINE_S}s"\n'
        "jetstream {\n"
        f"  store_dir: {json.dumps(str(store_dir), ensure_ascii=False)}\n"
        "  sync_interval: always\n"
        f"  max_memory_store: {MEMORY_STORE_MAX_BYTES}\n"
        f"  max_file_store: {_file_store_max_bytes(store_dir)}\n"
        "}\n"
    )


def _file_store_max_bytes(store_dir: Path) -> int:
    stored = sum(f.stat().st_size for f in store_dir.rglob("*") if f.is_file())
    room = stored + shutil.disk_usage(store_dir).free
    least = min(FILE_STORE_MIN_BYTES, int(room * FILE_STORE_MAX_SHARE))
    return max(least, stored, int(room * FILE_STORE_DISK_SHARE))


def take_over_streams(store_dir: Path) -> None:
    """Move the streams of a release whose NATS had no accounts into the platform's account."""
    kept = store_dir / "jetstream"
    former, present = kept / FORMER_ACCOUNT, kept / PLATFORM_ACCOUNT
    if former.is_dir() and not present.exists():
        former.rename(present)
