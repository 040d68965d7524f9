DROP TABLE hocket.pipeline_release;
