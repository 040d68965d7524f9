"""The playground: one call to a logical model, with why it went where it went and what it cost."""
