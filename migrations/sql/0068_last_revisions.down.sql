DROP TRIGGER revision_kept ON hocket.webhook;
DROP TRIGGER revision_kept ON hocket.schedule;
DROP TRIGGER revision_begins ON hocket.webhook;
DROP TRIGGER revision_begins ON hocket.schedule;
DROP FUNCTION hocket.keep_revision();
DROP FUNCTION hocket.begin_revision();
DROP TABLE hocket.last_revision;
