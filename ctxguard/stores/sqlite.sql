-- The tables of SQLiteStore; triggers keep the sum of all sizes.
CREATE TABLE IF NOT EXISTS ctxguard_records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL, key TEXT NOT NULL,
    format INTEGER NOT NULL, written REAL NOT NULL, expires REAL,
    size INTEGER NOT NULL, checksum BLOB NOT NULL, value BLOB NOT NULL,
    UNIQUE (namespace, key)
);
CREATE INDEX IF NOT EXISTS ctxguard_expires ON ctxguard_records (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS ctxguard_total (id INTEGER PRIMARY KEY CHECK (id = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO ctxguard_total VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS ctxguard_added AFTER INSERT ON ctxguard_records
    BEGIN UPDATE ctxguard_total SET bytes = bytes + new.size; END;
CREATE TRIGGER IF NOT EXISTS ctxguard_removed AFTER DELETE ON ctxguard_records
    BEGIN UPDATE ctxguard_total SET bytes = bytes - old.size; END;
