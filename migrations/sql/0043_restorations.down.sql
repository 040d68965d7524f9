SET LOCAL lock_timeout = '5s';

DROP TABLE hocket.restoration;
