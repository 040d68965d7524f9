"""What the grants of tenants hide from them."""

from hocket.gateway.config.granted_models import GrantedModels
from hocket.gateway.core.errors import BackendsBusy
from hocket.kit.access.grant_book import GrantBook
from hocket.schemas.access.grants import Grants
from hocket.schemas.access.key_messages import GrantsRow
from hocket.schemas.messages import Attribution, CallReply, CallRequest

OFFERED = ("small", "large")


async def test_an_error_offers_only_models_that_its_tenant_has_a_grant_for() -> None:
    rows = [GrantsRow(change=1, tenant="acme", grants=Grants(models=("small", "gone")))]

    async def changes(since: int) -> list[GrantsRow]:
        return [row for row in rows if row.change > since]

    book = GrantBook(changes)
    await book.load()
    granted = GrantedModels(book)
    busy = BackendsBusy(model="writer", reason="full", alternatives=OFFERED).info()
    failed = CallReply(call_id="c", model="writer", error=busy)
    offered = {}
    for tenant in ("acme", "globex"):
        who = Attribution(tenant=tenant)
        call = CallRequest(call_id="c", model="writer", deadline_at_ms=0.0, attribution=who)
        error = granted.shown(call, failed).error
        assert error is not None
        offered[tenant] = error.alternatives
        answered = CallReply(call_id="c", model="writer", text="tidal")
        assert granted.shown(call, answered) is answered
    assert offered == {"acme": ("small",), "globex": OFFERED}
