"""The credentials that a context sends to its platform: a key as it is, a token renewed before it
expires."""

from typing import TYPE_CHECKING

from hocket.cli.remote.contexts import Context, read_contexts, write_contexts

if TYPE_CHECKING:
    from hocket.cli.remote.identity_provider import ProviderClient, ProviderTokens


def kept_key(context: Context, name: str | None) -> str | None:
    """Return the key or token of the named context, or of the current one. A token about to expire is
    renewed and stored, if the provider gave a refresh token. Raises ProviderSignInFailed."""
    if context.issuer is None or context.client_id is None or context.expires_at is None:
        return context.key
    from hocket.cli.remote.identity_provider import ProviderClient, ProviderTokens, renewed

    known = ProviderTokens(context.key or "", float(context.expires_at), context.refresh_token)
    if known.refresh_token is None or not known.is_over:
        return known.id_token
    client = ProviderClient(context.issuer, context.client_id)
    found = renewed(client, known.refresh_token)
    contexts = read_contexts()
    write_contexts(contexts.put(name or contexts.current, with_tokens(context, client, found)))
    return found.id_token


def with_tokens(context: Context, client: "ProviderClient", found: "ProviderTokens") -> Context:
    """Return a context with the tokens that a provider gave."""
    return context.shown(
        found.id_token,
        issuer=client.issuer,
        client_id=client.client_id,
        refresh_token=found.refresh_token,
        expires_at=str(found.expires_at_s),
    )
