-- +goose Up
CREATE TABLE checkpoints (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT   NOT NULL UNIQUE,
    project     TEXT   NOT NULL,
    container   TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    memory      BOOLEAN NOT NULL,
    bytes       BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    UNIQUE (project, container, name),
    FOREIGN KEY (project, container) REFERENCES containers (project, id) ON DELETE CASCADE
);

-- +goose Down
DROP TABLE checkpoints;
