"""How many copies of WITH queries a statement has once the database has inlined them where they are
named.

Postgres inlines with `NOT MATERIALIZED`, SQLite and others always do. They do it while planning, when no
timeout applies: twenty queries that each name the previous one twice become a million copies and take
gigabytes of the server's memory. The count may be too high but never too low: a name counts as the
largest query that has it.
"""

from collections import Counter
from typing import Final

from sqlglot import exp

from hocket.workers.sql.errors import SqlConstructRefused

MAX_COPIES: Final = 1_000


def check_copies(tree: exp.Query, dialect: str) -> None:
    """Raise SqlConstructRefused if there would be more than MAX_COPIES. Tables must be qualified, so
    that a name without a schema is that of a query."""
    ctes = list(tree.find_all(exp.CTE))
    if dialect == "postgres":
        if all(cte.args.get("materialized") is not False for cte in ctes):
            return  # a query that is named twice is computed once
        opaque = {id(cte) for cte in ctes if cte.args.get("materialized")}
    else:
        opaque = set()
    used = Counter(cte.alias for cte in ctes)
    bodies = [(cte.alias, id(cte) in opaque, _named(cte, used)) for cte in ctes]
    main = Counter(table.name for table in tree.find_all(exp.Table) if _is_of(table, used))
    copies = dict.fromkeys(used, 1)
    is_settled = False
    while not is_settled:
        is_settled = True
        for name, is_opaque, named in bodies:
            size = _size(named, copies)
            if not is_opaque and size > copies[name]:
                copies[name], is_settled = size, False
    _size(main, copies)


def _named(cte: exp.CTE, used: Counter[str]) -> Counter[str]:
    named = Counter(table.name for table in cte.this.find_all(exp.Table) if _is_of(table, used))
    if used[cte.alias] == 1:
        named.pop(cte.alias, None)  # a recursive reference, which makes no copy
    return named


def _is_of(table: exp.Table, used: Counter[str]) -> bool:
    return table.args.get("db") is None and table.name in used


def _size(named: Counter[str], copies: dict[str, int]) -> int:
    size = 1 + sum(number * copies[name] for name, number in named.items())
    if size > MAX_COPIES:
        raise SqlConstructRefused(
            construct=f"queries of WITH that amount to more than {MAX_COPIES} copies",
            cure="Name each only a few times in the next, and leave out NOT MATERIALIZED.",
        )
    return size
