"""Builds the client of the identity provider that the settings name."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from hocket.kit.identity.authorization_code import AuthorizationCode
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.provider import Provider
from hocket.kit.identity.tokens import TokenChecks
from hocket.kit.process.settings import Settings
from hocket.schemas.access.group_roles import parse_group_roles
from hocket.schemas.errors import InvalidInput


def token_bearers_of(
    settings: Settings, report: Callable[..., None] = lambda *_, **__: None
) -> TokenBearers | None:
    """Return what identifies the bearers of tokens, None if no provider is named; raise InvalidInput."""
    if settings.oidc_issuer is None:
        return None
    audiences = settings.oidc_audiences or (settings.oidc_client_id,)
    if None in audiences:
        raise InvalidInput(
            field="HOCKET_OIDC_CLIENT_ID",
            reason="it is not set, but HOCKET_OIDC_ISSUER is",
            cure="Set it to the name of this platform at the identity provider.",
        )
    if not settings.oidc_roles:
        raise InvalidInput(
            field="HOCKET_OIDC_ROLES",
            reason="it is not set, so nobody could sign in",
            cure='List groups with their roles: {"platform": "admin@*"}.',
        )
    provider = Provider(settings.oidc_issuer, report)
    every = (*audiences, settings.oidc_cli_client_id)
    checks = TokenChecks(
        provider, [one for one in every if one is not None], settings.oidc_algorithms
    )
    table = parse_group_roles(settings.oidc_roles)
    return TokenBearers(provider, checks, settings.oidc_groups_claim, table)


class CliClient(NamedTuple):
    """The provider's issuer, and the client id of the command line there."""

    issuer: str
    client_id: str


def cli_client_of(settings: Settings) -> CliClient | None:
    """Return how the command line signs people in, None if it does not."""
    issuer, client_id = settings.oidc_issuer, settings.oidc_cli_client_id
    return CliClient(issuer, client_id) if issuer and client_id else None


def sign_in_of(settings: Settings, tokens: TokenBearers | None) -> AuthorizationCode | None:
    """Return how people sign in to the console at the provider, None if no provider is named or this
    platform has no client id there."""
    if tokens is None or settings.oidc_client_id is None:
        return None
    secret = settings.oidc_client_secret
    return AuthorizationCode(
        tokens,
        settings.oidc_client_id,
        None if secret is None else secret.get_secret_value(),
        settings.public_url,
    )


@asynccontextmanager
async def closed_at_the_end(tokens: TokenBearers | None) -> AsyncIterator[None]:
    """Close the connection to the provider when the block ends."""
    try:
        yield
    finally:
        if tokens is not None:
            await tokens.provider.close()
