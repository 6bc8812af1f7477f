-- +goose Up
-- day counts from 1970-01-01 UTC; used is microseconds for which the project's code ran.
CREATE TABLE usage (
    project  TEXT   NOT NULL,
    day      BIGINT NOT NULL,
    used     BIGINT NOT NULL,
    PRIMARY KEY (project, day)
);
CREATE INDEX usage_day ON usage (day);
-- The index that tells how much a project stores without reading its rows.
DROP INDEX files_bytes;
CREATE INDEX files_bytes ON files (project, sha256, bytes);

-- +goose Down
DROP INDEX files_bytes;
CREATE INDEX files_bytes ON files (project, sha256);
DROP TABLE usage;
