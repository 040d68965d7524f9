"""The console's scripts and styles, read from the package once. Their paths change with their
content."""

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from mimetypes import guess_type

NAMES = (
    "approvals.js",
    "bulk.js",
    "console.css",
    "console.js",
    "editor.js",
    "form.js",
    "graph.js",
    "histogram.js",
    "icon.svg",
    "live.js",
    "playground.js",
    "timeline.js",
    "vendor/dagre-3.1.3.min.js",
    "vendor/uplot-1.6.32.min.css",
    "vendor/uplot-1.6.32.min.js",
)
DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True)
class Asset:
    """A file with its media type, and the digest used in its path."""

    body: bytes
    compressed: bytes
    """The content compressed with gzip."""
    media_type: str
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return all files by name."""
    root = files("hocket.admin.console") / "static"
    found = {}
    for name in NAMES:
        body = root.joinpath(name).read_bytes()
        media_type = guess_type(name)[0] or "application/octet-stream"
        compressed = gzip.compress(body, mtime=0)
        found[name] = Asset(body, compressed, media_type, sha256(body).hexdigest()[:DIGEST_CHARS])
    return found


def asset_path(name: str) -> str:
    """Return the path of a file below the console's own."""
    return f"/assets/{assets()[name].digest}/{name}"
