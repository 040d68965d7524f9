"""The command's exit codes for scripts; 0 is success."""

FAILED = 1
"""The command was understood but did not succeed: a run failed, a part of the platform is down."""
BAD_INPUT = 2
"""The command has to be changed before it can succeed."""
UNCHECKED = 3
"""The answer is not known: what the command checks may be right or wrong, and what it waits for
may go on."""
INTERRUPTED = 130
