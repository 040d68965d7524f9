"""The command's exit codes for scripts; 0 is success."""

FAILED = 1
"""The command was understood but did not succeed: a run failed, a part of the platform is down."""
BAD_INPUT = 2
"""The command has to be changed before it can succeed."""
UNCHECKED = 3
"""What the command checks could not be checked: it may be right or wrong."""
INTERRUPTED = 130
