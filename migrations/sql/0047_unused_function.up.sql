-- Retention notes the days of a partition by hocket.note_dropped_days (0044); nothing calls what did it before.
DROP FUNCTION hocket.note_days_of_partition(text);
