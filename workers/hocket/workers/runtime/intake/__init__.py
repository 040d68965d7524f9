"""Turns messages into attempts; runs those that may kill their worker alone, or gives them up."""
