"""What waits for a person."""

from datetime import datetime

from hocket.schemas.rest import Reply


class Approval(Reply):
    """An approval that a run waits for; it is given with `POST /v1/runs/{run_id}/signals`, where `name`
    is `step`. `input` is the beginning of what it is about, as JSON text; it is withheld from keys
    without `content.read`."""

    run_id: str
    step: str
    pipeline: str
    version: int
    since: datetime
    prompt: str
    input: str | None = None


class ApprovalList(Reply):
    """The approvals that wait longest, up to 200."""

    approvals: tuple[Approval, ...]
