"""The branches of a journal for the tool calls of frameworks: those of one answer run concurrently, so
each has a branch that is named after its id."""

import hashlib

from hocket.schemas.journals import MAX_ENTRY_NAME_CHARS


def branch_of(call_id: str) -> str:
    """Return the name of a call's branch. The model's server chooses the id, and some put whole thoughts
    into it: one that is no name of a branch is named by its hash."""
    name = call_id.replace("/", "_").replace("#", "_")
    if 0 < len(name) <= MAX_ENTRY_NAME_CHARS and name.isprintable():
        return name
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
