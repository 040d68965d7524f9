DROP TABLE hocket.tenant_grants;
DROP SEQUENCE hocket.tenant_grants_change;
