"""Checks when certificates expire: those of servers, and our own client certificates."""

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.cli.doctor.findings import Finding, Verdict, listed

if TYPE_CHECKING:
    from cryptography import x509

SOON, SOON_PART = timedelta(days=7), 6
"""A certificate that expires within 7 days (or within a sixth of its lifetime, if that is less) was
probably forgotten ..."""
EARLY, EARLY_PART = timedelta(days=30), 4
"""... and one that expires within this time is worth a look."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAME = "certificates"
CURE = (
    "Put newer certificates in the same files and reload the servers one by one; none of "
    "our processes needs a restart: docs/how-to/deploy.md."
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was seen: who presents it, and when it expires."""

    of: str
    begins_at: datetime
    ends_at: datetime

    def ends_within(self, bound: timedelta, part: int, now: datetime) -> bool:
        """Tell whether less time is left than `bound`, or than 1/`part` of its lifetime if that is
        less."""
        return self.ends_at - now < min(bound, (self.ends_at - self.begins_at) / part)


def shown(of: str, der: bytes | None) -> list[Certificate]:
    """Return the certificate that a server presented; empty if it presented none."""
    if not der:
        return []
    from cryptography.x509 import load_der_x509_certificate

    return [_certificate(of, load_der_x509_certificate(der))]


def ours(files: Mapping[str, str], whose: str) -> list[Certificate]:
    """Return the certificates in the files `ca` and `cert` of a URL. If a file contains several
    authorities, as at the beginning of a rotation, the last to expire counts. Unreadable files are left
    to another check."""
    from cryptography.x509 import load_pem_x509_certificates

    found = []
    for kind, said in (("ca", "authority"), ("cert", "client")):
        try:
            made = load_pem_x509_certificates(Path(files[kind]).read_bytes())
        except (KeyError, OSError, ValueError):
            continue
        chosen = max(made, key=lambda one: one.not_valid_after_utc) if kind == "ca" else made[0]
        found.append(_certificate(f"{whose} {said}", chosen))
    return found


def _certificate(of: str, read: "x509.Certificate") -> Certificate:
    return Certificate(of, read.not_valid_before_utc, read.not_valid_after_utc)


def peer_certificate(transport: object) -> bytes | None:
    """Return the certificate (DER) presented by the other side of an asyncio transport."""
    get = getattr(transport, "get_extra_info", None)
    session = get("ssl_object") if get is not None else None
    return session.getpeercert(True) if isinstance(session, ssl.SSLObject) else None


def expiry(certificates: Iterable[Certificate], now: datetime | None = None) -> list[Finding]:
    """Report which certificates expire soon; empty if there are no certificates."""
    now = now or datetime.now(UTC)
    ordered = sorted(certificates, key=lambda one: one.ends_at)
    if not ordered:
        return []
    for verdict, bound, part in (
        (Verdict.FAILED, SOON, SOON_PART),
        (Verdict.NOTE, EARLY, EARLY_PART),
    ):
        ending = [one for one in ordered if one.ends_within(bound, part, now)]
        if ending:
            return [Finding(NAME, verdict, listed(_said(one, now) for one in ending), CURE)]
    return [Finding(NAME, Verdict.OK, f"{len(ordered)}; next to expire: {_said(ordered[0], now)}")]


def _said(one: Certificate, now: datetime) -> str:
    if one.ends_at <= now:
        return f"{one.of} expired on {one.ends_at:%Y-%m-%d}"
    left = one.ends_at - now
    return (
        f"{one.of} expires in {left // HOUR} h"
        if left < DAY
        else f"{one.of} expires in {left // DAY} d"
    )
