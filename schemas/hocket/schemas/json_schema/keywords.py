"""All keywords that check, in the order in which they are looked at: what the value itself breaks comes
before what is in it."""

from hocket.schemas.json_schema.applicators import APPLICATORS
from hocket.schemas.json_schema.assertions import ASSERTIONS
from hocket.schemas.json_schema.nodes import Keyword

KEYWORDS: dict[str, Keyword] = {**ASSERTIONS, **APPLICATORS}
