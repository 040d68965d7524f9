"""An OpenAI-compatible inference engine without a model: see docs/emulator.md."""
