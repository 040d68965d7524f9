"""`/sign-in`: tells `hocket login --sso` where to sign people in. It is public, because nobody has a key
before signing in."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from hocket.admin.requests.errors import error_response
from hocket.admin.requests.permissions import public
from hocket.kit.identity.configured import CliClient
from hocket.schemas.errors import ErrorClass, HocketError

PATH = "/sign-in"


class NoProviderForCommand(HocketError):
    """This platform names no identity provider for the command line. Set HOCKET_OIDC_ISSUER and
    HOCKET_OIDC_CLI_CLIENT_ID, or sign in with a key: `hocket login`."""

    code = "no_provider"
    error_class = ErrorClass.INVALID


def add_sign_in_facts(app: FastAPI, client: CliClient | None) -> None:
    """Serve the issuer's address and the client id of the command line at that provider."""

    @public
    async def answer(_request: Request) -> Response:
        if client is None:
            return error_response(NoProviderForCommand().info())
        return JSONResponse({"issuer": client.issuer, "client_id": client.client_id})

    app.add_route(PATH, answer, methods=["GET"], include_in_schema=False)
