"""The colour and symbol of each state."""

STYLES = {
    "succeeded": "green",
    "degraded": "yellow",
    "failed": "red",
    "cancelled": "magenta",
    "expired": "red",
    "rejected": "red",
    "skipped": "dim",
    "running": "cyan",
    "accepted": "cyan",
    "looking_up": "cyan",
    "dispatched": "cyan",
    "open": "cyan",
    "waiting": "blue",
    "backoff": "yellow",
}


def style(state: str) -> str:
    """Return rich's style for a state of a run or a step."""
    return STYLES.get(state, "")
