"""A partition without a log and a database: the test supplies what it works with."""

from types import SimpleNamespace
from typing import Any

from hocket.coordinator.core.run.ends.notification_watermark import NOTHING, NotificationWatermark
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.partition.takeover import assembled
from hocket.coordinator.storage.store import Offset


def lone_partition(
    tenure: Any, *, told: NotificationWatermark = NOTHING, **parts: Any
) -> Partition:
    """Return a partition with this tenure; it has only those services that are in `parts`."""
    nothing: Any = SimpleNamespace
    services: dict[str, Any] = dict.fromkeys(("store", "catalog", "durations", "load", "metrics"))
    services["committer"] = nothing(
        open=lambda *arguments, **named: tenure,
        wait_for_capacity=getattr(tenure, "wait_for_capacity", None),
    )
    services["dispatcher"] = nothing(dispatch=None, cancel=None, release=lambda: None)
    services["step_cache"] = nothing(look_up=None, fill=None, release=None)
    services["bus"] = nothing(losses=0, wait_for_capacity=_at_once)
    return assembled(
        0, SharedServices(partitions=1, **{**services, **parts}), offset=Offset(1, 0, "", told)
    )


async def _at_once() -> None:
    return
