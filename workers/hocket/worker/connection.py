"""Finds the platform: from explicit arguments, then from the environment, then from the platform that
uses this machine's data folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from hocket.kit.process import process_secrets
from hocket.kit.process.platform_facts import PlatformFacts, blobs_of, default_data_dir, read_facts
from hocket.worker.errors import BlobsNotFound

NATS_VARIABLES = ("HOCKET_NATS_URL", "NATS_URL")
DATA_DIR = "HOCKET_DATA_DIR"
BLOBS_DIR = "HOCKET_BLOBS_DIR"
DEFAULT_NATS_URL = "nats://127.0.0.1:4222"


@dataclass(frozen=True, slots=True)
class Place:
    """The address of NATS, and the folder of large values (None if this worker has none)."""

    nats_url: str
    blobs: Path | None


def place_of(nats_url: str | None = None, blobs: Path | None = None) -> Place:
    """Return where the platform is; raise BlobsNotFound if a folder is named but does not exist, and
    InvalidInput for a file of NATS' URL that cannot be read."""
    named_folder = os.environ.get(DATA_DIR)
    folder = Path(named_folder).expanduser() if named_folder else default_data_dir()
    facts = read_facts(folder)
    named = nats_url or _named_url()
    url = named or (facts.nats_url if facts is not None else DEFAULT_NATS_URL)
    return Place(url, _blobs(blobs, facts, url))


def _named_url() -> str | None:
    """Return the URL that the environment names, also as a file: it holds the worker's key."""
    named = dict(os.environ)
    process_secrets.read_files(named, NATS_VARIABLES)
    return next(filter(None, map(named.get, NATS_VARIABLES)), None)


def _blobs(given: Path | None, facts: PlatformFacts | None, url: str) -> Path | None:
    named = given or (Path(value) if (value := os.environ.get(BLOBS_DIR)) else None)
    if named is not None:
        if not named.is_dir():
            raise BlobsNotFound(folder=named)
        return named
    if facts is not None and facts.nats_url == url:
        return blobs_of(facts)
    return None
