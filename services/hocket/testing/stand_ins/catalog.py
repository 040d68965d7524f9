"""The pipelines of a play by name and version, from which its runs take theirs."""

from collections.abc import Iterable

from hocket.schemas.errors import InvalidInput, PipelineUnknown
from hocket.schemas.pipeline.plan import Plan
from hocket.testing.errors import NotPlayable


class PlayedCatalog:
    """Pipelines in the order in which they are given, each with its version; None is the number after
    the one before of the same pipeline, and 1 for the first."""

    def __init__(self, given: Iterable[tuple[Plan, int | None]]) -> None:
        self.plans: list[Plan] = []
        self._versions: dict[str, dict[int, Plan]] = {}
        for plan, number in given:
            name = plan.pipeline.pipeline
            versions = self._versions.setdefault(name, {})
            version = next(reversed(versions), 0) + 1 if number is None else number
            if version < 1 or version in versions:
                raise NotPlayable(
                    step=name,
                    reason=f"its version {version} is {'below 1' if version < 1 else 'given twice'}",
                    cure="Number its versions from 1, each once.",
                )
            versions[version] = plan
            self.plans.append(plan)

    def version(self, tenant: str, pipeline: str, number: int) -> tuple[int, Plan]:
        """Return a version, for 0 the newest; raise PipelineUnknown, or InvalidInput if only the version
        is missing."""
        versions = self._versions.get(pipeline)
        if versions is None:
            raise PipelineUnknown(pipeline=pipeline, tenant=tenant)
        version = number or max(versions)
        if version not in versions:
            raise InvalidInput(
                field="version",
                reason=f"pipeline `{pipeline}` has no version {version}",
                cure=f"Give it to the play: `pipelines=[(FILE, {version})]`.",
            )
        return version, versions[version]
