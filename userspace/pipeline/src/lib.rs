//! Turns the records of the kernel programs into a calling context tree, without touching the machine.
//!
//! Owns: the processing stages and their wiring. Because: live capture, replay and tests must run exactly the same
//! code. Does not: open files, read clocks, start threads or know the kernel: the manifest names no crate that could.
//!
//! ```text
//!  Input ──▶ decode ─┬─ fork, exec, exit, mappings ──▶ order ──▶ Symbols
//!                    │                                              ▲ asked once per address
//!                    └─ samples, calls ──▶ order ──▶ dispatch ──▶ resolve ──▶ stages: scope, place ──▶ attribution ──▶ Profile
//! ```
//! [`stage`] is the interface of a stage, `stages` the list of them; the guide in `docs/add-a-stage.md` adds one.
//!
//! The root has [`Pipeline`] and its [`Config`]. [`input`] is what goes in, [`encode`] and [`decode`] handle its
//! bytes, [`symbols`] is the interface to symbolization, and [`stacks`] names stacks without a profile.
//!
//! A sample of two frames, as the kernel programs write it, becomes a context of the profile:
//!
//! ```
//! use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, word};
//! use deepctx_pipeline::input::{Input, SpaceUpdate};
//! use deepctx_pipeline::symbols::{
//!     CodeAddress, ProcessFacts, Name, NameReceiver, PythonReference, SpaceId, Symbols,
//! };
//! use deepctx_pipeline::{Config, Pipeline, encode};
//! use deepctx_profile::{Meta, Metric};
//!
//! /// Knows two functions.
//! struct TwoNames;
//!
//! impl ProcessFacts for TwoNames {}
//!
//! impl Symbols for TwoNames {
//!     type Space = ();
//!
//!     fn user(&mut self, _: SpaceId, addresses: &[CodeAddress], _: &[u64], answer: &mut NameReceiver<'_>) {
//!         for (n, CodeAddress::Exact(pc) | CodeAddress::Return(pc)) in addresses.iter().enumerate() {
//!             let symbol = if *pc == 0x1000 { "step" } else { "main" };
//!             answer(n, &[Name::Native { symbol, module: "train", file: "", line: 0, inlined: false }]);
//!         }
//!     }
//!
//!     fn space(&mut self, pid: u32, _: u64) -> SpaceId {
//!         SpaceId(pid)
//!     }
//!
//!     fn process_name(&mut self, _: u32, _: u64) -> Option<&str> {
//!         Some("train")
//!     }
//!
//!     // Nothing changes here, and there is neither Python nor the kernel.
//!     fn space_changed(&mut self, _: SpaceUpdate<()>) {}
//!     fn forked(&mut self, _: &ProcessEvent) {}
//!     fn replaced(&mut self, _: &ProcessEvent) {}
//!     fn on_exit(&mut self, _: &ProcessEvent) {}
//!     fn retire(&mut self, _: u64) {}
//!     fn python(&mut self, _: SpaceId, _: &[PythonReference], _: &mut NameReceiver<'_>) {}
//!     fn kernel(&mut self, _: &[CodeAddress], _: &mut NameReceiver<'_>) {}
//! }
//!
//! let header = RecordHeader { sequence: 1, time_ns: 10, ..RecordHeader::default() };
//! let comm = encode::comm("train");
//! let sample = StackSample { header, pid: 7, tid: 7, comm, period: 10_000_000, ..StackSample::default() };
//! // The innermost frame comes first.
//! let stack = [word::tagged(word::EXACT, 0x1000), word::tagged(word::RETURN, 0x2000)];
//! let mut records = Vec::new();
//! encode::sample(&mut records, &sample, &[], &stack);
//!
//! let mut pipeline = Pipeline::new(TwoNames, Meta::default(), Config::default());
//! pipeline.feed(Input::Records(records));
//! let profile = pipeline.into_profile();
//!
//! let (context, samples) = profile.tree.cells(Metric::Samples).next().unwrap();
//! let frames = profile.tree.stack(context).into_iter().map(|frame| profile.frames.get(frame));
//! let labels: Vec<String> = frames.map(|frame| frame.label(&profile.strings, false)).collect();
//! assert_eq!((samples.sum, &labels[labels.len() - 2..]), (1, &["main".to_owned(), "step".to_owned()][..]));
//! ```

mod account;
mod address_map;
mod arena;
mod attribute;
mod attribution;
mod by_process;
mod config;
mod cpython_calls;
pub mod decode;
mod dispatch;
mod due_queue;
mod duty;
pub mod encode;
mod followed;
pub mod input;
mod loss_windows;
mod name_frames;
mod native_omitted;
mod order;
mod own_contexts;
mod own_work;
mod owners;
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
mod threads;
mod torch_calls;
mod trace_window;

pub use config::{Config, STEP_MARKER, stack_bytes};
pub use pipeline::Pipeline;
pub use stages::ranges::EndedStep;
pub use threads::text as thread_name;
pub use trace_window::{AwaitedBegin, TraceLevel, TraceWindow};
