"""The playground: one call to a logical model, with the routing decision and the cost."""
