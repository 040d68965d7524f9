"""The verifier as a `python` node: checks every figure and citation of a draft against the evidence.

`hocket.workers.nodes.verify:verify_draft` takes `{draft, passages, figures, question?, strict?}`, where
passages and figures are the outputs of the retrieval and sql nodes (as the draft's model got them, in
this order). With `strict`, a draft that fails a check fails the step; without it, the verdict says so.
"""

import re
from collections.abc import Mapping
from typing import Any

from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.workers.extractive.verification import verify
from hocket.workers.nodes.prompts.evidence import documents_of

FIELDS = ("passages", "figures")
MAX_REASONS = 3


class DraftRejected(HocketError):
    """The draft does not hold up: {reasons}. Have it written again from the evidence."""

    code = "draft_rejected"
    error_class = ErrorClass.INVALID


def verify_draft(given: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict `{accepted, passed, failed, checks}`; raise DraftRejected when strict.

    It is not async, so it runs in a thread: a long draft with much evidence takes a while."""
    verdict = verdict_of(given)
    if given.get("strict") and not verdict["accepted"]:
        failed = [check["reason"] for check in verdict["checks"] if not check["passed"]]
        raise DraftRejected(reasons="; ".join(failed[:MAX_REASONS]))
    return verdict


def verdict_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a draft. Pure."""
    draft = given.get("draft")
    if not isinstance(draft, str):
        raise InvalidInput(field="input.draft", reason="it is missing", cure="Give its text.")
    documents = [found[0] for found in documents_of(given, [f for f in FIELDS if f in given])]
    verdict = verify(
        draft,
        [document for document in documents if document.kind == "passage"],
        [document for document in documents if document.kind == "table"],
        question=str(given.get("question") or ""),
    ).as_json()
    return {"accepted": verdict.pop("ok"), **verdict}


def tampered(draft: str) -> tuple[str, str, str] | None:
    """Return the draft with one digit of its first figure changed, and that figure before and after;
    None if it has no figure. For demonstrations of the verifier."""
    prose = re.sub(r"\[[^\[\]]*\]", lambda match: " " * len(match[0]), draft)
    figure = re.search(r"\d[\d,]*(?:\.\d+)?", prose)
    if figure is None:
        return None
    before = figure[0]
    digit = before[-1]
    after = before[:-1] + str((int(digit) + 3) % 10)
    return draft[: figure.start()] + after + draft[figure.end() :], before, after
