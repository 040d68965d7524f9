"""Renders templates, and formats numbers and times for them as the CLI does.

Everything that a template prints is escaped; stored data is never markup. The content security policy
allows no inline scripts or styles, so widths are SVG attributes rather than styles.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from json import JSONEncoder
from math import isclose
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Scope

from hocket.admin.console.assets import asset_path
from hocket.admin.requests.identity import Caller
from hocket.schemas.access.roles import Permission

BASE = "/console"
ASSETS = f"{BASE}/assets/"
SIGN_IN = f"{BASE}/sign-in"
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NOTHING = "\N{EN DASH}"
"""Shown in place of a missing figure."""
TENANT = "tenant"
"""The query parameter with which the bearer of a key of all tenants chooses one."""
MS_PER_S = 1_000
MS_PER_MIN = 60_000
MS_PER_H = 3_600_000
MS_PER_DAY = 86_400_000
BYTES_PER_KIB = 1_024
LEAST_OF_FOUR = 0.001
"""The smallest amount in dollars for which four decimals suffice."""
LEAST = 0.00000001
"""The smallest amount in dollars that is written out."""
MAX_SHOWN_CHARS = 200_000
"""How much of one input or output a page shows; the API returns all of it."""
MORE = "\n… more follows; the API returns all of it"
"""The end of a value that was cut; no JSON ends like this."""

CODE = Markup("<code>{}</code>")
INDENTED = JSONEncoder(indent=2, ensure_ascii=False)


@cache
def environment() -> Environment:
    """Return the environment of the console's templates."""
    made = Environment(
        loader=PackageLoader("hocket.admin.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "duration": duration,
        "signed_duration": signed_duration,
        "usd": usd,
        "clock": clock,
        "iso": iso,
        "count": count,
        "pretty": pretty,
        "compact": compact,
        "size": size,
        "share": share,
        "marked": marked,
    }
    made.tests["cut"] = is_cut
    return made


def render(
    request: Request,
    caller: Caller | None,
    template: str,
    values: Mapping[str, Any],
    *,
    status: int = 200,
) -> HTMLResponse:
    """Render a page, or part of one, with the console's security headers. It offers only what the caller
    may do; a caller of None means that nobody is signed in."""
    root = root_of(request)

    def url(path: str, **query: Any) -> str:
        return href(request, path, **query)

    def may(permission: str) -> bool:
        return caller is not None and caller.bearer.may(Permission(permission))

    text = environment().get_template(template)
    body = text.render(
        values,
        url=url,
        asset=lambda name: root + asset_path(name),
        api=request.scope.get("root_path", "") + "/v1",
        now=datetime.now(UTC),
        caller=caller,
        may=may,
        names_tenant=caller is not None
        and (caller.bearer.tenant is None or bool(caller.bearer.subject)),
        is_free=caller is not None and caller.bearer.tenant is None,
        tenant_field=_tenant_field(request),
        approvals=getattr(request.state, "approvals", None),
        root=root,
        section_path=_section_path(values.get("section")),
    )
    return HTMLResponse(body, status, headers=SECURITY_HEADERS)


def is_part(request: Request) -> bool:
    """Tell whether a script made the request, and needs only the part of the page that it inserts into
    another."""
    return "x-hocket-part" in request.headers


def _tenant_field(request: Request) -> Markup:
    """Return the hidden field with which a form keeps the chosen tenant."""
    chosen = request.query_params.get(TENANT)
    field = Markup('<input type="hidden" name="tenant" value="{}">')
    return field.format(chosen) if chosen else Markup("")


def _section_path(section: object) -> str:
    """Return the path of a section's main page, which exists for every tenant."""
    return f"/{str(section).lower()}" if section else "/runs"


def root_of(request: Request) -> str:
    """Return the console's root path, below the prefix assigned by a proxy, if any."""
    return str(request.scope.get("root_path", "")) + BASE


def chosen_tenant(scope: Scope) -> str | None:
    """Return the tenant named in the URL of a console page."""
    if not scope["path"].startswith(BASE) or b"tenant=" not in scope["query_string"]:
        return None
    return QueryParams(scope["query_string"]).get(TENANT) or None


def href(request: Request, path: str, **query: Any) -> str:
    """Return the URL of a console page, keeping the chosen tenant."""
    chosen = request.query_params.get(TENANT)
    given = {TENANT: chosen, **query}
    told = [(name, value) for name, value in given.items() if value not in (None, "", False)]
    text = urlencode(told)
    return root_of(request) + quote(path, safe="/~[]!:@") + (f"?{text}" if text else "")


def address(request: Request, **changes: Any) -> str:
    """Return the current URL with the given query parameters replaced."""
    told = {**request.query_params, **changes}
    return "?" + urlencode({name: value for name, value in told.items() if value is not None})


def duration(ms: float | None) -> str:
    """Format milliseconds as the command line does: `38 ms`, `1.24 s`, `3 min 05 s`, `1 d 02 h`."""
    if ms is None:
        return NOTHING
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 9.95:
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_995:
        return f"{ms / MS_PER_S:.2f} s"
    if ms < MS_PER_H - 500:
        minutes, rest = divmod(round(ms / MS_PER_S), 60)
        return f"{minutes} min {rest:02d} s"
    if ms < MS_PER_DAY - 30_000:
        hours, rest = divmod(round(ms / MS_PER_MIN), 60)
        return f"{hours} h {rest:02d} min"
    days, rest = divmod(round(ms / MS_PER_H), 24)
    return f"{days} d {rest:02d} h"


def signed_duration(ms: float) -> str:
    """Format a difference of times: longer (`+1.20 s`) or shorter (`-300 ms`)."""
    return ("+" if ms >= 0 else "") + duration(ms)


def usd(amount: Decimal | float | None) -> str:
    """Format dollars with as many digits as are meaningful."""
    if amount is None:
        return NOTHING
    value = float(amount)
    if value == 0:
        return "$0"
    if abs(value) >= 1:
        return f"${value:,.2f}"
    if abs(value) >= LEAST_OF_FOUR:
        return f"${value:.4f}".removesuffix("00")
    if abs(value) < LEAST:
        return f"<${LEAST:.8f}"
    return f"${value:.8f}".rstrip("0")


def clock(moment: datetime | None) -> str:
    """Format a moment in UTC, to the second."""
    return NOTHING if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def iso(moment: datetime) -> str:
    """Format a moment for scripts, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def count(number: int) -> str:
    """Format an integer with its thousands separated."""
    return f"{number:,}"


def size(number: int) -> str:
    """Format bytes in a fitting unit: `812 B`, `4.0 KiB`, `1.2 GiB`."""
    amount, units = float(number), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if amount < BYTES_PER_KIB:
            break
        amount, unit = amount / BYTES_PER_KIB, larger
    return f"{number:,} B" if unit == "B" else f"{amount:,.1f} {unit}"


def share(part: float, whole: float) -> str:
    """Format a share in percent. Only nothing is `0 %`, and nothing less than all is `100 %`."""
    text = f"{100 * part / whole:.0f}" if whole > 0 else "0"
    if text == "0" and min(part, whole) > 0:
        text = "<1"
    elif text == "100" and part < whole and not isclose(part, whole):
        text = ">99"
    return f"{text}\N{NO-BREAK SPACE}%"


def pretty(value: Any) -> str:
    """Return a value as indented JSON, cut if it is too long for a page. No more than that is
    written, because indentation can make a value many times as long."""
    return cut_after(INDENTED.iterencode(value), MAX_SHOWN_CHARS)


def cut_after(pieces: Iterable[str], left: int) -> str:
    """Return the pieces of a text, cut if they have more than `left` characters."""
    taken: list[str] = []
    for piece in pieces:
        taken.append(piece[:left])
        if len(piece) > left:
            return "".join(taken) + MORE
        left -= len(piece)
    return "".join(taken)


def is_cut(text: str) -> bool:
    """Tell whether a shown value was cut."""
    return text.endswith(MORE)


def marked(text: str) -> Markup:
    """Return a message of the platform's own with what it quotes in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # something quoted has a backtick
        return escape(text)
    shown = (escape(one) if at % 2 == 0 else CODE.format(one) for at, one in enumerate(parts))
    return Markup("").join(shown)


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)
