"""Permissions and roles: the single table by which every door decides.

A permission is a right to a kind of operation. A role is a set of permissions. A key has one role,
and may be narrowed to some of its permissions (`scopes`); it can never do more than its role.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Literal


class Permission(StrEnum):
    """Permissions that a key can have; every operation names those that it requires."""

    PLATFORM_READ = "platform.read"
    """The state of the platform's parts."""
    RUNS_READ = "runs.read"
    """Runs, steps and calls: states, times, errors; no inputs or outputs."""
    RUNS_SUBMIT = "runs.submit"
    """Submit, retry and rerun."""
    RUNS_CANCEL = "runs.cancel"
    RUNS_SIGNAL = "runs.signal"
    """Send signals, approve and refuse."""
    CONTENT_READ = "content.read"
    """Inputs and outputs of runs and steps, prompts and answers, payloads of dead letters."""
    PIPELINES_READ = "pipelines.read"
    PIPELINES_CHECK = "pipelines.check"
    """Validate a pipeline without storing it."""
    PIPELINES_APPLY = "pipelines.apply"
    """Apply pipelines, and thereby choose the code that runs."""
    PIPELINES_RELEASE = "pipelines.release"
    """Choose which of the applied versions runs use: activate, roll back, canaries, archive."""
    SCHEDULES_READ = "schedules.read"
    SCHEDULES_MANAGE = "schedules.manage"
    """With `runs.submit`: create, change and delete schedules, and submit their tasks now."""
    WEBHOOKS_READ = "webhooks.read"
    """Webhooks with their URLs, and the outcome of messages."""
    WEBHOOKS_MANAGE = "webhooks.manage"
    """Create, change, rotate and delete webhooks, which notify other systems of runs."""
    COSTS_READ = "costs.read"
    MODELS_READ = "models.read"
    MODELS_CALL = "models.call"
    """Call models, over the gateway's HTTP door and in the console's playground."""
    STEPS_RUN = "steps.run"
    """Take the steps of the key's pools, run them and post their results."""
    EXPERIMENTS_READ = "experiments.read"
    EXPERIMENTS_CONTROL = "experiments.control"
    """Switch arms of experiments off and on."""
    MODELS_CONTROL = "models.control"
    """With an all-tenants key: drain, resume, warm and reset backends, which all tenants share."""
    WORKERS_CONTROL = "workers.control"
    """With an all-tenants key: drain and resume the queues of node types, which all tenants share."""
    DEAD_LETTERS_READ = "dead_letters.read"
    DEAD_LETTERS_MANAGE = "dead_letters.manage"
    """Redrive and drop dead letters."""
    KEYS_READ = "keys.read"
    KEYS_MANAGE = "keys.manage"
    """Create, rotate and revoke keys with no more permissions than one's own."""
    GRANTS_READ = "grants.read"
    GRANTS_MANAGE = "grants.manage"
    """With an all-tenants key: set what a tenant's pipelines may use."""
    AUDIT_READ = "audit.read"
    DATA_DELETE = "data.delete"
    """Permanently delete all data of a tenant, or of a label."""


_READS = frozenset(
    {
        Permission.PLATFORM_READ,
        Permission.RUNS_READ,
        Permission.PIPELINES_READ,
        Permission.SCHEDULES_READ,
        Permission.COSTS_READ,
        Permission.MODELS_READ,
        Permission.EXPERIMENTS_READ,
        Permission.DEAD_LETTERS_READ,
        Permission.GRANTS_READ,
    }
)

ROLES: Mapping[str, frozenset[Permission]] = {
    "viewer": _READS,
    "developer": _READS
    | {
        Permission.CONTENT_READ,
        Permission.RUNS_SUBMIT,
        Permission.RUNS_CANCEL,
        Permission.RUNS_SIGNAL,
        Permission.PIPELINES_CHECK,
        Permission.PIPELINES_APPLY,
        Permission.PIPELINES_RELEASE,
        Permission.SCHEDULES_MANAGE,
        Permission.WEBHOOKS_READ,
        Permission.WEBHOOKS_MANAGE,
        Permission.MODELS_CALL,
    },
    "operator": _READS
    | {
        Permission.RUNS_SUBMIT,
        Permission.RUNS_CANCEL,
        Permission.RUNS_SIGNAL,
        Permission.PIPELINES_CHECK,
        Permission.PIPELINES_RELEASE,
        Permission.SCHEDULES_MANAGE,
        Permission.WEBHOOKS_READ,
        Permission.WEBHOOKS_MANAGE,
        Permission.EXPERIMENTS_CONTROL,
        Permission.MODELS_CONTROL,
        Permission.WORKERS_CONTROL,
        Permission.DEAD_LETTERS_MANAGE,
        Permission.GRANTS_MANAGE,
    },
    "auditor": _READS | {Permission.WEBHOOKS_READ, Permission.KEYS_READ, Permission.AUDIT_READ},
    "admin": frozenset(Permission),
    "worker": frozenset({Permission.STEPS_RUN}),
}
"""Each role with its permissions; only `developer` and `admin` see content and apply pipelines. A
`worker` gets the steps of its pools, of all tenants, and nothing else."""

Role = Literal["viewer", "developer", "operator", "auditor", "admin", "worker"]
"""Name of a role, as in REST."""


def permissions_of(role: str, scopes: Collection[str] | None) -> frozenset[Permission]:
    """Return what a role allows, narrowed to scopes; nothing for an unknown role."""
    found = ROLES.get(role, frozenset())
    return found if scopes is None else frozenset(one for one in found if one in scopes)
