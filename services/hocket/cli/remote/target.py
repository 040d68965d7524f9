"""Determines which platform a command talks to.

What is named on the command line or in the environment takes precedence: an address, a context, a data
folder. Next comes the current context and, if that is `local`, the facts of the platform running in the
data folder (see platform_facts.py). Facts of different platforms are never mixed.
"""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from hocket.cli.local.admin_key import read_admin_key
from hocket.cli.remote.api import Api
from hocket.cli.remote.contexts import LOCAL, Context, check_shape, read_contexts
from hocket.cli.remote.kept_token import kept_key
from hocket.kit.postgres.database_url import of_primary
from hocket.kit.process.platform_facts import PlatformFacts, read_facts

if TYPE_CHECKING:
    from hocket.cli.terminal.errors import PlatformNotFound, PlatformPartUnknown

DEFAULT_TENANT = "default"
API_ENV = "HOCKET_API_URL"
KEY_ENV = "HOCKET_API_KEY"
NATS_ENV = "NATS_URL"
DATABASE_ENV = "DATABASE_URL"
NATS_NAMES = ["HOCKET_NATS_URL", NATS_ENV]
DATABASE_NAMES = ["HOCKET_DATABASE_URL", DATABASE_ENV]
"""The variables of an address; the first one that is set counts, as for the processes."""


@dataclass(frozen=True)
class Target:
    """The options shared by all commands."""

    data_dir: Path
    named_tenant: str | None = None
    named_api: str | None = None
    named_nats: str | None = None
    named_context: str | None = None
    is_folder_named: bool = False

    @cached_property
    def context(self) -> Context | None:
        """The context to use, or None if it is the data folder or an address is named. Raises
        ContextUnknown, ContextsUnsafe or ContextsUnreadable."""
        return self.chosen_context[1]

    @cached_property
    def chosen_context(self) -> tuple[str, Context | None]:
        """The name of the context to use, and the context. Another one may become the current one while
        a command runs. Raises as `context` does."""
        if self.named_api is not None:
            return LOCAL, None
        if self.named_context is not None:
            return self.named_context, read_contexts().get(self.named_context)
        if self.is_folder_named:
            return LOCAL, None
        contexts = read_contexts()
        return contexts.current, contexts.get(contexts.current)

    @property
    def chosen_tenant(self) -> str | None:
        """The named tenant, or that of the context."""
        return self.named_tenant or (self.context.tenant if self.context else None)

    @property
    def tenant(self) -> str:
        """The tenant to act for if the key does not determine it."""
        return self.chosen_tenant or DEFAULT_TENANT

    @property
    def key(self) -> str | None:
        """The key for the REST API: from the environment, the context, or the platform running in the
        data folder, whose key is sent to no other server. Raises InvalidInput."""
        if named := os.environ.get(KEY_ENV, "").strip():
            return checked_key(KEY_ENV, named)
        if self.context is not None:
            return kept_key(self.context, self.chosen_context[0])
        return read_admin_key(self.data_dir) if self.facts is not None else None

    @cached_property
    def facts(self) -> PlatformFacts | None:
        """The platform running in the data folder, if there is one and neither a context is used nor
        the address of another platform is named."""
        if self.context is not None:
            return None
        facts = read_facts(self.data_dir)
        if facts is None or self.named_api is None:
            return facts
        return facts if _is_same_place(self.named_api, facts.api_url) else None

    @property
    def api_url(self) -> str | None:
        """The URL of the REST API, or None if not known."""
        if self.context is not None:
            return self.context.api_url
        if self.facts is not None and self.facts.api_url is not None:
            return (
                self.facts.api_url
            )  # even if it is named, maybe as `localhost`: its key goes there
        return self.named_api

    @property
    def known_nats(self) -> str | None:
        """The URL of NATS, or None if not known. If a URL is named and the environment has a key, the
        key is used to connect."""
        if self.named_nats is None:
            return self.facts.nats_url if self.facts else None
        key = os.environ.get(KEY_ENV, "").strip()
        if not key:
            return self.named_nats
        from hocket.kit.nats.identity import with_key

        return with_key(self.named_nats, key)

    @property
    def nats_url(self) -> str:
        """The URL of NATS; raises PlatformNotFound or PlatformPartUnknown if not known."""
        if self.known_nats is None:
            raise self._not_found("--nats or NATS_URL")
        return self.known_nats

    @property
    def known_database(self) -> str | None:
        """The URL of the database, or None if not known."""
        named = next(filter(None, map(os.environ.get, DATABASE_NAMES)), None)
        return of_primary(named) if named else self.facts.database_url if self.facts else None

    @property
    def database_url(self) -> str:
        """The URL of the database; raises PlatformNotFound or PlatformPartUnknown if not known."""
        if self.known_database is None:
            raise self._not_found(DATABASE_ENV)
        return self.known_database

    def servers(self) -> tuple[str, str]:
        """Return the URLs of NATS and of the database, for a command that treats them as a whole: if
        only one is named, the other would be of another platform. Raises InvalidInput,
        PlatformNotFound and PlatformPartUnknown."""
        nats_url, database_url = self.nats_url, self.database_url
        if self.facts is None:
            return nats_url, database_url
        is_own_nats = nats_url == self.facts.nats_url
        if is_own_nats != (database_url == self.facts.database_url):
            from hocket.schemas.errors import InvalidInput

            named, missing = (DATABASE_ENV, NATS_ENV) if is_own_nats else (NATS_ENV, DATABASE_ENV)
            raise InvalidInput(
                field=missing,
                reason=f"{named} is named without it, and the platform on {self.data_dir} uses another",
                cure="Name both, or neither for the platform on this machine.",
            )
        return nats_url, database_url

    def api(self, timeout_s: float | None = None) -> Api:
        """Return a client of the REST API, or raise PlatformNotFound or InvalidInput."""
        if self.api_url is None:
            raise self._not_found(f"--api or {API_ENV}")
        if self.named_api is not None:
            check_shape("--api", self.named_api)
        return Api(self.api_url, self.chosen_tenant, self.key, timeout_s)

    def anew(self) -> "Target":
        """Return the same platform, without what was read of it: for a command that runs for long,
        while its token is renewed, or its platform restarts at another address."""
        if self.named_api is not None or self.named_context is not None or self.is_folder_named:
            return replace(self)
        return replace(self, named_context=read_contexts().current)

    def _not_found(self, options: str) -> "PlatformNotFound | PlatformPartUnknown":
        from hocket.cli.terminal.errors import PlatformNotFound, PlatformPartUnknown

        if self.api_url is not None:
            return PlatformPartUnknown(api_url=self.api_url, options=options)
        return PlatformNotFound(data_dir=self.data_dir, options=options)


def _is_same_place(named: str, api_url: str | None) -> bool:
    if api_url is None:
        return False
    try:
        return _place(named) == _place(api_url)
    except ValueError:  # not a URL, which is told when it is used
        return False


def _place(url: str) -> tuple[str, str | None, int | None, str]:
    """Return what tells one address from another: this machine has two names."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return parts.scheme, host, parts.port, parts.path.strip("/")


def checked_key(field: str, key: str) -> str:
    """Return a key that can be sent in a header, or raise InvalidInput, which does not show it."""
    if key.isascii() and key.isprintable():
        return key
    from hocket.schemas.errors import InvalidInput

    raise InvalidInput(
        field=field,
        reason="it has a line break, or another character that no key has",
        cure="Give one key, on one line: hk_<id>_<secret>.",
    )


def target_of(context: typer.Context) -> Target:
    """Return the target named by the options before the command."""
    target = context.find_root().obj
    assert isinstance(target, Target)
    return target
