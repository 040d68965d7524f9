"""Anthropic's Messages API for calls in OpenAI's shape: requests out, replies and streams back."""
