//! Columns: an append-only table, stored field by field.
//!
//! Owns: the macro `columns!`. Because: a trace has millions of rows, an analysis reads two or three of their fields,
//! and a row of mixed field sizes would be padded. Does not: know what a row means, or how a column is packed.

/// Declares a row and the table of such rows: `columns! { pub struct Row in packed Rows { pub field: Type, } }`. Fields
/// of a `packed` table are numbers ([`Cell`](super::packed::Cell)); those of a `plain` one have any type.
macro_rules! columns {
    (
        $(#[$row_doc:meta])*
        pub struct $row:ident in $form:ident $table:ident {
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
            $($field: columns!(@column $form $type),)*
        }

        impl $table {
            /// Adds a row. `None` if the table has as many as handles can count.
            pub fn push(&mut self, row: $row) -> Option<$crate::intern::Id<$row>> {
                let number = u32::try_from(self.len()).ok()?;
                $(self.$field.add(row.$field);)*
                Some($crate::intern::Id::from_number(number))
            }

            /// The row of a handle of this table; `None` for a handle of another.
            // Inlined, so that fields that the caller does not use are not unpacked.
            #[inline]
            pub fn get(&self, id: $crate::intern::Id<$row>) -> Option<$row> {
                let at = id.index();
                (at < self.len()).then(|| $row { $($field: self.$field.at(at),)* })
            }

            /// Every row with its handle, oldest first.
            #[inline]
            pub fn iter(&self) -> impl DoubleEndedIterator<Item = ($crate::intern::Id<$row>, $row)> + '_ {
                let ids = (0..self.len() as u32).map($crate::intern::Id::from_number);
                ids.filter_map(|id| Some((id, self.get(id)?)))
            }

            /// How many rows there are.
            #[inline]
            pub fn len(&self) -> usize {
                columns!(@first self $($field: $type,)*)
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
    (@first $self:ident $first:ident: $type:ty, $($rest:tt)*) => { Column::<$type>::count(&$self.$first) };
    (@column packed $type:ty) => { PackedColumn };
    (@column plain $type:ty) => { Vec<$type> };
}

pub(super) use columns;
