DROP TABLE hocket.audit_head;
DROP TABLE hocket.audit;
DROP FUNCTION hocket.audit_is_append_only();
DROP TABLE hocket.api_key;
DROP SEQUENCE hocket.api_key_change;
