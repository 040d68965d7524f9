"""How agents fail."""

from hocket.schemas.errors import ErrorClass, HocketError


class AgentUnfinished(HocketError):
    """The agent's model called tools in its last round, which has none ({why}). Raise `{bound}`, or
    make the task smaller."""

    code = "agent_unfinished"
    error_class = ErrorClass.INVALID


class AgentTokensExhausted(HocketError):
    """The agent used {used} of its {limit} tokens and has no answer. Raise `max_total_tokens`, or have
    its tools return less."""

    code = "agent_tokens_exhausted"
    error_class = ErrorClass.BUDGET


class AgentCallsInvalid(HocketError):
    """The model's tool calls cannot be read: {reason}."""

    code = "agent_calls_invalid"
    error_class = ErrorClass.INVALID
