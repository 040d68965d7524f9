"""The credentials that a context sends to its platform: a key as it is, a token renewed before it
expires."""

from typing import TYPE_CHECKING

from hocket.cli.remote.contexts import Context, contexts_locked, read_contexts, write_contexts

if TYPE_CHECKING:
    from hocket.cli.remote.identity_provider import ProviderClient, ProviderTokens


def kept_key(context: Context, name: str) -> str | None:
    """Return the key or token of a context, as it was read. A token about to expire is renewed and
    stored, if the provider gave a refresh token: by one command at a time, as each refresh token may be
    valid only once. Raises ProviderSignInFailed, ContextUnknown and ContextsUnreadable."""
    if not _is_due(context):
        return context.key
    from hocket.cli.remote.identity_provider import ProviderClient, renewed

    with contexts_locked():
        latest = read_contexts().get(name)
        if latest is None or latest.api_url != context.api_url:  # another platform by now
            return context.key
        if latest.issuer is None or latest.client_id is None or not _is_due(latest):
            return latest.key
        client = ProviderClient(latest.issuer, latest.client_id)
        found = renewed(client, latest.refresh_token or "")
        write_contexts(read_contexts().put(name, with_tokens(latest, client, found)))
    return found.id_token


def _is_due(context: Context) -> bool:
    """Return whether a context has a token that is about to expire and can be renewed."""
    if context.issuer is None or context.client_id is None or context.expires_at is None:
        return False
    from hocket.cli.remote.identity_provider import ProviderTokens

    known = ProviderTokens(context.key or "", float(context.expires_at), context.refresh_token)
    return known.refresh_token is not None and known.is_over


def with_tokens(context: Context, client: "ProviderClient", found: "ProviderTokens") -> Context:
    """Return a context with the tokens that a provider gave."""
    return context.shown(
        found.id_token,
        issuer=client.issuer,
        client_id=client.client_id,
        refresh_token=found.refresh_token,
        expires_at=str(found.expires_at_s),
    )
