"""What `hocket backup` and `hocket restore` say of a backup."""

from typing import Any

from hocket.cli.commands.platform.backup import _summary


def said(**messages: int) -> str:
    manifest: dict[str, Any] = {
        "began_at": "now",
        "tables": {"hocket.run": 7},
        "messages": {"USAGE": 1, **messages},
    }
    return _summary(manifest)


def test_tasks_that_were_submitted_together_are_counted_too() -> None:
    assert said(TASKS=2, TASK_BATCHES=40).startswith("7 runs, 42 tasks that had not begun and 1 ")


def test_a_backup_of_an_earlier_release_has_no_stream_for_them() -> None:
    assert said(TASKS=2).startswith("7 runs, 2 tasks that had not begun and 1 ")
