"""The defog data: four Postgres databases and questions with gold SQL, if it is present."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

from support.places import DATA

FOLDER = DATA / "defog"
MISSING = f"the defog data is not in {FOLDER}; set HOCKET_DATA to the folder that holds `defog/`"
DATABASES = ("academic", "broker", "car_dealership", "ewallet")
TABLES = ("public.*", "consumer_div.*")

_CHOICE = re.compile(r"\{([^}]+)\}")


@dataclass(frozen=True)
class Gold:
    """One correct answer to a question; `number` counts the questions from 1."""

    number: int
    database: str
    sql: str


def is_here() -> bool:
    """Return whether the data is present."""
    return FOLDER.is_dir()


def gold() -> list[Gold]:
    """Return every alternative for every question; a choice of columns gives one with all of them and
    one with each."""
    with (FOLDER / "questions.csv").open(newline="") as file:
        return [
            Gold(number, row["db_name"], sql)
            for number, row in enumerate(csv.DictReader(file), 1)
            for alternative in row["query"].split(";")
            if alternative.strip()
            for sql in _choices(alternative.strip())
        ]


def questions() -> int:
    """Return the number of questions."""
    return len({one.number for one in gold()})


def dump(database: str) -> str:
    """Return the statements that create a database."""
    return (FOLDER / f"{database}.sql").read_text()


def _choices(sql: str) -> Iterator[str]:
    choice = _CHOICE.search(sql)
    if choice is None:
        yield sql
        return
    whole = choice.group(1)
    for columns in dict.fromkeys([whole, *(part.strip() for part in whole.split(","))]):
        yield sql.replace(choice.group(0), columns).replace("{}", columns)
