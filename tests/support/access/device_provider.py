"""An identity provider with a sign-in for devices, based on Authlib: `python -m
support.access.device_provider --port 9400`. What RFC 8628 asks of a provider is Authlib's; the page for
the code is `POST /activate` with `user_code`, `sub` and `allow`.
"""

import argparse
from typing import Any

import flask
from authlib.oauth2.rfc8628 import (
    DEVICE_CODE_GRANT_TYPE,
    DeviceAuthorizationEndpoint,
    DeviceCodeGrant,
    DeviceCredentialDict,
)
from oidc_provider_mock import _app as mock
from oidc_provider_mock import _storage

INTERVAL_S = 1

_begun: dict[str, DeviceCredentialDict] = {}
"""Sign-ins that a device began, by their secret code."""
_granted: dict[str, tuple[Any, bool]] = {}
"""What people said, by the code that they entered."""


class Endpoint(DeviceAuthorizationEndpoint):  # type: ignore[misc]
    """Begins sign-ins."""

    INTERVAL = INTERVAL_S

    def get_verification_uri(self) -> str:
        return f"{flask.request.host_url}activate"

    def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
        credential = DeviceCredentialDict(data, client_id=client_id, scope=scope)
        _begun[data["device_code"]] = credential


class Grant(DeviceCodeGrant):  # type: ignore[misc]
    """Ends them."""

    def query_device_credential(self, device_code: str) -> DeviceCredentialDict | None:
        return _begun.get(device_code)

    def query_user_grant(self, user_code: str) -> tuple[Any, bool] | None:
        return _granted.get(user_code)

    def should_slow_down(self, credential: DeviceCredentialDict) -> bool:
        return False


class IdToken(mock.OpenIDCode):  # type: ignore[misc]
    """Adds an ID token to what the grant gives."""

    def __call__(self, grant: DeviceCodeGrant) -> None:
        grant.register_hook("after_create_token_response", self.process_token)


def provider() -> flask.Flask:
    """Return the application: the mock's, with the grant for devices."""
    _storage.Client.GRANT_TYPES_SUPPORTED += (DEVICE_CODE_GRANT_TYPE,)
    app = mock.app()
    known: list[bool] = []

    @app.before_request
    def register() -> None:
        if not known:
            known.append(True)
            server = flask.g._authlib_authorization_server
            lasting = flask.g.oidc_provider_mock_config.access_token_max_age
            server.register_grant(Grant, [IdToken(False, lasting)])
            server.register_endpoint(Endpoint)

    @app.after_request
    def tell_endpoint(response: flask.Response) -> flask.Response:
        if flask.request.path == "/.well-known/openid-configuration":
            told = dict(response.get_json())
            told["device_authorization_endpoint"] = f"{flask.request.host_url}device"
            told["token_endpoint"] = (
                f"{flask.request.host_url}token"  # the mock's takes only its own
            )
            response.data = flask.json.dumps(told)
        return response

    @app.post("/device")
    def begin() -> Any:
        server = flask.g._authlib_authorization_server
        return server.create_endpoint_response(Endpoint.ENDPOINT_NAME)

    @app.post("/token")
    def tell_token() -> Any:
        return flask.g._authlib_authorization_server.create_token_response()

    @app.post("/activate")
    def activate() -> tuple[str, int]:
        form = flask.request.form
        user = _storage.storage.get_user(form["sub"])
        _granted[form["user_code"]] = (user, form["allow"] == "yes")
        return "", 204

    return app


def main() -> None:
    """Serve it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    provider().run(port=parser.parse_args().port, use_reloader=False)


if __name__ == "__main__":
    main()
