"""Until when certificates hold: those that servers show, and those that we show them."""

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
"""What ends within 7 days, or has a sixth of its time left where that is less, was forgotten ..."""
EARLY, EARLY_PART = timedelta(days=30), 4
"""... and what ends so soon is worth a look."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAME = "certificates"
CURE = (
    "Put newer certificates in the same files and reload the servers one by one; none of "
    "our processes needs a restart: docs/how-to/deploy.md."
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """One that was seen: who shows it, and when it ends."""

    of: str
    begins_at: datetime
    ends_at: datetime

    def ends_within(self, bound: timedelta, part: int, now: datetime) -> bool:
        """Tell whether less is left than a bound, or than a part of the whole where that is less."""
        return self.ends_at - now < min(bound, (self.ends_at - self.begins_at) / part)


def shown(of: str, der: bytes | None) -> list[Certificate]:
    """Return what a server showed, nothing where it showed none."""
    if not der:
        return []
    from cryptography.x509 import load_der_x509_certificate

    return [_certificate(of, load_der_x509_certificate(der))]


def ours(files: Mapping[str, str], whose: str) -> list[Certificate]:
    """Return what the files `ca` and `cert` of an address hold. Of several authorities in one file the
    last to end counts: that is how a rotation begins. What cannot be read is another check's."""
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
    """Return the certificate (DER) that the other side of an asyncio transport showed."""
    get = getattr(transport, "get_extra_info", None)
    session = get("ssl_object") if get is not None else None
    return session.getpeercert(True) if isinstance(session, ssl.SSLObject) else None


def expiry(certificates: Iterable[Certificate], now: datetime | None = None) -> list[Finding]:
    """Say which of them end soon; nothing where there are none."""
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
