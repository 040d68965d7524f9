DROP TABLE hocket.restoration;
