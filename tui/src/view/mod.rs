//! View: the model as cells.
//!
//! Owns: one drawing function per part of the screen, each from `&Model`. Because: a screen that depends on nothing
//! else can be compared with a stored one. Does not: change the model, know the terminal, or decide where things are;
//! see `layout`.

mod ascii;
mod counters;
mod event_tables;
mod events;
mod footer;
mod graph;
mod header;
mod health;
mod help;
mod metrics;
mod overview;
mod pen;
mod pieces;
mod prompt;
mod screen;
mod source;
mod strip;
mod table;
mod timeline;

pub use screen::draw;
