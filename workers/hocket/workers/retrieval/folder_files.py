"""The files of a folder that can be indexed: which there are, and their bytes.

Links are followed inside the folder, and each file in it is one document, whatever leads to it. A link
that leads out of the folder, or nowhere, is listed as a file that cannot be read.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

from hocket.workers.retrieval import extraction
from hocket.workers.retrieval.errors import DocumentUnreadable, FolderUnusable

MAX_FILES = 100_000
MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_NAME_BYTES = 2_000
"""The limit on a folder's name plus a file's name; an index entry of Postgres has at most 2,704
bytes."""


def files_of(folder: Path) -> tuple[str, list[str]]:
    """Return the folder's own path, and the paths in it of its files of a known kind, sorted. Among them
    are links that lead to none, which `read` refuses."""
    try:
        root = _real(os.fspath(folder))
    except OSError as error:
        raise FolderUnusable(folder=str(folder), reason=error.strerror or str(error)) from error
    if not os.path.isdir(root):
        raise FolderUnusable(folder=str(folder), reason="it is not a folder")
    files = []
    try:
        for source in _Walk(root).sources():
            files.append(source)
            if len(files) > MAX_FILES:
                reason = f"it has over {MAX_FILES} documents"
                raise FolderUnusable(folder=str(folder), reason=reason)
    except OSError as error:
        raise FolderUnusable(folder=str(folder), reason=str(error)) from error
    return root, sorted(files)


def has_file(folder: str, sources: Iterable[str]) -> bool:
    """Tell whether one of these paths in a folder is that of a file, and not of a link that cannot be
    followed. `folder` is a path without links."""
    for source in sources:
        try:
            real = _real(os.path.join(folder, source))
        except OSError:
            continue
        if _is_in(folder, real) and os.path.isfile(real):
            return True
    return False


def missing_folders(roots: Sequence[str]) -> list[str]:
    """Return those of the roots that are folders' paths, but not of folders on this machine."""
    return [root for root in roots if os.path.isabs(root) and not os.path.isdir(root)]


class _Walk:
    """One walk through a folder. Hidden files and folders are skipped, unless a link leads to them."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._seen: set[str] = set()
        self._links: list[tuple[str, str]] = []

    def sources(self) -> Iterator[str]:
        """Yield the path in the folder of each document, and of each link that cannot be followed."""
        yield from self._below(self._root, "")
        while self._links:  # last, as most of what they lead to has a name of its own
            links, self._links = sorted(self._links), []
            for source, path in links:
                yield from self._at_link(source, path)

    def _below(self, place: str, prefix: str) -> Iterator[str]:
        """Yield the documents of a folder and its subfolders, and note the links. `place` has none."""
        folders = [(place, prefix)]
        while folders:
            place, prefix = folders.pop()
            if not self._is_new(place):
                continue
            with os.scandir(place) as entries:
                for entry in entries:
                    source = prefix + entry.name
                    if entry.name.startswith("."):
                        continue
                    if entry.is_symlink():
                        self._links.append((source, entry.path))
                    elif entry.is_dir():
                        folders.append((entry.path, source + "/"))
                    elif _is_known(source) and entry.is_file() and self._is_new(entry.path):
                        yield source

    def _at_link(self, source: str, path: str) -> Iterator[str]:
        try:
            real = _real(path)
        except OSError:
            yield source
            return
        is_folder = os.path.isdir(real)
        if not _is_in(self._root, real):
            if is_folder or _is_known(source):
                yield source
        elif is_folder:
            yield from self._below(real, source + "/")
        elif _is_known(source) and self._is_new(real):
            yield source

    def _is_new(self, real: str) -> bool:
        """Tell whether a file or a folder was not seen before, by any name."""
        if real in self._seen:
            return False
        self._seen.add(real)
        return True


def _is_known(source: str) -> bool:
    return PurePath(source).suffix.lower() in extraction.MEDIA_TYPES


def _real(path: str) -> str:
    return os.path.realpath(path, strict=True)


def _is_in(root: str, real: str) -> bool:
    return PurePath(real).is_relative_to(root)


def check_name(root: str, source: str) -> None:
    """Raise DocumentUnreadable for a name that Postgres cannot store."""
    try:
        size = len(root.encode()) + len(source.encode())
    except UnicodeEncodeError:
        raise DocumentUnreadable(source=source, reason="its name is not UTF-8") from None
    if size > MAX_NAME_BYTES:
        reason = f"its name and its folder's have over {MAX_NAME_BYTES} bytes"
        raise DocumentUnreadable(source=source, reason=reason)


def read(folder: str, source: str) -> bytes:
    """Return the bytes of a file, whose path in the folder is `source`; raise DocumentUnreadable.
    `folder` is a path without links."""
    path = os.path.join(folder, source)
    try:
        real = _real(path)
        if not _is_in(folder, real):
            reason = "it is a link that leads out of the folder"
            raise DocumentUnreadable(source=source, reason=reason)
        with _opened(folder, PurePath(real).relative_to(folder).parts) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DocumentUnreadable(source=source, reason="it is not a file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        if os.path.islink(path):
            reason = f"it is a link, but {reason}"
        raise DocumentUnreadable(source=source, reason=reason) from error
    if len(data) > MAX_FILE_BYTES:
        raise DocumentUnreadable(source=source, reason=f"it has over {MAX_FILE_BYTES} bytes")
    return data


@contextmanager
def _opened(folder: str, names: Sequence[str]) -> Iterator[int]:
    """Hold open what is below a folder, reached step by step and by no link: one that was put there
    after the path was looked at leads nowhere. Does not wait for the writer of a pipe."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, name in enumerate(names, 1):
            kind = os.O_DIRECTORY if number < len(names) else os.O_NONBLOCK
            below = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | kind, dir_fd=place)
            os.close(place)
            place = below
        yield place
    finally:
        os.close(place)
