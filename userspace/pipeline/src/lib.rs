//! From the records of the kernel programs to a calling context tree, without touching the machine.
//!
//! Owns: the stages of processing and their wiring. Because: live capture, replay and tests must take the very same
//! way. Does not: open files, read clocks, start threads or know the kernel: the manifest names no crate that could.
//!
//! ```text
//!  Input ──▶ decode ─┬─ fork, exec, exit, mappings ──▶ order ──▶ Symbols
//!                    │                                              ▲ asked once per address
//!                    └─ samples, calls ──▶ order ──▶ dispatch ──▶ resolve ──▶ stages: scope, place ──▶ attribution ──▶ Profile
//! ```
//! [`stage`] is the interface of a stage, `stages` the list of them; the guide in `docs/add-a-stage.md` adds one.

pub mod account;
mod address_map;
mod arena;
pub mod attribute;
mod attribution;
mod config;
mod cpython_calls;
pub mod decode;
mod dispatch;
mod due_queue;
mod duty;
pub mod encode;
pub mod input;
mod loss_windows;
mod name_frames;
mod native_omitted;
pub mod order;
mod own_contexts;
mod pipeline;
mod reason;
mod resolve;
mod scopes;
mod seen_python;
mod sites;
mod spans;
mod stack_cache;
mod stack_words;
pub mod stacks;
mod stage;
mod stages;
pub mod symbols;
pub mod system;
pub mod threads;
mod torch_calls;
mod trace_window;

pub use config::Config;
pub use pipeline::Pipeline;
pub use stages::ranges::{EndedStep, STEP_MARKER};
pub use trace_window::{AwaitedBegin, TraceLevel, TraceWindow};
