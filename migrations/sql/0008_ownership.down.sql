ALTER TABLE hocket.partition DROP COLUMN told_at;
DROP TABLE hocket.installation;
