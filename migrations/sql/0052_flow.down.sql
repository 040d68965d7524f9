DROP TABLE hocket.flow_start;
DROP TABLE hocket.flow_place;
DROP TABLE hocket.flow_pipeline;
