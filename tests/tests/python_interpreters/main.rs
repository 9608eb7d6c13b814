//! Every CPython of this machine, against its own headers and its own introspection.

// A test that cannot go on fails; this file is nothing but tests.
#![allow(clippy::unwrap_used)]

mod await_chains;
mod capture;
#[path = "../cli_support/mod.rs"]
mod cli_support;
mod dump;
mod headers;
mod hostile;
mod layers;
mod live;
mod lives;
mod moving;
mod peer;
mod reuse;
mod support;
