"""What can go wrong between us, an identity provider, and those who come with its word."""

from hocket.schemas.access.keys import AccessDenied
from hocket.schemas.errors import ErrorClass, HocketError


class TokenRefused(AccessDenied):
    """The token is refused: {reason}. {cure}"""

    code = "token_refused"
    cure = "Get another from your identity provider."


class SignInRefused(AccessDenied):
    """You are not signed in: {reason}. {cure}"""

    code = "sign_in_refused"
    cure = "Go to the console and sign in again."


class IdentityProviderAway(HocketError):
    """The identity provider does not answer: {reason}. Try again in a moment; keys of this platform
    (`hk_...`) still work."""

    code = "identity_provider_away"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True
