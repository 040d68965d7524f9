DROP TABLE hocket.blob;
