//! Tests of derived rows: with small assembled functions, and with complete libraries that have call frame information.

mod files;
mod hostile;
mod oracle;
mod snippets;
