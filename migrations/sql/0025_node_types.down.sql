DROP TABLE hocket.node_type;
