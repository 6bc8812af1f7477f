-- +goose Up
-- network is package container's encoding of what programs may reach, '' for nothing.
ALTER TABLE containers ADD COLUMN network TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE containers DROP COLUMN network;
