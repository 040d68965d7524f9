DROP TABLE hocket.outlook;
