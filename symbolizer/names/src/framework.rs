//! What a native function means to the framework that it belongs to: a PyTorch operator, an autograd node, an XLA
//! thunk, or the dispatch code between them.
//!
//! Owns: the rules on names. Because: these frameworks give each operator its own function, so a stack shows which
//! operators it is in without any probe. Does not: read processes, or guess: a name that matches no rule is ordinary
//! code, and an operator missing from the table keeps the name of its function.
//!
//! | function | meaning |
//! |---|---|
//! | `at::_ops::ID::call` | entry of the operator |
//! | `at::_ops::ID::redispatch`, `VariableType::…::ID`, `ADInplaceOrView::…::ID`, `TraceType::…::ID` | inner dispatch of the operator; where no entry is above it (a boxed call), the operator begins here |
//! | `torch::autograd::generated::NODE::apply`, `AccumulateGrad`, `CopySlices`, `PyNode` | an autograd node |
//! | `torch::autograd::generated::NODE_apply_functional` | dispatch: compilers merge equal functions of several nodes (`TBackward0`, `TBackward1`), so the name does not say which node it is |
//! | `c10d::ProcessGroupX::METHOD` | a collective |
//! | `xla::cpu::XThunk::Execute`, `xla::gpu::XThunk::ExecuteOnStream` | an XLA thunk of a compiled module |
//! | `xla::cpu::CpuCompiler::RunBackend`, `…::RunHloPasses`, `xla::gpu::…Compiler::CompileTargetBinary` | a compilation stage |
//! | `wrap_kernel_functor…`, `make_boxed…`, `c10::Dispatcher`, `wrapper_KEY_…`, `THPVariable_…` | dispatch; the names keep the dispatch key |
//!
//! Measured on PyTorch 1.13 to 2.15 and XLA of jaxlib 0.4.30 to 0.12: the functions are exported or in the symbol table
//! of the published wheels.

use std::borrow::Cow;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};

/// What a native function means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The entry function of this operator.
    Entry(Cow<'static, str>),
    /// A function inside this operator: dispatch code or a compilation stage.
    Inner(Cow<'static, str>),
    /// Dispatch code that does not name its operator.
    Dispatch,
    /// Ordinary code.
    Ordinary,
}

/// ATen operators as their schemas name them, `name.overload`: those with an `at::_ops` function in PyTorch 2.15.
/// Made by joining `torch._C._jit_get_all_schemas()` with the exported symbols. It is a table because `add__Tensor`
/// alone does not show where the operator's name ends.
const ATEN: &str = include_str!("aten.txt");

/// The meaning of a function with this demangled name.
pub fn meaning(symbol: &str) -> Meaning {
    // Nearly every name is rejected here.
    if !["at::", "c10", "torch::", "xla::", "THPVariable_", "_object* torch::"]
        .iter()
        .any(|begin| symbol.starts_with(begin))
    {
        return Meaning::Ordinary;
    }
    torch(symbol)
        .or_else(|| autograd(symbol))
        .or_else(|| collective(symbol))
        .or_else(|| xla(symbol))
        .unwrap_or_else(|| if is_dispatch(symbol) { Meaning::Dispatch } else { Meaning::Ordinary })
}

/// Functions of ATen operators.
fn torch(symbol: &str) -> Option<Meaning> {
    if let Some(rest) = symbol.strip_prefix("at::_ops::") {
        let (id, rest) = identifier(rest)?;
        return match function(rest.strip_prefix("::")?)? {
            "call" => Some(Meaning::Entry(aten(id))),
            "redispatch" => Some(Meaning::Inner(aten(id))),
            _ => None,
        };
    }
    const LAYERS: [&str; 3] =
        ["torch::autograd::VariableType::", "torch::ADInplaceOrView::", "torch::TraceType::"];
    let rest = LAYERS.iter().find_map(|layer| symbol.strip_prefix(layer))?;
    let id = function(rest.strip_prefix("(anonymous namespace)::").unwrap_or(rest))?;
    // These namespaces have helpers too.
    known(id).map(|name| Meaning::Inner(Cow::Borrowed(name)))
}

/// Autograd nodes.
fn autograd(symbol: &str) -> Option<Meaning> {
    let rest = symbol.strip_prefix("torch::autograd::")?;
    if let Some(generated) = rest.strip_prefix("generated::") {
        let (node, rest) = identifier(generated)?;
        if node.ends_with("_apply_functional") {
            return Some(Meaning::Dispatch);
        }
        return (function(rest.strip_prefix("::")?)? == "apply")
            .then(|| node_name(node).map(Meaning::Entry))?;
    }
    let (node, rest) = identifier(rest)?;
    let is_node = matches!(node, "AccumulateGrad" | "CopySlices" | "PyNode");
    let applies = rest.strip_prefix("::").and_then(function) == Some("apply");
    (is_node && applies).then(|| Meaning::Entry(Cow::Owned(format!("torch::autograd::{node}"))))
}

/// `AddmmBackward0`, as PyTorch's own profiler shows it.
fn node_name(node: &str) -> Option<Cow<'static, str>> {
    (!node.is_empty()).then(|| Cow::Owned(node.to_owned()))
}

/// Collectives of a process group.
fn collective(symbol: &str) -> Option<Meaning> {
    const METHODS: [&str; 18] = [
        "allreduce",
        "allreduce_coalesced",
        "allreduce_sparse",
        "broadcast",
        "reduce",
        "allgather",
        "allgather_coalesced",
        "allgather_into_tensor_coalesced",
        "_allgather_base",
        "reduce_scatter",
        "reduce_scatter_tensor_coalesced",
        "_reduce_scatter_base",
        "alltoall",
        "alltoall_base",
        "gather",
        "scatter",
        "send",
        "recv",
    ];
    let (group, rest) = identifier(symbol.strip_prefix("c10d::")?)?;
    let method = function(rest.strip_prefix("::")?)?;
    let named = group.starts_with("ProcessGroup") && METHODS.contains(&method);
    named.then(|| Meaning::Entry(Cow::Owned(format!("c10d::{group}::{method}"))))
}

/// Thunks of XLA.
fn xla(symbol: &str) -> Option<Meaning> {
    let (place, rest) = match symbol.strip_prefix("xla::cpu::") {
        Some(rest) => ("cpu", rest),
        None => ("gpu", symbol.strip_prefix("xla::gpu::")?),
    };
    let (class, rest) = identifier(rest.strip_prefix("internal::").unwrap_or(rest))?;
    if class.ends_with("Compiler") {
        let stage = match function(rest.strip_prefix("::")?)? {
            "RunHloPasses" => "[compile] xla passes",
            "RunBackend" => "[compile] xla code generation",
            "CompileTargetBinary" => "[compile] xla target binary",
            _ => return None,
        };
        // Overloads call each other, and the stage should appear once.
        return Some(Meaning::Inner(Cow::Borrowed(stage)));
    }
    if class == "Thunk" || !class.ends_with("Thunk") {
        return None;
    }
    let method = function(without_template(rest)?.strip_prefix("::")?)?;
    let executes = matches!((place, method), ("cpu", "Execute") | ("gpu", "ExecuteOnStream"));
    // A lambda inside the method is not the method.
    let is_itself = !rest.contains(")::");
    (executes && is_itself).then(|| Meaning::Entry(Cow::Owned(format!("xla::{place}::{class}"))))
}

fn is_dispatch(symbol: &str) -> bool {
    const BEGIN: [&str; 8] = [
        "c10::impl::wrap_kernel_functor_unboxed_<",
        "c10::impl::make_boxed_from_unboxed_functor<",
        "c10::impl::BoxedKernelWrapper<",
        "c10::impl::call_functor_with_args_from_stack",
        "c10::Dispatcher::",
        "c10::KernelFunction::",
        "torch::autograd::THPVariable_",
        "_object* torch::autograd::TypeError_to_NotImplemented_<",
    ];
    BEGIN.iter().any(|begin| symbol.starts_with(begin))
        || symbol.strip_prefix("at::(anonymous namespace)::").is_some_and(|rest| rest.starts_with("wrapper_"))
}

/// The identifier at the beginning, and the rest.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The name of a function: an identifier followed by parameters or nothing.
fn function(text: &str) -> Option<&str> {
    let (name, rest) = identifier(text)?;
    (rest.is_empty() || rest.starts_with('(')).then_some(name)
}

/// The text after the template arguments at the beginning, if there are any.
fn without_template(text: &str) -> Option<&str> {
    if !text.starts_with('<') {
        return Some(text);
    }
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.get(at + 1..);
        }
    }
    None
}

/// The identifiers of the operators with a name: `aten::add.Tensor` is one operator, `aten::add` all of its
/// overloads. An operator that the table lacks may be newer; it is assumed to have the named overload, or none.
pub fn aten_identifiers(name: &str) -> Vec<String> {
    let name = name.strip_prefix("aten::").unwrap_or(name);
    let is_named = |known: &&str| *known == name || known.split('.').next() == Some(name);
    let known: Vec<String> = ATEN.lines().filter(is_named).map(|name| name.replace('.', "_")).collect();
    if known.is_empty() { vec![name.replace('.', "_")] } else { known }
}

/// The name of the operator with this identifier; the name of its function when the table lacks it.
fn aten(id: &str) -> Cow<'static, str> {
    known(id).map_or_else(|| Cow::Owned(format!("at::_ops::{id}")), Cow::Borrowed)
}

/// `aten::add_.Tensor` for `add__Tensor`.
fn known(id: &str) -> Option<&'static str> {
    static NAMES: OnceLock<FxHashMap<String, String>> = OnceLock::new();
    let names = NAMES
        .get_or_init(|| ATEN.lines().map(|name| (name.replace('.', "_"), format!("aten::{name}"))).collect());
    names.get(id).map(String::as_str)
}

/// An operator of ATen by its name without overload, `_softmax_backward_data`; `None` when there is none.
pub fn aten_base_name(name: &str) -> Option<&'static str> {
    static NAMES: OnceLock<FxHashSet<&'static str>> = OnceLock::new();
    let names = NAMES.get_or_init(|| ATEN.lines().filter_map(|name| name.split('.').next()).collect());
    names.get(name).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Names from stacks of PyTorch 2.15 and jaxlib 0.12.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of inputs and what is expected of them")]
    fn functions_of_frameworks_have_the_meaning_of_their_names() {
        let entry = |name: &'static str| Meaning::Entry(Cow::Borrowed(name));
        let inner = |name: &'static str| Meaning::Inner(Cow::Borrowed(name));
        for (symbol, expect) in [
            ("at::_ops::addmm::call(at::Tensor const&, at::Tensor const&)", entry("aten::addmm")),
            (
                "at::_ops::add__Tensor::call(at::Tensor&, at::Tensor const&, c10::Scalar const&)",
                entry("aten::add_.Tensor"),
            ),
            (
                "at::_ops::_to_copy::redispatch(c10::DispatchKeySet, at::Tensor const&)",
                inner("aten::_to_copy"),
            ),
            ("at::_ops::not_in_2_15::call(at::Tensor const&)", entry("at::_ops::not_in_2_15")),
            ("at::_ops::addmm::schema_str", Meaning::Ordinary),
            ("at::_ops::addmm::caller(int)", Meaning::Ordinary),
            (
                "torch::autograd::VariableType::(anonymous namespace)::mul_Tensor(c10::DispatchKeySet)",
                inner("aten::mul.Tensor"),
            ),
            (
                "torch::ADInplaceOrView::(anonymous namespace)::add__Tensor(c10::DispatchKeySet)",
                inner("aten::add_.Tensor"),
            ),
            (
                "torch::autograd::VariableType::(anonymous namespace)::unpack(at::Tensor const&)",
                Meaning::Ordinary,
            ),
            (
                "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
                entry("AddmmBackward0"),
            ),
            (
                "torch::autograd::generated::TBackward1_apply_functional(std::vector<at::Tensor>&&)",
                Meaning::Dispatch,
            ),
            ("torch::autograd::generated::AddmmBackward0::release_variables()", Meaning::Ordinary),
            (
                "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
                entry("torch::autograd::AccumulateGrad"),
            ),
            ("torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", entry("torch::autograd::PyNode")),
            (
                "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
                Meaning::Ordinary,
            ),
            ("torch::autograd::THPVariable_linear(_object*, _object*, _object*)", Meaning::Dispatch),
            (
                "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::X, at::Tensor ()>::call(c10::OperatorKernel*)",
                Meaning::Dispatch,
            ),
            ("at::(anonymous namespace)::wrapper_CPU_gelu(at::Tensor const&)", Meaning::Dispatch),
            ("at::native::structured_addmm_out_cpu::impl(at::Tensor const&)", Meaning::Ordinary),
            (
                "c10d::ProcessGroupNCCL::allreduce(std::vector<at::Tensor>&)",
                entry("c10d::ProcessGroupNCCL::allreduce"),
            ),
            ("c10d::ProcessGroupNCCL::getNCCLComm(std::string const&)", Meaning::Ordinary),
            (
                "xla::cpu::DotThunk::Execute(xla::cpu::Thunk::ExecuteParams const&)",
                entry("xla::cpu::DotThunk"),
            ),
            (
                "xla::cpu::SmallKernelThunk<9l, 1l>::Execute(xla::cpu::Thunk::ExecuteParams const&)",
                entry("xla::cpu::SmallKernelThunk"),
            ),
            ("xla::cpu::ThunkExecutor::Execute(xla::cpu::Thunk::ExecuteParams const&)", Meaning::Ordinary),
            (
                "xla::cpu::YnnFusionThunk::Execute(xla::cpu::Thunk::ExecuteParams const&)::$_0::operator()(long) const",
                Meaning::Ordinary,
            ),
            (
                "xla::gpu::GemmThunk::ExecuteOnStream(xla::gpu::Thunk::ExecuteParams const&)",
                entry("xla::gpu::GemmThunk"),
            ),
            (
                "xla::cpu::CpuCompiler::RunBackend(std::unique_ptr<xla::HloModule, std::default_delete<xla::HloModule> >)",
                inner("[compile] xla code generation"),
            ),
            (
                "xla::gpu::NVPTXCompiler::CompileTargetBinary(xla::HloModuleConfig const&)",
                inner("[compile] xla target binary"),
            ),
            ("xla::cpu::CpuCompiler::RunHloPassesThroughLayoutAssn(xla::HloModule*)", Meaning::Ordinary),
            ("main", Meaning::Ordinary),
        ] {
            assert_eq!(meaning(symbol), expect, "{symbol}");
        }
    }

    #[test]
    fn every_operator_in_the_table_has_a_unique_identifier() {
        let mut ids: Vec<_> = ATEN.lines().map(|name| name.replace('.', "_")).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), all > 3000), (all, true));
    }

    proptest! {
        #[test]
        fn any_name_has_a_meaning(symbol in r"(at::_ops::|torch::autograd::(generated::)?|c10d::|xla::cpu::)?[<>()a-zA-Z_:é]{0,40}") {
            if let Meaning::Entry(name) | Meaning::Inner(name) = meaning(&symbol) {
                prop_assert!(!name.is_empty());
            }
        }
    }
}
