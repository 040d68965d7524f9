"""Which models callers may have, by what their tenants are granted."""

from hocket.gateway.core.errors import ModelNotGranted
from hocket.kit.access.grant_book import GrantBook
from hocket.schemas.messages import CallRequest


class GrantedModels:
    """Checks calls against the grants of their tenants."""

    def __init__(self, grants: GrantBook) -> None:
        self._grants = grants

    def check(self, request: CallRequest) -> None:
        """Raise ModelNotGranted where the tenant of a call may not have its model."""
        tenant = request.attribution.tenant
        if not self._grants.of(tenant).allows("models", request.model):
            raise ModelNotGranted(tenant=tenant, model=request.model)
