//! What the name of a function, a symbol or a file says by itself.
//!
//! Owns: demangling, the functions of machine-learning frameworks, host stubs of kernels, and paths of files that have
//! a meaning. Because: the symbolizer and the pipeline draw the same conclusions from a name, and the pipeline must not
//! depend on code that reads processes. Does not: read files or processes, parse ELF, or read a clock.
//!
//! ```
//! use deepctx_names::demangle;
//! use deepctx_names::framework::{Meaning, meaning};
//!
//! let name = demangle("_ZN2at4_ops5addmm4callERKNS_6TensorES4_");
//! assert_eq!(name, "at::_ops::addmm::call(at::Tensor const&, at::Tensor const&)");
//! assert_eq!(meaning(&name), Meaning::Entry("aten::addmm".into()));
//! ```

mod demangle;
pub mod framework;
mod host_stub;
pub mod inductor;
mod numba;
mod torch_module;
mod v8;

pub use demangle::{demangle, demangle_quickly};
pub use host_stub::{kernel_of_readable_stub, kernel_of_stub};
pub use torch_module::is_torch_module_file;
