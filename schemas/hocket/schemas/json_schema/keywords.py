"""All keywords that check something, in the order in which they are applied: faults of a value itself
come before those of its parts."""

from hocket.schemas.json_schema.applicators import APPLICATORS
from hocket.schemas.json_schema.assertions import ASSERTIONS
from hocket.schemas.json_schema.nodes import Keyword

KEYWORDS: dict[str, Keyword] = {**ASSERTIONS, **APPLICATORS}
