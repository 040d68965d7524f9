"""Grants in memory follow the changes of their source, in whatever order a page tells them."""

from collections.abc import Sequence

from hocket.kit.access.grant_book import GrantBook
from hocket.schemas.access.grants import EVERYTHING, Grants
from hocket.schemas.access.key_messages import GrantsRow

SOME, NONE = Grants(models=("small",)), Grants(models=())


class Source:
    """Pages of changes, one for each time it is asked, and what it was asked for."""

    def __init__(self, *pages: Sequence[GrantsRow]) -> None:
        self.pages = list(pages)
        self.asked: list[int] = []

    async def read(self, after: int) -> Sequence[GrantsRow]:
        self.asked.append(after)
        return self.pages.pop(0) if self.pages else ()


def row(tenant: str, grants: Grants, change: int) -> GrantsRow:
    return GrantsRow(tenant=tenant, grants=grants, change=change)


async def test_a_tenant_is_restricted_until_it_may_use_everything_again() -> None:
    source = Source([row("acme", SOME, 1)], [row("acme", NONE, 2)], (), [row("acme", Grants(), 3)])
    book = GrantBook(source.read)
    assert book.of("acme") == EVERYTHING
    await book.load()
    assert (book.of("acme"), book.of("other")) == (NONE, EVERYTHING)
    await book.load()
    assert book.of("acme") == EVERYTHING


async def test_all_pages_are_read_and_none_twice() -> None:
    source = Source([row("b", SOME, 7), row("a", SOME, 4)], [row("c", NONE, 9)])
    book = GrantBook(source.read)
    await book.load()
    assert source.asked == [0, 7, 9]
    assert [book.of(tenant) for tenant in "abc"] == [SOME, SOME, NONE]


async def test_without_a_source_every_tenant_may_use_everything() -> None:
    book = GrantBook()
    await book.load()
    assert book.of("acme") == EVERYTHING
