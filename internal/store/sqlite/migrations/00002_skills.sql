-- +goose Up
-- latest_* repeat the newest version's names, and description the default version's, so that lists read one table. 0 and '' are none.
CREATE TABLE skills (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE,
    project       TEXT    NOT NULL,
    title         TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    description   TEXT    NOT NULL,
    def           INTEGER NOT NULL,
    latest        INTEGER NOT NULL,
    latest_id     TEXT    NOT NULL,
    latest_epoch  BIGINT  NOT NULL,
    last_number   INTEGER NOT NULL,
    last_epoch    BIGINT  NOT NULL,
    shared        TEXT    NOT NULL,
    created_at    BIGINT  NOT NULL,
    updated_at    BIGINT  NOT NULL,
    UNIQUE (project, id)
);
CREATE INDEX skills_list ON skills (project, created_at, seq);
CREATE INDEX skills_name ON skills (project, name);

CREATE TABLE skill_shares (
    skill    TEXT NOT NULL REFERENCES skills (id) ON DELETE CASCADE,
    project  TEXT NOT NULL,
    PRIMARY KEY (project, skill)
);
CREATE INDEX skill_shares_skill ON skill_shares (skill);

CREATE TABLE skill_versions (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT    NOT NULL UNIQUE,
    project      TEXT    NOT NULL,
    skill        TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    epoch        BIGINT  NOT NULL,
    name         TEXT    NOT NULL,
    description  TEXT    NOT NULL,
    folder       TEXT    NOT NULL,
    body         TEXT    NOT NULL,
    sha256       TEXT    NOT NULL,
    bytes        BIGINT  NOT NULL,
    unpacked     BIGINT  NOT NULL,
    files        INTEGER NOT NULL,
    created_at   BIGINT  NOT NULL,
    UNIQUE (skill, number),
    UNIQUE (skill, epoch),
    FOREIGN KEY (project, skill) REFERENCES skills (project, id) ON DELETE CASCADE
);
CREATE INDEX skill_versions_bytes ON skill_versions (project, sha256);
CREATE INDEX skill_versions_list ON skill_versions (skill, created_at, seq);

-- The rowid is skills.seq; the text is the default version's.
CREATE VIRTUAL TABLE skill_words USING fts5(name, title, description, body, tokenize = 'unicode61 remove_diacritics 2');

-- +goose Down
DROP TABLE skill_words;
DROP TABLE skill_versions;
DROP TABLE skill_shares;
DROP TABLE skills;
