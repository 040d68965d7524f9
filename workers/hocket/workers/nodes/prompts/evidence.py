"""Evidence for a model: passages and query results as numbered documents, and the citations of an
answer. Pure.

Passages are P1, P2 ..., query results S1, S2 ..., in the order of the fields and of their items.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import Document

MAX_DOCUMENTS = 500
MAX_TABLE_ROWS = 200
"""The most rows of one query result that a model gets."""
MARKER = re.compile(r"\[((?:[PS]\d+(?:\.r\d+)?)(?:\s*[,;]\s*[PS]\d+(?:\.r\d+)?)*)\]")
"""`[P1]`, `[S2]`, `[S2.r3]` (a row), or several: `[P1, S2.r3]`."""

Found = tuple[Document, Mapping[str, Any]]


def documents_of(step_input: Any, fields: Sequence[str]) -> list[Found]:
    """Return the documents in the named fields of an input, each with its source.

    A field holds a passage, a query result, the output of a retrieval node, a list of these, or null
    (an optional step that failed). Raises InvalidInput for anything else.
    """
    found: list[Found] = []
    counts = {"P": 0, "S": 0}
    for field in fields:
        for kind, item in _items(_value(step_input, field), f"input.{field}"):
            counts[kind] += 1
            make = _passage if kind == "P" else _table
            found.append((make(f"{kind}{counts[kind]}", item), item))
    if len(found) > MAX_DOCUMENTS:
        raise InvalidInput(
            field="documents",
            reason=f"there are {len(found)}; the limit is {MAX_DOCUMENTS}",
            cure="Lower `top_k`, or choose fewer fields.",
        )
    return found


def citations(text: str, found: Sequence[Found]) -> list[dict[str, Any]]:
    """Return the sources that an answer cites, in order of first mention, each with its place."""
    known = {document.id: (document, item) for document, item in found}
    return [_citation(*known[marker]) for marker in _markers(text) if marker in known]


def _markers(text: str) -> Iterable[str]:
    marks = (mark for match in MARKER.finditer(text) for mark in re.split(r"[,;]", match[1]))
    return dict.fromkeys(mark.strip().split(".")[0] for mark in marks)


def _citation(document: Document, item: Mapping[str, Any]) -> dict[str, Any]:
    cited: dict[str, Any] = {"id": document.id, "title": document.title}
    if document.kind == "passage":
        places = ("start", "end")
        cited |= {"source": document.source, "passage": item.get("id")}
        cited |= {place: item[place] for place in places if place in item}
    else:
        cited["sql"] = item.get("sql", "")
    return cited


def _value(step_input: Any, field: str) -> Any:
    value = step_input
    for name in field.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise InvalidInput(
                field=f"input.{field}",
                reason="the step's input has no such field",
                cure="Name it in `with`, or correct `documents`.",
            )
        value = value[name]
    return value


def _items(value: Any, field: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if value is None:
        return
    if isinstance(value, Mapping):
        if "passages" in value:
            yield from _items(value["passages"], f"{field}.passages")
            return
        if _is_table(value):
            yield "S", value
            return
        if isinstance(value.get("text"), str):
            yield "P", value
            return
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _items(item, f"{field}.{index}")
        return
    raise InvalidInput(
        field=field,
        reason="it is neither a passage nor a query result",
        cure="Give `{text, source}`, `{columns, rows}`, or the output of a retrieval or sql node.",
    )


def _is_table(value: Mapping[str, Any]) -> bool:
    columns, rows = value.get("columns"), value.get("rows")
    return (
        isinstance(columns, list | tuple)
        and isinstance(rows, list | tuple)
        and all(isinstance(row, list | tuple | Mapping) for row in rows)
    )


def _passage(marker: str, item: Mapping[str, Any]) -> Document:
    return Document(
        id=marker,
        title=str(item.get("title") or ""),
        source=str(item.get("source") or ""),
        text=item["text"],
    )


def _table(marker: str, item: Mapping[str, Any]) -> Document:
    rows = item["rows"][:MAX_TABLE_ROWS]
    columns = tuple(str(column) for column in item["columns"])
    return Document(
        id=marker,
        kind="table",
        title=" ".join(
            filter(None, (str(item.get("name") or item.get("title") or ""), _left_out(item)))
        ),
        source=str(item.get("sql") or ""),
        columns=columns,
        rows=tuple(_cells(row, columns) for row in rows),
    )


def _left_out(item: Mapping[str, Any]) -> str:
    """Return what a reader must know of rows that are not there; empty if all are."""
    count, more = len(item["rows"]), item.get("truncated") is True
    if count > MAX_TABLE_ROWS:
        return f"(only the first {MAX_TABLE_ROWS} of {count}{' or more' if more else ''} rows)"
    return f"(only the first {count} rows: the query has more)" if more else ""


def _cells(row: Any, columns: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        return tuple(row.get(column) for column in columns)
    return tuple(row)
