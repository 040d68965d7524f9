"""A call over HTTP that names a run of ours: it has the pipeline of that run, whatever it names
itself. Pure."""

from hocket.schemas import ids
from hocket.schemas.messages import CallRequest


def names_run(request: CallRequest) -> bool:
    """Tell whether a call over HTTP names a run that has the form of ours."""
    run_id = request.attribution.run_id
    return request.openai is not None and run_id is not None and ids.is_run_id(run_id)


def with_pipeline(request: CallRequest, pipeline: str | None) -> CallRequest:
    """Return a call with the pipeline of its run, None if that is not known. The version that it names
    is one of the pipeline that it names."""
    who = request.attribution
    if pipeline is None or pipeline == who.pipeline:
        return request
    who = who.model_copy(update={"pipeline": pipeline, "version": None})
    return request.model_copy(update={"attribution": who})
