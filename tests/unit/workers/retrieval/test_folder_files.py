"""Which files of a folder are documents, and that no link makes a file outside of it one."""

import os
from pathlib import Path

import pytest

from hocket.workers.retrieval import folder_files
from hocket.workers.retrieval.errors import DocumentUnreadable, FolderUnusable
from hocket.workers.retrieval.folder_files import files_of, has_file, read

LEADS_OUT = "it is a link that leads out of the folder"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path / "outside"
    made.mkdir()
    (made / "secret.md").write_text("secret")
    return made


def put(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def texts(root: Path) -> dict[str, str]:
    """Return the text, or why there is none, of each file."""
    folder, sources = files_of(root)
    told = {}
    for source in sources:
        try:
            told[source] = read(folder, source).decode()
        except DocumentUnreadable as error:
            told[source] = str(error.fields["reason"])
    return told


def test_files_of_known_kinds_that_are_not_hidden_are_documents(root: Path) -> None:
    for name in ("b.md", "sub/a.TXT", "picture.png", ".hidden.md", ".git/a.md", "sub/none"):
        put(root / name)
    os.mkfifo(root / "pipe.md")
    assert texts(root) == {"b.md": "text", "sub/a.TXT": "text"}


def test_a_mounted_config_map_has_its_files_and_those_of_its_folders(root: Path) -> None:
    """Kubernetes changes all files at once, by one link that all others go through."""
    put(root / "..2026_1" / "a.md", "first")
    put(root / "..2026_1" / "sub" / "b.md", "second")
    (root / "..data").symlink_to("..2026_1")
    (root / "a.md").symlink_to("..data/a.md")
    (root / "sub").symlink_to("..data/sub")
    assert texts(root) == {"a.md": "first", "sub/b.md": "second"}


def test_a_file_that_links_lead_to_is_one_document_by_its_own_name_if_it_has_one(
    root: Path,
) -> None:
    put(root / "v2" / "z.md")
    (root / "a.md").symlink_to("v2/z.md")
    (root / "latest").symlink_to("v2")
    put(root / ".kept" / "page")
    for name in ("c.md", "b.md"):
        (root / name).symlink_to(".kept/page")
    assert list(texts(root)) == ["b.md", "v2/z.md"]


def test_links_may_go_through_other_links_and_be_absolute(root: Path) -> None:
    put(root / ".kept" / "page", "kept")
    (root / ".kept" / "link").symlink_to(root / ".kept" / "page")
    (root / "a.md").symlink_to(".kept/link")
    (root / "up").symlink_to(".kept/folder")
    put(root / ".kept" / "folder" / "x.md", "x")
    (root / ".kept" / "folder" / "y.md").symlink_to("../page2")
    put(root / ".kept" / "page2", "y")
    assert texts(root) == {"a.md": "kept", "up/x.md": "x", "up/y.md": "y"}


def test_a_loop_of_links_ends(root: Path) -> None:
    put(root / "sub" / "a.md")
    (root / "sub" / "up").symlink_to("..")
    (root / "self").symlink_to(".")
    put(root / ".hidden" / "b.md", "b")
    (root / ".hidden" / "again").symlink_to(".")
    (root / "shown").symlink_to(".hidden")
    (root / "shown-too").symlink_to(".hidden")
    (root / "c.md").symlink_to("d.md")
    (root / "d.md").symlink_to("c.md")
    told = texts(root)
    assert (told.pop("c.md"), told.pop("d.md")) == (f"it is a link, but {os.strerror(40)}",) * 2
    assert told == {"sub/a.md": "text", "shown/b.md": "b"}


def test_a_link_that_leads_out_is_listed_but_not_read(root: Path, outside: Path) -> None:
    """Listed: so that the former version of a document that became one stays."""
    (root / "a.md").symlink_to(outside / "secret.md")
    (root / "b.md").symlink_to("../outside/secret.md")
    (root / ".way").symlink_to(outside)
    (root / "c.md").symlink_to(".way/secret.md")
    (root / "folder").symlink_to("../outside")
    (root / "picture.png").symlink_to(outside / "secret.md")
    assert texts(root) == dict.fromkeys(["a.md", "b.md", "c.md", "folder"], LEADS_OUT)


def test_a_folder_beside_it_whose_name_begins_alike_is_outside(tmp_path: Path, root: Path) -> None:
    put(tmp_path / "root-2" / "a.md")
    (root / "a.md").symlink_to("../root-2/a.md")
    assert texts(root) == {"a.md": LEADS_OUT}


def test_a_link_to_nothing_is_listed(root: Path) -> None:
    (root / "a.md").symlink_to("nowhere.md")
    (root / "folder").symlink_to(".nowhere")
    told = f"it is a link, but {os.strerror(2)}"
    assert texts(root) == {"a.md": told, "folder": told}


def test_a_folder_has_files_only_if_one_is_in_it(root: Path, outside: Path) -> None:
    """`current` leads to what is mounted, or not, at `releases`."""
    put(root / "releases" / "1" / "a.md")
    (root / "current").symlink_to("releases/1")
    (root / "b.md").symlink_to("b.md")
    (root / "c.md").symlink_to(outside / "secret.md")
    (root / "out").symlink_to(outside)
    assert has_file(*files_of(root))
    (root / "releases" / "1" / "a.md").unlink()
    (root / "releases" / "1").rmdir()
    folder, sources = files_of(root)
    assert sources == ["b.md", "c.md", "current", "out"]
    assert not has_file(folder, sources)
    (root / "0.md").symlink_to(".kept")
    put(root / ".kept")
    assert has_file(*files_of(root))


def test_a_folder_may_be_given_by_a_link_but_must_be_there(root: Path, tmp_path: Path) -> None:
    put(root / "a.md")
    (tmp_path / "link").symlink_to(root)
    folder, sources = files_of(tmp_path / "link")
    assert (folder, sources) == (str(root.resolve()), ["a.md"])
    (tmp_path / "loop").symlink_to("loop")
    for name in ("loop", "nowhere", "root/a.md"):
        with pytest.raises(FolderUnusable):
            files_of(tmp_path / name)


@pytest.mark.parametrize("swapped", ["sub/a.md", "sub"])
def test_what_becomes_a_link_that_leads_out_after_it_was_looked_at_is_not_read(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    put(root / "sub" / "a.md")
    put(outside / "a.md", "secret")
    real = os.path.realpath(root / "sub" / "a.md")
    (root / "sub").rename(root / ".before")
    if swapped == "sub":
        (root / "sub").symlink_to(outside)
    else:
        (root / "sub").mkdir()
        (root / "sub" / "a.md").symlink_to(outside / "a.md")
    with monkeypatch.context() as patched:
        patched.setattr(folder_files, "_real", lambda path: real)  # as it was before the swap
        with pytest.raises(DocumentUnreadable, match=r"Not a directory|Too many levels"):
            read(str(root.resolve()), "sub/a.md")


def test_what_is_no_file_when_it_is_opened_is_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "a.md")
    (root / "b.md").mkdir()
    for name in ("a.md", "b.md"):
        with pytest.raises(DocumentUnreadable, match="it is not a file"):
            read(str(root.resolve()), name)


def test_a_folder_with_too_many_documents_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_files, "MAX_FILES", 2)
    for name in ("a.md", "b.md"):
        put(root / name)
    assert len(files_of(root)[1]) == 2
    (root / "c.md").symlink_to("nowhere")
    with pytest.raises(FolderUnusable, match="over 2 documents"):
        files_of(root)
