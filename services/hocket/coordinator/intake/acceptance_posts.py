"""Posting the acceptance of a task, or its refusal, to the log of its run's partition."""

from hocket.coordinator.intake.admission_queue import Candidate
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunAccepted, encoded_without_defaults


class AcceptancePosts:
    """Posts what intake decides."""

    def __init__(self, posts: LogPosts) -> None:
        self._posts = posts

    def post(self, candidate: Candidate, refused: ErrorInfo | None) -> None:
        """Post a task that is begun, or refused with an error."""
        event = candidate.accepted
        if refused is not None:
            event = event.model_copy(update={"rejected": refused})
        self._posts.post(
            candidate.partition,
            RunAccepted.kind,
            encoded_without_defaults(event),
            msg_id=candidate.msg_id,
        )
