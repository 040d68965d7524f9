"""The files of a folder that can be indexed: which there are, and their bytes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hocket.workers.retrieval import extraction
from hocket.workers.retrieval.errors import DocumentUnreadable, FolderUnusable

MAX_FILES = 100_000
MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_NAME_BYTES = 2_000
"""The limit on a folder's name plus a file's name; an index entry of Postgres has at most 2,704
bytes."""


def files_of(folder: Path) -> tuple[str, list[tuple[str, Path]]]:
    """Return the folder's own path, and (path in it, path) of each file of a known kind, sorted."""
    try:
        root = folder.resolve(strict=True)
    except OSError as error:
        raise FolderUnusable(folder=str(folder), reason=error.strerror or str(error)) from error
    if not root.is_dir():
        raise FolderUnusable(folder=str(folder), reason="it is not a folder")
    files = []
    try:
        for path in _walk(root):
            files.append((path.relative_to(root).as_posix(), path))
            if len(files) > MAX_FILES:
                reason = f"it has over {MAX_FILES} documents"
                raise FolderUnusable(folder=str(folder), reason=reason)
    except OSError as error:
        raise FolderUnusable(folder=str(folder), reason=str(error)) from error
    return str(root), sorted(files)


def missing_folders(roots: Sequence[str]) -> list[str]:
    """Return those of the roots that are folders' paths, but not of folders on this machine."""
    return [root for root in roots if os.path.isabs(root) and not os.path.isdir(root)]


def _walk(root: Path) -> Iterator[Path]:
    """Yield documents; hidden files, hidden folders and links that lead outside are skipped."""

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            known = path.suffix.lower() in extraction.MEDIA_TYPES
            if known and not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path


def check_name(root: str, source: str) -> None:
    """Raise DocumentUnreadable for a name that Postgres cannot store."""
    try:
        size = len(root.encode()) + len(source.encode())
    except UnicodeEncodeError:
        raise DocumentUnreadable(source=source, reason="its name is not UTF-8") from None
    if size > MAX_NAME_BYTES:
        reason = f"its name and its folder's have over {MAX_NAME_BYTES} bytes"
        raise DocumentUnreadable(source=source, reason=reason)


def read(path: Path, source: str) -> bytes:
    """Return the bytes of a file; raise DocumentUnreadable."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise DocumentUnreadable(source=source, reason=reason) from error
    if len(data) > MAX_FILE_BYTES:
        raise DocumentUnreadable(source=source, reason=f"it has over {MAX_FILE_BYTES} bytes")
    return data
