//! Renderings: tables for people, for programs and for browsers.
//!
//! Owns: a file for each format. Because: a format must be able to change without changing a figure. Does not: compute.

#[cfg(feature = "export")]
pub mod html;
pub mod json;
pub mod markdown;
#[cfg(feature = "export")]
pub mod screen;
pub mod text;
