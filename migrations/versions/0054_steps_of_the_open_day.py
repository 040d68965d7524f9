"""steps of the open day: see migrations/sql/0054_steps_of_the_open_day.up.sql."""

from hocket.kit.postgres.migrations import run_sql as run

revision = "0054"
down_revision = "0053"
locks = {"partition": "SHARE", "run": "SHARE", "step": "SHARE", "attempt": "SHARE"}


def upgrade() -> None:
    run("0054_steps_of_the_open_day.up.sql")


def downgrade() -> None:
    run("0054_steps_of_the_open_day.down.sql")
