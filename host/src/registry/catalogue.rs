//! The catalogue: which name and version is which digest. SQLite, one row per published version.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};
use semver::Version;

use super::{PluginName, PluginRecord, RegistryError};

/// Number of the schema below, kept in SQLite's `user_version`.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE component (
        digest      TEXT PRIMARY KEY,
        size        INTEGER NOT NULL,
        params      TEXT NOT NULL,
        on_late     TEXT NOT NULL
    ) STRICT;
    CREATE TABLE version (
        name        TEXT NOT NULL,
        version     TEXT NOT NULL,
        digest      TEXT NOT NULL REFERENCES component (digest),
        uploaded_at TEXT NOT NULL,
        PRIMARY KEY (name, version)
    ) STRICT;
    CREATE INDEX version_by_digest ON version (digest);
";

const SELECT: &str = "SELECT name, version, digest, size, params, on_late, uploaded_at
    FROM version JOIN component USING (digest)";

/// The open catalogue. Not shared: the registry keeps it behind a lock.
pub(super) struct Catalogue {
    db: Connection,
}

impl Catalogue {
    pub(super) fn open(dir: &Path) -> Result<Catalogue, RegistryError> {
        let mut db = Connection::open(dir.join("catalogue.sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // FULL: a published version survives a power cut, not only a crash of the process.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match found {
            SCHEMA_VERSION => {}
            0 => {
                let transaction = db.transaction()?;
                transaction.execute_batch(SCHEMA)?;
                transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
                transaction.commit()?;
            }
            _ => {
                return Err(RegistryError::Schema {
                    dir: dir.to_owned(),
                    found,
                    supported: SCHEMA_VERSION,
                });
            }
        }
        Ok(Catalogue { db })
    }

    /// The time, as SQLite says it (RFC 3339, UTC, seconds).
    pub(super) fn now(&self) -> Result<String, RegistryError> {
        let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 'now')";
        Ok(self.db.query_row(sql, [], |row| row.get(0))?)
    }

    /// Adds a version. The row is the last step of a publication: its blob must be on disk.
    pub(super) fn insert(&mut self, record: &PluginRecord) -> Result<(), RegistryError> {
        let transaction = self.db.transaction()?;
        transaction.execute(
            "INSERT INTO component (digest, size, params, on_late) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (digest) DO NOTHING",
            params![
                record.digest,
                record.size as i64,
                record.params.to_string(),
                record.on_late
            ],
        )?;
        transaction.execute(
            "INSERT INTO version (name, version, digest, uploaded_at) VALUES (?1, ?2, ?3, ?4)",
            params![
                record.name.as_str(),
                record.version.to_string(),
                record.digest,
                record.uploaded_at
            ],
        )?;
        transaction.commit()?;
        Ok(())
    }

    pub(super) fn get(
        &self,
        name: &PluginName,
        version: &Version,
    ) -> Result<Option<PluginRecord>, RegistryError> {
        let sql = format!("{SELECT} WHERE name = ?1 AND version = ?2");
        let mut statement = self.db.prepare_cached(&sql)?;
        let row = statement
            .query_row(params![name.as_str(), version.to_string()], |row| {
                Ok(read(row))
            })
            .optional()?;
        row.transpose()
    }

    /// All versions of `name`, in no particular order.
    pub(super) fn versions(&self, name: &PluginName) -> Result<Vec<PluginRecord>, RegistryError> {
        let sql = format!("{SELECT} WHERE name = ?1");
        let mut statement = self.db.prepare_cached(&sql)?;
        let rows = statement.query_map([name.as_str()], |row| Ok(read(row)))?;
        rows.map(|row| row?).collect()
    }

    pub(super) fn all(&self) -> Result<Vec<PluginRecord>, RegistryError> {
        let mut statement = self.db.prepare_cached(SELECT)?;
        let rows = statement.query_map([], |row| Ok(read(row)))?;
        rows.map(|row| row?).collect()
    }

    /// Removes a version. True if its component is now used by no other version (and its blob
    /// should go).
    pub(super) fn delete(
        &mut self,
        name: &PluginName,
        record: &PluginRecord,
    ) -> Result<bool, RegistryError> {
        let transaction = self.db.transaction()?;
        transaction.execute(
            "DELETE FROM version WHERE name = ?1 AND version = ?2",
            params![name.as_str(), record.version.to_string()],
        )?;
        let orphaned = transaction.execute(
            "DELETE FROM component WHERE digest = ?1
             AND NOT EXISTS (SELECT 1 FROM version WHERE version.digest = component.digest)",
            [&record.digest],
        )?;
        transaction.commit()?;
        Ok(orphaned > 0)
    }

    pub(super) fn digests(&self) -> Result<BTreeSet<String>, RegistryError> {
        let mut statement = self.db.prepare("SELECT digest FROM component")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn read(row: &Row<'_>) -> Result<PluginRecord, RegistryError> {
    let name: String = row.get(0)?;
    let version: String = row.get(1)?;
    let params: String = row.get(4)?;
    let bad = |column, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error)
    };
    Ok(PluginRecord {
        name: name.parse()?,
        version: version.parse().map_err(|error| bad(1, Box::new(error)))?,
        digest: row.get(2)?,
        size: row.get::<_, i64>(3)? as u64,
        params: serde_json::from_str(&params).map_err(|error| bad(4, Box::new(error)))?,
        on_late: row.get(5)?,
        uploaded_at: row.get(6)?,
        stock: false,
    })
}
