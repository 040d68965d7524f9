"""Which models callers may use, according to the grants of their tenants."""

from hocket.gateway.core.errors import ModelNotGranted
from hocket.kit.access.grant_book import GrantBook
from hocket.schemas.messages import CallRequest


class GrantedModels:
    """Checks calls against the grants of their tenants."""

    def __init__(self, grants: GrantBook) -> None:
        self._grants = grants

    def check(self, request: CallRequest) -> None:
        """Raise ModelNotGranted if the tenant of a call may not use its model."""
        tenant = request.attribution.tenant
        if not self._grants.of(tenant).allows("models", request.model):
            raise ModelNotGranted(tenant=tenant, model=request.model)
