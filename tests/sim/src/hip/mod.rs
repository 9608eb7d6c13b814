//! `libhip`: every function of the catalogue, without behaviour.
//!
//! Owns: their symbols. Because: probes must find them. Does not: do anything yet.

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/hip.rs"));
}
