"""The gateway's rules: configuration, routing, prices, prompts. No IO, no clock, no randomness."""
