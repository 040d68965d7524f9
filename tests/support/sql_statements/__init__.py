"""Hostile and legitimate statements for the SQL guard, in files with one statement per line."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

FOLDER = Path(__file__).parent
PLACES_OF_AN_IDEA = 2


def lines(name: str) -> list[str]:
    """Return the statements (or expressions) of a file."""
    texts = (FOLDER / f"{name}.sql").read_text().splitlines()
    return [text for text in texts if text and not text.startswith("-- ")]


def setup(dialect: str) -> str:
    """Return the statements that create the tables."""
    return (FOLDER / f"setup_{dialect}.sql").read_text()


def canaries() -> str:
    """Return the statements that create objects that no query may reach."""
    return (FOLDER / "canaries_postgres.sql").read_text()


def hostile_postgres() -> list[str]:
    """Return each hostile expression in the first place and, in rotation, in some others; and each
    statement."""
    return [*_placed_in_turns(), *lines("hostile_statements_postgres")]


def legitimate_postgres() -> list[str]:
    """Return each expression in every place, and each statement."""
    placed = [
        place.replace("{x}", expression)
        for expression in lines("legitimate_expressions_postgres")
        for place in lines("legitimate_places")
    ]
    return [*placed, *lines("legitimate_statements_postgres")]


def _placed_in_turns() -> Iterator[str]:
    first, *others = lines("hostile_places")
    places = cycle(others)
    for expression in lines("hostile_expressions_postgres"):
        for place in (first, *islice(places, PLACES_OF_AN_IDEA)):
            yield place.replace("{x}", expression)
