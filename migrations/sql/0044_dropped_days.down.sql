DROP FUNCTION hocket.note_dropped_days(text);
