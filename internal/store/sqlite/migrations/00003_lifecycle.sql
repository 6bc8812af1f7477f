-- +goose Up
-- owner is the process that runs the container until lease; memory_* describe the image of a hibernated one's memory.
ALTER TABLE containers ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN lease BIGINT NOT NULL DEFAULT 0;
ALTER TABLE containers ADD COLUMN memory_id TEXT NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN memory_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE containers ADD COLUMN memory_packed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE containers ADD COLUMN memory_sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN memory_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX containers_owner ON containers (owner) WHERE owner <> '';
CREATE INDEX containers_memory ON containers (memory_at) WHERE memory_id <> '';

-- +goose Down
DROP INDEX containers_memory;
DROP INDEX containers_owner;
ALTER TABLE containers DROP COLUMN memory_at;
ALTER TABLE containers DROP COLUMN memory_sha256;
ALTER TABLE containers DROP COLUMN memory_packed;
ALTER TABLE containers DROP COLUMN memory_bytes;
ALTER TABLE containers DROP COLUMN memory_id;
ALTER TABLE containers DROP COLUMN lease;
ALTER TABLE containers DROP COLUMN owner;
