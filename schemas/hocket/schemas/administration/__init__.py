"""Bodies of what operators do over REST: following runs live, bulk operations, schedules, webhooks."""
