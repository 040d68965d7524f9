"""Steps from the stream and results to the log: lanes, pulls, acknowledgements, announcements."""
