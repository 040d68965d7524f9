"""Forms with which people create schedules, webhooks and keys. They need no script."""
