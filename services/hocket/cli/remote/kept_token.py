"""What a context shows its platform: a key as it is, a token renewed where it ends."""

from typing import TYPE_CHECKING

from hocket.cli.remote.contexts import Context, read_contexts, write_contexts

if TYPE_CHECKING:
    from hocket.cli.remote.provider_sign_in import ProviderClient, ProviderTokens


def kept_key(context: Context, name: str | None) -> str | None:
    """Return what the context with a name, or the current one, shows. A token that ends within moments
    is renewed and kept, where the provider gave what renews it. Raises ProviderSignInFailed."""
    if context.issuer is None or context.client_id is None or context.expires_at is None:
        return context.key
    from hocket.cli.remote.provider_sign_in import ProviderClient, ProviderTokens, renewed

    known = ProviderTokens(context.key or "", float(context.expires_at), context.refresh_token)
    if known.refresh_token is None or not known.is_over:
        return known.id_token
    client = ProviderClient(context.issuer, context.client_id)
    found = renewed(client, known.refresh_token)
    contexts = read_contexts()
    write_contexts(contexts.put(name or contexts.current, with_tokens(context, client, found)))
    return found.id_token


def with_tokens(context: Context, client: "ProviderClient", found: "ProviderTokens") -> Context:
    """Return a context that shows what a provider gave."""
    return context.shown(
        found.id_token,
        issuer=client.issuer,
        client_id=client.client_id,
        refresh_token=found.refresh_token,
        expires_at=str(found.expires_at_s),
    )
