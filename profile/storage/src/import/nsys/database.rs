//! Untrusted SQLite databases: their tables, row by row.
//!
//! Owns: [`Database`] and its rows, and what SQLite may do with such a file. Because: SQLite is written in C and
//! assumes that a database is opened by its author. Does not: know a table; write.
//!
//! What is done about a database that was made to harm (sqlite.org/security.html):
//!
//! | what it could do | why it cannot |
//! |---|---|
//! | have files opened, journals found, temporary files written | it is in memory and read-only, nothing is sorted; the build has no extensions to load |
//! | run code of its schema | views and triggers are off, its expressions are not trusted, generated columns are not selected, virtual tables have no module |
//! | pages that refer to each other in circles | the numbers of rows must increase, and reading a table may touch each page some times only |
//! | lengths of gigabytes | a value has [`VALUE_MAX`] bytes, SQLite itself [`HEAP_MAX`] |
//!
//! The commands that open files are confined as a whole besides (SECURITY.md).

use std::borrow::Cow;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, MAIN_DB, Result, Statement, ffi};
use rustc_hash::FxHashMap;

/// Maximum length of a value: names of kernels and ranges have a few kilobytes at most.
const VALUE_MAX: i32 = 1 << 24;
/// Maximum memory of SQLite besides the file: a database with a thousand tables takes a few megabytes.
const HEAP_MAX: u32 = 1 << 28;
/// Minimum page size.
const PAGE_MIN: usize = 512;
/// Page reads allowed for each row, and for each page: a row takes four or so, and a long one has pages of its own.
const LOOKS: u64 = 64;

/// A database and its tables.
pub(super) struct Database<'b> {
    connection: Connection,
    /// Columns with values, by table.
    tables: FxHashMap<String, Vec<String>>,
    bytes: &'b [u8],
}

/// How reading a table ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At its last row, or the table does not exist.
    Whole,
    /// At an invalid page.
    Damaged,
    /// The receiver of the rows stopped.
    Stopped,
}

/// Length of a database, from its header: the size of a page at 16 (1 for 65,536), their number at 28.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let size = u16::from_be_bytes(bytes.get(16..18)?.try_into().ok()?);
    let pages = u32::from_be_bytes(bytes.get(28..32)?.try_into().ok()?);
    let size = if size == 1 { 1 << 16 } else { usize::from(size) };
    size.checked_mul(pages as usize)
}

/// The database as one without a write-ahead log. Tools that open an export leave it in that mode (2 at 18 and 19), in
/// which SQLite looks for a second file, also of a database in memory.
pub(super) fn without_log(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes.get(18..20) {
        Some([2, _] | [_, 2]) => {
            let mut changed = bytes.to_vec();
            changed[18..20].fill(1);
            changed.into()
        }
        _ => bytes.into(),
    }
}

impl<'b> Database<'b> {
    /// Opens a database and lists its tables.
    ///
    /// # Errors
    /// It is not a database, or the list of its tables is damaged.
    pub(super) fn open(bytes: &'b [u8]) -> Result<Self> {
        let mut connection = Connection::open_in_memory()?;
        // SAFETY: the slice lives as long as `bytes`, for `'b`. SQLite reads it only through this connection, a private
        // field of a value bound by `'b`, which closes it when dropped. It is opened for reading, without `FREEONCLOSE`
        // and `RESIZEABLE`, so SQLite neither changes nor frees the memory.
        let forever: &'static [u8] = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        connection.deserialize_bytes(MAIN_DB, forever)?;
        for (setting, value) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        ] {
            connection.set_db_config(setting, value)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        // It applies to the whole process, and can only be lowered: all databases share it.
        connection.pragma_update(None, "hard_heap_limit", HEAP_MAX)?;
        let mut database = Database { connection, tables: FxHashMap::default(), bytes };
        database.tables = database.list()?;
        Ok(database)
    }

    fn list(&self) -> Result<FxHashMap<String, Vec<String>>> {
        // Nsight Systems writes no tables without row numbers, virtual ones, or views.
        let all = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND wr = 0";
        let names: Vec<String> =
            self.connection.prepare(all)?.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
        let mut tables = FxHashMap::default();
        for name in names {
            // Excludes generated columns, whose values are expressions from the file.
            let mut columns = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let columns = columns.query_map([&name], |row| row.get(0))?.collect::<Result<_>>()?;
            tables.insert(name, columns);
        }
        Ok(tables)
    }

    /// Whether the table exists.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether it has a table with this prefix.
    pub(super) fn has_some(&self, prefix: &str) -> bool {
        self.tables.keys().any(|table| table.starts_with(prefix))
    }

    /// Passes each row of a table with these columns to `take`, which returns whether to continue. A column that the
    /// table lacks is null in each row.
    pub(super) fn rows(
        &self,
        table: &str,
        columns: &[&str],
        mut take: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<End> {
        let Some(select) = self.select(table, columns) else { return Ok(End::Whole) };
        let mut statement = self.connection.prepare(&select)?;
        let budget_of = |rows: u64| LOOKS * (rows + (self.bytes.len() / PAGE_MIN) as u64);
        let (begin, mut read, mut last) = (self.looks(), 0u64, None);
        let mut rows = statement.query([])?;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => Row(row),
                Ok(None) => return Ok(End::Whole),
                Err(_) => return Ok(End::Damaged),
            };
            let number = row.integer(columns.len());
            // A cycle of pages leads to an earlier row number.
            if number.is_none() || number <= last {
                return Ok(End::Damaged);
            }
            (last, read) = (number, read + 1);
            if read.is_multiple_of(64) && self.looks().saturating_sub(begin) > budget_of(read) {
                return Ok(End::Damaged);
            }
            if !take(&row) {
                return Ok(End::Stopped);
            }
        }
    }

    /// A lookup of single rows of a table, by the value of a numbering column; `None` if the table lacks that column,
    /// or `value`.
    pub(super) fn lookup(&self, table: &str, key: &str, value: &str) -> Result<Option<Lookup<'_>>> {
        let columns = self.tables.get(table);
        if columns.is_none_or(|columns| !columns.iter().any(|of| of == value)) {
            return Ok(None);
        }
        let find = format!("SELECT {}, 0 FROM {} NOT INDEXED WHERE rowid = ?1", quoted(value), quoted(table));
        // If the column is not an alias of the row number, each number is indexed once.
        let mut numbers = None;
        let is_key =
            "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2 AND pk = 1 AND upper(type) = 'INTEGER'";
        if !self.connection.prepare(is_key)?.exists([table, key])? {
            let mut of: FxHashMap<i64, i64> = FxHashMap::default();
            self.rows(table, &[key], |row| {
                if let (Some(id), Some(number)) = (row.integer(0), row.integer(1)) {
                    of.insert(id, number);
                }
                true
            })?;
            numbers = Some(of);
        }
        Ok(Some(Lookup { statement: self.connection.prepare(&find)?, numbers }))
    }

    fn select(&self, table: &str, columns: &[&str]) -> Option<String> {
        let there = self.tables.get(table)?;
        let column = |name: &&str| match there.iter().any(|of| of == name) {
            true => quoted(name),
            false => "NULL".to_owned(),
        };
        let columns: Vec<String> = columns.iter().map(column).collect();
        Some(format!("SELECT {}, rowid FROM {} NOT INDEXED", columns.join(", "), quoted(table)))
    }

    /// Number of page reads.
    fn looks(&self) -> u64 {
        [ffi::SQLITE_DBSTATUS_CACHE_HIT, ffi::SQLITE_DBSTATUS_CACHE_MISS]
            .into_iter()
            .map(|counter| {
                let (mut now, mut most) = (0, 0);
                // SAFETY: the connection stays open as long as `self`, is used by this thread alone, and both numbers
                // outlive the call.
                let result = unsafe {
                    ffi::sqlite3_db_status(self.connection.handle(), counter, &raw mut now, &raw mut most, 0)
                };
                // The counter has 32 bits; beyond that it is unusable.
                if result == ffi::SQLITE_OK { u64::from(now.cast_unsigned()) } else { 0 }
            })
            .sum()
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// One row.
pub(super) struct Row<'r>(&'r rusqlite::Row<'r>);

impl Row<'_> {
    /// The integer in a column; `None` for anything else.
    pub(super) fn integer(&self, at: usize) -> Option<i64> {
        match self.0.get_ref(at) {
            Ok(ValueRef::Integer(number)) => Some(number),
            _ => None,
        }
    }

    /// The non-negative integer in a column.
    pub(super) fn number(&self, at: usize) -> Option<u64> {
        u64::try_from(self.integer(at)?).ok()
    }

    /// The text in a column; `None` for anything else.
    pub(super) fn text(&self, at: usize) -> Option<Cow<'_, str>> {
        match self.0.get_ref(at) {
            Ok(ValueRef::Text(text)) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }
}

/// Finds texts by number.
pub(super) struct Lookup<'d> {
    statement: Statement<'d>,
    numbers: Option<FxHashMap<i64, i64>>,
}

impl Lookup<'_> {
    /// The text with a number.
    pub(super) fn text(&mut self, id: i64) -> Option<String> {
        let row = match &self.numbers {
            Some(numbers) => *numbers.get(&id)?,
            None => id,
        };
        let mut rows = self.statement.query([row]).ok()?;
        let row = rows.next().ok()??;
        Row(row).text(0).map(Cow::into_owned)
    }
}
