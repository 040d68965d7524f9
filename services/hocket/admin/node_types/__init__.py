"""The existing node types, their inputs and outputs, and which of them workers currently run."""
