"""Who somebody is by the word of an identity provider (OpenID Connect): its keys, its tokens."""
