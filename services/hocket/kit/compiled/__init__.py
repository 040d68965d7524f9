"""Parts that a wheel brings as C beside their sources (`make wheel`), and whether they are of these.

A library beside a module is loaded in its place, whatever the source says by now. So each process looks
when it starts, and serves only with parts that were made of the sources that lie beside them. A plain
checkout has no manifest, and no such parts.
"""

import json
from hashlib import blake2b
from pathlib import Path

from hocket.schemas.errors import HocketError

MANIFEST = Path(__file__).with_name("manifest.json")
TOP = Path(__file__).parents[3]
"""The folder that has `hocket`."""


class CompiledPartStale(HocketError):
    """`{module}` was changed after it was compiled, and the compiled part would run. Install the wheel
    again, or remove the `.so` files of {folder}."""

    code = "compiled_part_stale"


def digest_of(source: bytes) -> str:
    """Return what a module's source is known by."""
    return blake2b(source, digest_size=16).hexdigest()


def check_compiled(manifest: Path = MANIFEST, top: Path = TOP) -> int:
    """Return how many modules are compiled; raise CompiledPartStale for one whose source is another by
    now."""
    try:
        digests: dict[str, str] = json.loads(manifest.read_text("utf-8"))
    except FileNotFoundError:
        return 0
    for module, digest in digests.items():
        source = top / module
        if not source.exists() or digest_of(source.read_bytes()) != digest:
            raise CompiledPartStale(module=module, folder=str(top / "hocket"))
    return len(digests)
