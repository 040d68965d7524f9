"""The section `content:` of the configuration: whose prompts and answers are kept, and how.

Without it nothing is kept.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.schemas.messages import Attribution
from hocket.schemas.subjects import TOKEN
from hocket.schemas.tracing.content import Kept

Keep = Literal["none", "redacted", "full"]
KEEPS: tuple[Keep, ...] = ("none", "redacted", "full")
MAX_RULES = 10_000


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """What is kept by default (`keep`), per tenant, and per pipeline (`pipeline`, or
    `tenant/pipeline`).

    The most specific rule applies: a tenant's pipeline, then the tenant, then a pipeline of any
    tenant, then the default.
    """

    keep: Keep = "none"
    tenants: Mapping[str, Keep] = field(default_factory=dict)
    pipelines: Mapping[str, Keep] = field(default_factory=dict)
    _named: Set[str] = field(init=False, compare=False, repr=False)
    """The tenants that a rule names."""
    _strictest: dict[str, Keep] = field(default_factory=dict, compare=False, repr=False)
    """What was found by `strictest_of`: for each of these tenants, and for all others under ""."""

    def __post_init__(self) -> None:
        owners = (name.rpartition("/")[0] for name in self.pipelines)
        object.__setattr__(self, "_named", {*self.tenants, *owners})

    def of(self, who: Attribution) -> Kept | None:
        """Return how calls with this attribution are kept; None if they are not."""
        return _kept(self._keep(who.tenant, who.pipeline or ""))

    def strictest_of(self, tenant: str) -> Kept | None:
        """Return how the pipeline of a tenant is kept of which the least is: for calls of which nobody
        knows the pipeline."""
        tenant = tenant if tenant in self._named else ""
        found = self._strictest.get(tenant)
        if found is None:
            named = (name.rpartition("/")[::2] for name in self.pipelines)
            names = (name for owner, name in named if owner in ("", tenant))
            keeps = (self._keep(tenant, name) for name in ("", *names))
            found = self._strictest[tenant] = min(keeps, key=KEEPS.index)
        return _kept(found)

    def stricter_of(self, one: Attribution, other: Attribution) -> Kept | None:
        """Return how calls are kept of which the stricter of two rules counts."""
        keeps = (self._keep(who.tenant, who.pipeline or "") for who in (one, other))
        return _kept(min(keeps, key=KEEPS.index))

    def _keep(self, tenant: str, pipeline: str) -> Keep:
        """Return the rule of a pipeline. Over HTTP, a call may name one like `acme/report`: that is no
        pipeline of the tenant `acme`, whose rule it must not get."""
        return (
            self.pipelines.get(f"{tenant}/{pipeline}")
            or self.tenants.get(tenant)
            or ("/" not in pipeline and self.pipelines.get(pipeline))
            or self.keep
        )


def _kept(keep: Keep) -> Kept | None:
    return None if keep == "none" else keep


NOTHING_KEPT = ContentPolicy()


def read(section: Any, environment: Mapping[str, str]) -> ContentPolicy:
    """Return the policy of a section; raise RoutingInvalid."""
    if section is None:
        return NOTHING_KEPT
    fields = Fields(section, "content", environment)
    fields.only(("keep", "tenants", "pipelines"))
    return ContentPolicy(
        fields.choice("keep", KEEPS, "none"),
        _rules(fields, "tenants", parts=1),
        _rules(fields, "pipelines", parts=2),
    )


def _rules(fields: Fields, name: str, *, parts: int) -> Mapping[str, Keep]:
    rules = fields.under(name)
    found: dict[str, Keep] = {}
    for key in rules:
        names = str(key).split("/")
        if len(names) > parts or not all(TOKEN.fullmatch(one) for one in names):
            cure = "Use `tenant: keep`." if parts == 1 else "Use `pipeline` or `tenant/pipeline`."
            raise wrong(rules.at(str(key)), "it is not a name", cure)
        found[str(key)] = rules.choice(key, KEEPS, "none")
    if len(found) > MAX_RULES:
        raise wrong(rules.where, f"it has {len(found)} entries", f"Use at most {MAX_RULES}.")
    return found
