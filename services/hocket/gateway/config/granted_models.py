"""Which models callers may use, according to the grants of their tenants."""

from functools import partial

from hocket.gateway.core.errors import ModelNotGranted
from hocket.kit.access.grant_book import GrantBook
from hocket.schemas.messages import CallReply, CallRequest


class GrantedModels:
    """Checks calls against the grants of their tenants."""

    def __init__(self, grants: GrantBook) -> None:
        self._grants = grants

    def allows(self, tenant: str, model: str) -> bool:
        """Tell whether a tenant may use a model."""
        return self._grants.of(tenant).allows("models", model)

    def check(self, request: CallRequest) -> None:
        """Raise ModelNotGranted if the tenant of a call may not use its model."""
        tenant = request.attribution.tenant
        if not self.allows(tenant, request.model):
            raise ModelNotGranted(tenant=tenant, model=request.model)

    def shown(self, request: CallRequest, reply: CallReply) -> CallReply:
        """Return a reply whose error names as alternatives only models that the tenant may use."""
        error = reply.error
        if error is None or not error.alternatives:
            return reply
        allows = partial(self.allows, request.attribution.tenant)
        named = tuple(filter(allows, error.alternatives))
        return reply.model_copy(update={"error": error.model_copy(update={"alternatives": named})})
