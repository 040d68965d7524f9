DROP TABLE hocket.platform_key;
