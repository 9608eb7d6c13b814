//! The native part of the Python module `deepctx`: profiles, contexts and tables.
//!
//! Owns: what Python sees of a profile, and how a table gets to pandas, polars and DuckDB without a copy. Because:
//! whoever studies a profile does so in a notebook, with tools of their own. Does not: capture, need root, compute a
//! table (`deepctx-analysis` does) or know a rule; what Python says better stands in `deepctx/*.py`.

mod columns;
mod errors;
mod loaded;
mod node;
mod profile;
mod rows;
mod table;

/// The module `deepctx._native`: see `deepctx/_native.pyi` for its interface.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::errors::{DeepctxError, OpenError};
    #[pymodule_export]
    use crate::node::{Node, Walk};
    #[pymodule_export]
    use crate::profile::{Part, Profile, diff_json};
    #[pymodule_export]
    use crate::table::Table;
}
