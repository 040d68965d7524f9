"""Log lines of handlers, sent on so that they can be read with their run."""
