-- What each partition expects of its pipelines' nodes: state of the partition, written with its offset.
CREATE TABLE hocket.outlook (
    partition   integer          NOT NULL CHECK (partition >= 0),
    tenant      text             NOT NULL,
    pipeline    text             NOT NULL,
    path        text             NOT NULL,
    weight      double precision NOT NULL,
    mean_ms     double precision NOT NULL,
    variance    double precision NOT NULL,
    PRIMARY KEY (partition, tenant, pipeline, path)
);
COMMENT ON TABLE hocket.outlook IS
    'The estimates that a partition decides with, as of its offset; hocket.duration holds what was measured.';
