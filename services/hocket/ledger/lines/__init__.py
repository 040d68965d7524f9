"""Lines that handlers of steps log, taken in and written."""
