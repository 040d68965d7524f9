DROP TABLE hocket.content;
