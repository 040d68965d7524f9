"""Errors of a test that plays a pipeline. None of them is an error of the pipeline's run."""

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.errors import InvalidInput as InvalidInput


class NotPlayable(HocketError):
    """`{step}` cannot be played: {reason}. {cure}"""

    code = "not_playable"
    error_class = ErrorClass.INVALID


class ScriptExhausted(HocketError):
    """`{step}` asked the model `{model}` more often than the test has answers for ({answers}). Give
    `Play.model` another answer, or a function that answers all calls."""

    code = "script_exhausted"
    error_class = ErrorClass.INVALID


class PlayStuck(HocketError):
    """The play cannot go on: nothing is left to happen, but the run has not ended. A handler waits for
    something outside the process ({waiting}); give the node a stand-in (`Play.node`)."""

    code = "play_stuck"
    error_class = ErrorClass.INVALID


class UnknownStep(HocketError):
    """Nothing in the pipeline is called `{step}`. Name a node by its path, such as `research/read`, or
    a step by its key, such as `research[3]/read`. Known names: {known}."""

    code = "unknown_step"
    error_class = ErrorClass.INVALID


class NoAttempts(HocketError):
    """`{step}` has no attempts, so nothing can happen to one: no worker runs nodes of the type `{type}`.
    {cure}"""

    code = "no_attempts"
    error_class = ErrorClass.INVALID


class UnknownSignal(HocketError):
    """Nothing in the pipeline waits for `{signal}`. Name an approval by its path, such as `order/ok`, or
    by its step's key, and a signal by its name. Known names: {known}."""

    code = "unknown_signal"
    error_class = ErrorClass.INVALID


class AnswerNotRecorded(HocketError):
    """`{step}` asked the model `{model}`, but the recording {file} has no answer: {reason}. Record a
    run that asks it (`hocket runs record RUN`), or set its answer: `play.model("{model}", ...)`."""

    code = "answer_not_recorded"
    error_class = ErrorClass.INVALID


class PromptChanged(HocketError):
    """`{step}` asks the model `{model}` something other than it did in the recording {file}. It was
    `{was}`, and now it is `{now}`. Record a run again, or use the answers anyway: `play.recorded(file,
    check_prompts=False)`."""

    code = "prompt_changed"
    error_class = ErrorClass.INVALID
