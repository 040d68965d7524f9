"""REST bodies for operators: following runs live, bulk operations, schedules, webhooks and more."""
