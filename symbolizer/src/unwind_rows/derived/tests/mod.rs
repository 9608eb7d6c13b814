//! Tests of derived rows: what is said of small functions assembled right here, and of those of whole libraries whose
//! compilers said it, too.

mod files;
mod hostile;
mod oracle;
mod snippets;
