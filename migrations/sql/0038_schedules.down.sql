DROP TABLE hocket.schedule_firing;
DROP TABLE hocket.schedule;
