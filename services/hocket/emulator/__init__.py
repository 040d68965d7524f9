"""An OpenAI-compatible inference engine without a model: see docs/how-to/emulator.md."""
