"""No link between the project's pages is dead, nor one to a heading, and every page is on a shelf."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve()
while not (ROOT / "pyproject.toml").exists():
    ROOT = ROOT.parent
PAGES = sorted(
    page
    for folder in (ROOT, *(ROOT / name for name in ("docs", "deploy", "examples", "bench")))
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELVES = ("tutorials", "how-to", "reference", "explanation", "decisions")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = set()
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    dead = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in _anchors(target)
        ):
            dead.append(link)
    assert dead == []


def test_every_page_is_on_a_shelf_and_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text("utf-8")
    assert [page.name for page in docs.glob("*.md")] == ["README.md"]
    for page in docs.rglob("*.md"):
        shelf, *rest = page.relative_to(docs).parts
        if not rest or shelf == "decisions" or rest[0] in ("constructs",):
            continue
        assert shelf in SHELVES
        assert f"]({page.relative_to(docs).as_posix()})" in index, page.name


def test_pages_name_modules_that_there_are() -> None:
    modules = [
        path.relative_to(ROOT).as_posix()
        for folder in (
            "services",
            "schemas",
            "workers",
            "tests",
            "bench",
            "examples",
            "migrations",
            "deploy",
        )
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = re.compile(r"`([a-z_./]*[a-z_]+\.py)`|(?<![\w/`])([a-z_]+(?:/[a-z_]+)+\.py)")
    gone = [
        (page.name, name)
        for page in PAGES
        if "decisions" not in page.parts and page.name != "CHANGELOG.md"
        for found in named.findall(page.read_text("utf-8"))
        if not any(f"/{one}".endswith("/" + (name := found[0] or found[1])) for one in modules)
    ]
    assert gone == []


def test_modules_name_modules_that_there_are() -> None:
    modules = [
        path
        for folder in (
            "services",
            "schemas",
            "workers",
            "tests",
            "bench",
            "examples",
            "migrations",
            "deploy",
        )
        for path in (ROOT / folder).rglob("*.py")
        if ".venvs" not in path.parts
    ]
    places = [f"/{path.relative_to(ROOT).as_posix()}" for path in modules]
    named = re.compile(r"""(?<![\w"'/.])((?:[a-z_]+/)*[a-z_]+\.py)\b""")
    gone = [
        (path.name, name)
        for path in modules
        for name in named.findall(path.read_text("utf-8"))
        if not any(place.endswith(f"/{name}") for place in places)
    ]
    assert gone == []
