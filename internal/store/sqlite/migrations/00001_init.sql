-- +goose Up
-- Times are microseconds since 1970 UTC, durations microseconds, 0 for none. seq orders rows with equal times.
CREATE TABLE containers (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT   NOT NULL UNIQUE,
    project       TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    session       TEXT   NOT NULL,
    state         TEXT   NOT NULL,
    memory_limit  BIGINT NOT NULL,
    expire_after  BIGINT NOT NULL,
    named         BOOLEAN NOT NULL,
    created_at    BIGINT NOT NULL,
    last_active   BIGINT NOT NULL,
    UNIQUE (project, id)
);
CREATE UNIQUE INDEX containers_session ON containers (project, session)
    WHERE session <> '' AND state NOT IN ('expired', 'deleted', 'failed');
CREATE INDEX containers_list ON containers (project, created_at, seq);

-- container is NULL for uploads, so that the foreign key does not apply to them.
CREATE TABLE files (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT   NOT NULL UNIQUE,
    project     TEXT   NOT NULL,
    container   TEXT,
    path        TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    purpose     TEXT   NOT NULL,
    source      TEXT   NOT NULL,
    origin      TEXT   NOT NULL,
    bytes       BIGINT NOT NULL,
    sha256      TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    shown       BOOLEAN NOT NULL,
    FOREIGN KEY (project, container) REFERENCES containers (project, id) ON DELETE CASCADE
);
CREATE INDEX files_list ON files (project, container, created_at, seq);
CREATE INDEX files_path ON files (project, container, path);
CREATE INDEX files_bytes ON files (project, sha256);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at > 0;

CREATE TABLE steps (
    project     TEXT   NOT NULL,
    id          TEXT   NOT NULL,
    body        BLOB   NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    PRIMARY KEY (project, id)
);
CREATE INDEX steps_expiry ON steps (expires_at) WHERE expires_at > 0;

-- +goose Down
DROP TABLE steps;
DROP TABLE files;
DROP TABLE containers;
