//! Columns: a table that only grows, kept field by field.
//!
//! Owns: the macro `columns!`. Because: a trace has millions of rows, an analysis reads two or three of their fields,
//! and a row of mixed sizes would pad each of them. Does not: know what a row means.

/// Declares a row and the table of such rows: `columns! { /// … pub struct Row in Rows { /// … pub field: Type, } }`.
macro_rules! columns {
    (
        $(#[$row_doc:meta])*
        pub struct $row:ident in $table:ident {
            $($(#[$doc:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$row_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $row {
            $($(#[$doc])* pub $field: $type,)*
        }

        #[doc = concat!("Rows of [`", stringify!($row), "`], by column. Rows are added, never changed or removed.")]
        #[derive(Clone, Debug, Default)]
        pub struct $table {
            $($field: Vec<$type>,)*
        }

        impl $table {
            /// Adds a row. `None` when the table has as many as handles can count.
            pub fn push(&mut self, row: $row) -> Option<$crate::id::Id<$row>> {
                let number = u32::try_from(self.len()).ok()?;
                $(self.$field.push(row.$field);)*
                Some($crate::id::Id::from_number(number))
            }

            /// The row of a handle of this table; `None` for a handle of another.
            pub fn get(&self, id: $crate::id::Id<$row>) -> Option<$row> {
                let at = id.index();
                Some($row { $($field: *self.$field.get(at)?,)* })
            }

            /// Every row with its handle, oldest first.
            pub fn iter(&self) -> impl DoubleEndedIterator<Item = ($crate::id::Id<$row>, $row)> + '_ {
                let ids = (0..self.len() as u32).map($crate::id::Id::from_number);
                ids.filter_map(|id| Some((id, self.get(id)?)))
            }

            /// How many rows there are.
            pub fn len(&self) -> usize {
                columns!(@first self $($field)*).len()
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
    (@first $self:ident $first:ident $($rest:ident)*) => { $self.$first };
}

pub(super) use columns;
