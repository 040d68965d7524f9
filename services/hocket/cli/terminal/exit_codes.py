"""What the command's exit code tells scripts; 0 is success."""

FAILED = 1
"""The command was understood and did not succeed: a run failed, a part is away."""
BAD_INPUT = 2
"""The command has to be changed before it can succeed."""
INTERRUPTED = 130
