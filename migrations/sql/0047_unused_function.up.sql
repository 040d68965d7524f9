-- Retention notes the days of a partition by hocket.note_dropped_days (0044); nothing calls what did it before.
SET LOCAL lock_timeout = '5s';
DROP FUNCTION hocket.note_days_of_partition(text);
