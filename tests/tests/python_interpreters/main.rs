//! Every CPython of this machine, against what its own headers and its own introspection say.

mod headers;
mod live;
mod support;
