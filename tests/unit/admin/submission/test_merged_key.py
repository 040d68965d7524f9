"""The header `Idempotency-Key` counts like the field of the body, for every body that has it."""

from typing import Any

import pytest

from hocket.admin.submission.one import merged_key
from hocket.schemas.administration.bulk import BulkChange
from hocket.schemas.administration.schedules import TriggerBody
from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import RerunBody, RetryBody, RunSubmission

BODIES: dict[Any, dict[str, Any]] = {
    RunSubmission: {"pipeline": "report"},
    RetryBody: {"wait_ms": 5},
    RerunBody: {"from_step": "a"},
    TriggerBody: {},
    BulkChange: {"action": "cancel"},
}


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_a_key_is_taken_from_header_or_body(kind: Any) -> None:
    bare = kind(**BODIES[kind])
    keyed = kind(**BODIES[kind], idempotency_key="k1")
    assert merged_key(bare, None) == bare
    assert merged_key(bare, "k1") == merged_key(keyed, None) == merged_key(keyed, "k1") == keyed
    with pytest.raises(InvalidInput, match="different keys"):
        merged_key(keyed, "k2")
