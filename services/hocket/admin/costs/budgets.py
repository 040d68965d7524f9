"""The configured budgets, and how much of each is spent in the current period.

The limits come from the gateways, the spending from the report views, so that the figures match SQL. As
in the gateways, the most specific budget that names a pipeline or a label applies to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.lookups import HAS_CHARGE, charged_since
from hocket.schemas.administration.budgets import ANYBODY, BudgetUse, BudgetUses, named_by
from hocket.schemas.messages import BudgetRule

MAX_BUDGETS = 500
"""Budgets in one answer; those with the largest share spent come first."""
MAX_NAMES = 500
"""Pipelines, or label values, whose spending is read, most expensive first."""

LEVELS = ("tenant", "pipeline", "label")

SPENT = """
SELECT {name} AS name, sum(cost_usd) AS spent_usd
FROM {source}
WHERE tenant = $1 AND {since} >= $2 AND {only}
GROUP BY 1
ORDER BY spent_usd DESC, name
LIMIT $3
"""
"""The amount spent at a level, since a day (`day`) or since a moment (`at`)."""
OF_NAMED = "SELECT name, spent_usd FROM ({query}) AS spent WHERE name = ANY (${number})"
"""What was spent of budgets that name something, if others spent more than is read. Not shown as a
source, because a tenant does not see whom the configuration names."""
_LAST_ATTEMPT_AT = """(
               SELECT max(a.finished_at) FROM hocket.attempt a
               WHERE a.run_id = s.run_id AND a.key = s.key
           )"""
_SUSPENDED = f"""
    SELECT {{columns}}, hocket.day_of({_LAST_ATTEMPT_AT}),
           {charged_since("$2", "hocket.day_of(max(a.finished_at))")}
    FROM hocket.step s JOIN hocket.run r USING (run_id){{more}}
    WHERE {HAS_CHARGE} AND s.finished_at IS NULL
"""
LABELS_OF = "CROSS JOIN LATERAL unnest($4::text[]) AS said(label)"
"""The labels for which there are budgets, beside rows with `labels`: those may have many more."""
_COST_BY_LABEL = f"""
    SELECT tenant, label, value, day, cost_usd FROM hocket.rollup_cost_by_label r
    WHERE label = ANY ($4) AND NOT (r.tenant, r.day) IN (SELECT tenant, day FROM hocket.dirty_day)
    UNION ALL
    SELECT tenant, said.label, labels ->> said.label, day, cost_usd
    FROM hocket.live_usage {LABELS_OF} WHERE labels ? said.label
    UNION ALL
    SELECT tenant, said.label, labels ->> said.label, day, cost_usd
    FROM hocket.live_charge {LABELS_OF} WHERE labels ? said.label"""
DAILY = {
    level: f"({of_reports}\n    UNION ALL"
    + _SUSPENDED.format(columns=of_run, more=more)
    + ") entries"
    for level, of_reports, of_run, more in (
        ("tenant", "\n    SELECT tenant, day, cost_usd FROM report.cost_by_tenant", "r.tenant", ""),
        (
            "pipeline",
            "\n    SELECT tenant, pipeline, day, cost_usd FROM report.cost_by_kind",
            "r.tenant, r.pipeline",
            "",
        ),
        (
            "label",
            _COST_BY_LABEL,
            "r.tenant, said.label, r.labels ->> said.label",
            f" {LABELS_OF}",
        ),
    )
}
"""What the reports have of each day since `$2`, and what steps have charged since then that have not
ended, which come into the reports once they do: on the day on which their last attempt ended."""
HOURLY = f"""(
    SELECT tenant, pipeline, labels, started_at AS at, cost_usd FROM report.usage
    UNION ALL
    SELECT r.tenant, r.pipeline, r.labels, coalesce(s.finished_at, {_LAST_ATTEMPT_AT}),
           {charged_since("$2")}
    FROM hocket.step s JOIN hocket.run r USING (run_id)
    WHERE {HAS_CHARGE}
    UNION ALL
    SELECT tenant, pipeline, labels, finished_at, cost_usd FROM hocket.kept_charge
) entries"""
"""Calls since `$2`, and charges of tools: those of a step that has not ended are as old as its last
attempt, and only what its attempts since `$2` can have charged."""
VALUES_OF = f"""(
    SELECT tenant, at, cost_usd, said.label, labels ->> said.label AS value
    FROM {HOURLY} {LABELS_OF} WHERE labels ? said.label
) named"""
NAMES = {"tenant": "tenant", "pipeline": "pipeline", "label": "label || '=' || value"}
ONLY = {"tenant": "true", "pipeline": "pipeline IS NOT NULL", "label": "value IS NOT NULL"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """A rule that may apply to a tenant; `name` is what it names within the tenant, `is_own` whether it
    also names the tenant."""

    name: str
    rule: BudgetRule
    is_own: bool


Values = list[str | int | date | list[str]]


@dataclass(frozen=True, slots=True)
class Source:
    """A query behind some of the figures, with its parameter values; `title` says which figures."""

    title: str
    query: str
    values: Values


async def budgets_of(
    pool: Pool, tenant: str, rules: Iterable[BudgetRule], now: datetime, *, of_all: bool = False
) -> tuple[BudgetUses, list[Source]]:
    """Return the budgets that apply to a tenant's calls, how much of them is spent at `now` (UTC), and
    the queries behind the figures. A budget that the configuration names for every tenant is hidden from
    a tenant that has spent nothing of it, unless `of_all` is set."""
    allowed = allowances_of(tenant, rules)
    spent: dict[tuple[str, str], Mapping[str, Decimal]] = {}
    sources = []
    for level, per in sorted({(one.rule.level, one.rule.per) for one in allowed}):
        query, values = _query(tenant, level, per, now, [one.name for one in allowed])
        rows = await pool.fetch(query, *values, timeout=QUERY_TIMEOUT_S)
        if len(rows) >= MAX_NAMES:
            names = [one.name for one in allowed if one.rule.level == level]
            of_named = OF_NAMED.format(query=query, number=len(values) + 1)
            no_limit = (*values[:2], None, *values[3:], names)
            rows += await pool.fetch(of_named, *no_limit, timeout=QUERY_TIMEOUT_S)
        spent[level, per] = {row["name"]: row["spent_usd"] for row in rows}
        sources.append(Source(f"{level}s, this {per}", query, values))
    uses = sorted(uses_of(allowed, spent, of_all=of_all), key=_by_part_spent)
    found = BudgetUses(budgets=tuple(uses[:MAX_BUDGETS]), truncated=len(uses) > MAX_BUDGETS)
    return found, sources


def allowances_of(tenant: str, rules: Iterable[BudgetRule]) -> list[Allowed]:
    """Return the rules that may apply to a tenant, one per name; the tenant's own rule takes
    precedence."""
    found: dict[tuple[str, str], Allowed] = {}
    for rule in rules:
        owner: str | None
        if rule.level == "tenant":
            owner, name = None if rule.name == ANYBODY else rule.name, tenant
        else:
            owner, name = named_by(rule.name)
        if owner in (tenant, None):
            is_own = owner == tenant
            if is_own or (rule.level, name) not in found:
                found[rule.level, name] = Allowed(name, rule, is_own)
    return list(found.values())


def uses_of(
    allowed: Sequence[Allowed],
    spent: Mapping[tuple[str, str], Mapping[str, Decimal]],
    *,
    of_all: bool,
) -> list[BudgetUse]:
    """Return a line for each budget; for a `*` budget, a line for each matching name with spending."""
    named = {(one.rule.level, one.name) for one in allowed}
    lines: list[BudgetUse] = []
    for one in allowed:
        rule = one.rule
        line = BudgetUse(
            level=rule.level, name=one.name, usd=rule.usd, per=rule.per, spent_usd=None
        )
        sums = spent.get((rule.level, rule.per), {})
        if not _is_for_each(one.name):
            if one.name in sums or one.is_own or of_all or rule.level == "tenant":
                lines.append(_spent(line, one.name, sums.get(one.name, Decimal(0))))
            continue
        others = [
            _spent(line, other, usd)
            for other, usd in sums.items()
            if (rule.level, other) not in named and other.startswith(one.name.removesuffix(ANYBODY))
        ]
        lines += others or [line]
    return lines


def _spent(budget: BudgetUse, name: str, usd: Decimal) -> BudgetUse:
    return budget.model_copy(update={"name": name, "spent_usd": usd})


def _is_for_each(name: str) -> bool:
    return name == ANYBODY or name.endswith(f"={ANYBODY}")


def _query(
    tenant: str, level: str, per: str, now: datetime, names: Iterable[str]
) -> tuple[str, Values]:
    """Return the query for the amount spent at a level in the current period, and its values."""
    start = now.replace(minute=0, second=0, microsecond=0)
    since: date = start
    source, column = VALUES_OF if level == "label" else HOURLY, "at"
    if per != "hour":
        source, column = DAILY[level], "day"
        since = start.date() if per == "day" else start.date().replace(day=1)
    query = SPENT.format(name=NAMES[level], source=source, since=column, only=ONLY[level])
    values: Values = [tenant, since, MAX_NAMES]
    if level == "label":
        values.append(sorted({name.partition("=")[0] for name in names if "=" in name}))
    return query, values


def _by_part_spent(line: BudgetUse) -> tuple[float, int, str]:
    part = float(line.spent_usd / line.usd) if line.spent_usd is not None and line.usd else -1.0
    return -part, LEVELS.index(line.level), line.name
