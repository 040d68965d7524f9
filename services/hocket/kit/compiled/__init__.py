"""Modules that a wheel also ships compiled (`make wheel`), and a check that they match their sources.

A shared library next to a module is loaded instead of it, even if the source has changed since. So each
process checks at its start that every compiled module was built from the source next to it, and refuses
to run otherwise. A plain checkout has no manifest, and no compiled modules.
"""

import json
from hashlib import blake2b
from pathlib import Path

from hocket.schemas.errors import HocketError

MANIFEST = Path(__file__).with_name("manifest.json")
TOP = Path(__file__).parents[3]
"""The folder that contains `hocket`."""


class CompiledPartStale(HocketError):
    """`{module}` was changed after it was compiled, but the compiled part would still run. Install the
    wheel again, or remove the `.so` files of {folder}."""

    code = "compiled_part_stale"


def digest_of(source: bytes) -> str:
    """Return the hash that identifies a module's source."""
    return blake2b(source, digest_size=16).hexdigest()


def check_compiled(manifest: Path = MANIFEST, top: Path = TOP) -> int:
    """Return how many modules are compiled; raise CompiledPartStale for one whose source has changed."""
    try:
        digests: dict[str, str] = json.loads(manifest.read_text("utf-8"))
    except FileNotFoundError:
        return 0
    for module, digest in digests.items():
        source = top / module
        if not source.exists() or digest_of(source.read_bytes()) != digest:
            raise CompiledPartStale(module=module, folder=str(top / "hocket"))
    return len(digests)
