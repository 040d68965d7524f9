SET LOCAL lock_timeout = '5s';

DROP TABLE hocket.tenant_grants;
DROP SEQUENCE hocket.tenant_grants_change;
