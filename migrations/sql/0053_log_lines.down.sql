DROP TABLE hocket.log_line;
