//! Renderings: tables for people, for programs and for browsers.
//!
//! Owns: a file for each form. Because: a form must be able to change without a figure changing. Does not: compute.

#[cfg(feature = "export")]
pub mod html;
pub mod json;
pub mod markdown;
pub mod text;
