"""Authentication by an identity provider (OpenID Connect): its keys, its tokens, and signing in."""
