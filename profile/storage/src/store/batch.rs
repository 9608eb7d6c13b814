//! Batches: rows of one table in memory, column by column.
//!
//! Owns: [`Batch`], adding rows to it and looking at them. Because: files hold columns, while profiles are made of
//! rows. Does not: encode, or know what a row means.

use std::ops::Range;

use deepctx_profile::units::counted;

use super::columns::{Column, Kind, Table};

/// Rows of one table.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    columns: &'static [Column],
    cells: Vec<Cells>,
    rows: usize,
}

/// The cells of the rows in one column.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// One value for each row; arbitrary for a row without one.
    pub(super) values: Values,
    /// For each row, 1 if it has a value and 0 if not; empty for a required column.
    pub(super) levels: Vec<i16>,
}

/// Values of one type.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Bool(Vec<bool>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Decimal(Vec<i128>),
    Text(Texts),
}

/// Texts, concatenated.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    all: String,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) fn push(&mut self, text: &str) {
        self.all.push_str(text);
        self.ends.push(self.all.len());
    }

    pub(super) fn get(&self, at: usize) -> Option<&str> {
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.all.get(start..*self.ends.get(at)?)
    }

    /// All of them without separators.
    pub(super) fn all(&self) -> &str {
        &self.all
    }

    /// Range of each in [`Texts::all`].
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        [0].iter().chain(&self.ends).zip(&self.ends).map(|(start, end)| *start..*end)
    }

    fn append(&mut self, more: &Texts) {
        let before = self.all.len();
        self.all.push_str(&more.all);
        self.ends.extend(more.ends.iter().map(|end| before + end));
    }
}

impl Values {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::U32 => Values::U32(Vec::new()),
            Kind::U64 => Values::U64(Vec::new()),
            Kind::Decimal => Values::Decimal(Vec::new()),
            Kind::Text => Values::Text(Texts::default()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Values::Bool(values) => values.len(),
            Values::U32(values) => values.len(),
            Values::U64(values) => values.len(),
            Values::Decimal(values) => values.len(),
            Values::Text(texts) => texts.ends.len(),
        }
    }
}

/// A value of an added row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    None,
    Bool(bool),
    U32(u32),
    U64(u64),
    Decimal(i128),
    Text(&'a str),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from(value: $from) -> Self {
                Value::$variant(value)
            }
        })*
    };
}
value_from!(bool => Bool, u32 => U32, u64 => U64, i128 => Decimal, &'a str => Text);

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::None, Into::into)
    }
}

impl Cells {
    /// Rows without a value.
    pub(super) fn none(kind: Kind, rows: usize) -> Self {
        let mut cells = Cells { values: Values::new(kind), levels: Vec::new() };
        (0..rows).for_each(|_| cells.push(true, Value::None));
        cells
    }

    /// Adds a value; one of the wrong type is left out, which [`Batch::check`] detects.
    fn push(&mut self, optional: bool, value: Value<'_>) {
        let is_some = !matches!(value, Value::None);
        match (&mut self.values, value) {
            (Values::Bool(values), Value::Bool(value)) => values.push(value),
            (Values::U32(values), Value::U32(value)) => values.push(value),
            (Values::U64(values), Value::U64(value)) => values.push(value),
            (Values::Decimal(values), Value::Decimal(value)) => values.push(value),
            (Values::Text(values), Value::Text(value)) => values.push(value),
            (values, Value::None) if optional => match values {
                Values::Bool(values) => values.push(false),
                Values::U32(values) => values.push(0),
                Values::U64(values) => values.push(0),
                Values::Decimal(values) => values.push(0),
                Values::Text(values) => values.push(""),
            },
            _ => {}
        }
        if optional {
            self.levels.push(is_some.into());
        }
    }

    fn append(&mut self, more: Cells) {
        match (&mut self.values, more.values) {
            (Values::Bool(values), Values::Bool(more)) => values.extend(more),
            (Values::U32(values), Values::U32(more)) => values.extend(more),
            (Values::U64(values), Values::U64(more)) => values.extend(more),
            (Values::Decimal(values), Values::Decimal(more)) => values.extend(more),
            (Values::Text(values), Values::Text(more)) => values.append(&more),
            // Two tables, which `Batch::check` detects.
            _ => {}
        }
        self.levels.extend(more.levels);
    }
}

impl Batch {
    /// No rows yet.
    pub(super) fn new(table: Table) -> Self {
        let columns = table.columns();
        let cells =
            columns.iter().map(|column| Cells { values: Values::new(column.kind), levels: Vec::new() });
        Batch { columns, cells: cells.collect(), rows: 0 }
    }

    /// Rows that were read: their cells in each column of the table, in order.
    pub(super) fn of(table: Table, cells: Vec<Cells>, rows: usize) -> Result<Self, String> {
        let batch = Batch { columns: table.columns(), cells, rows };
        batch.check()?;
        Ok(batch)
    }

    /// Adds a row: one value per column, in order.
    pub(super) fn push<const N: usize>(&mut self, row: [Value<'_>; N]) {
        for ((column, cells), value) in self.columns.iter().zip(&mut self.cells).zip(row) {
            cells.push(column.optional, value);
        }
        self.rows += 1;
    }

    /// Adds all rows of another batch of the same table.
    pub(super) fn append(&mut self, more: Batch) {
        self.rows += more.rows;
        for (cells, more) in self.cells.iter_mut().zip(more.cells) {
            cells.append(more);
        }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The cells in each column, in order.
    pub(super) fn cells(&self) -> &[Cells] {
        &self.cells
    }

    /// Whether all rows are complete.
    pub(super) fn check(&self) -> Result<(), String> {
        for (column, cells) in self.columns.iter().zip(&self.cells) {
            let levels = if column.optional { cells.levels.len() } else { self.rows };
            if cells.values.len() != self.rows || levels != self.rows {
                let values = counted(cells.values.len() as u64, "value");
                let rows = counted(self.rows as u64, "row");
                return Err(format!("column `{}` has {values} for {rows}", column.name));
            }
        }
        Ok(())
    }

    /// A whole column: for tables of a million rows, where a look-up per row would be noticeable.
    pub(super) fn u32s(&self, name: &str) -> Result<&[u32], String> {
        let place = self.columns.iter().position(|column| column.name == name);
        match place.map(|place| &self.cells[place].values) {
            Some(Values::U32(values)) => Ok(values),
            _ => Err(format!("it has no numbers in `{name}`")),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows).map(|at| Row { batch: self, at })
    }
}

/// One row. A column that is missing or of another type has no value.
pub(super) struct Row<'a> {
    batch: &'a Batch,
    at: usize,
}

impl<'a> Row<'a> {
    /// Index in its batch.
    pub(super) fn number(&self) -> usize {
        self.at
    }

    fn values(&self, name: &str) -> Option<&'a Values> {
        let place = self.batch.columns.iter().position(|column| column.name == name)?;
        let Cells { values, levels } = &self.batch.cells[place];
        levels.get(self.at).is_none_or(|&level| level > 0).then_some(values)
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        let Values::Text(values) = self.values(name)? else { return None };
        values.get(self.at)
    }

    pub(super) fn u32(&self, name: &str) -> Option<u32> {
        let Values::U32(values) = self.values(name)? else { return None };
        values.get(self.at).copied()
    }

    pub(super) fn u64(&self, name: &str) -> Option<u64> {
        let Values::U64(values) = self.values(name)? else { return None };
        values.get(self.at).copied()
    }

    pub(super) fn decimal(&self, name: &str) -> Option<i128> {
        let Values::Decimal(values) = self.values(name)? else { return None };
        values.get(self.at).copied()
    }

    pub(super) fn bool(&self, name: &str) -> bool {
        let Some(Values::Bool(values)) = self.values(name) else { return false };
        values.get(self.at).is_some_and(|value| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_with_their_gaps() {
        let mut batch = Batch::new(Table::Ledger);
        batch.push([9u64.into(), "decode".into(), "kept".into(), Value::None, Value::None, 3u64.into()]);
        let mut more = Batch::new(Table::Ledger);
        more.push([
            9u64.into(),
            "decode".into(),
            "gap".into(),
            "odd".into(),
            "it is odd".into(),
            1u64.into(),
        ]);
        batch.append(more);
        let rows: Vec<_> =
            batch.iter().map(|row| (row.text("class"), row.text("reason"), row.u64("count"))).collect();
        assert_eq!(rows, [(Some("kept"), None, Some(3)), (Some("gap"), Some("odd"), Some(1))]);
        assert_eq!(batch.check(), Ok(()));
    }

    #[test]
    fn values_that_do_not_suit_their_columns_are_found() {
        let checked = |row: [Value<'_>; 3]| {
            let mut batch = Batch::new(Table::Nodes);
            batch.push(row);
            batch.check()
        };
        assert_eq!(checked([1u32.into(), 0u32.into(), 7u32.into()]), Ok(()));
        assert_eq!(
            checked([1u32.into(), Value::None, 7u32.into()]),
            Err("column `parent` has 0 values for 1 row".to_owned())
        );
        assert!(checked([1u32.into(), 0u64.into(), 7u32.into()]).is_err());
    }
}
