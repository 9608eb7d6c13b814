//! What a native function means to the framework that it belongs to: a PyTorch operator, a step of the backward pass, an
//! XLA thunk, or the dispatch code between them.
//!
//! Owns: the rules on names. Because: these frameworks give each operator a function of its own, so a stack tells which
//! operators it is in without any probe. Does not: read processes, or guess: a name that follows no rule is code like
//! any other, and an operator without an entry in the table keeps the name of its function.
//!
//! | function | meaning |
//! |---|---|
//! | `at::_ops::ID::call` | the operator begins |
//! | `at::_ops::ID::redispatch`, `VariableType::…::ID`, `ADInplaceOrView::…::ID`, `TraceType::…::ID` | dispatch within it; where nothing above began it (a boxed call), it begins here |
//! | `torch::autograd::generated::NODE::apply`, `AccumulateGrad`, `CopySlices`, `PyNode` | a node of the backward pass |
//! | `torch::autograd::generated::NODE_apply_functional` | dispatch: where nodes do the same (`TBackward0`, `TBackward1`), compilers make one function of theirs, with the names of all |
//! | `c10d::ProcessGroupX::METHOD` | a collective |
//! | `xla::cpu::XThunk::Execute`, `xla::gpu::XThunk::ExecuteOnStream` | a thunk: one step of a compiled module |
//! | `xla::cpu::CpuCompiler::RunBackend`, `…::RunHloPasses`, `xla::gpu::…Compiler::CompileTargetBinary` | a stage of a compilation |
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
    /// This operator begins.
    Begins(Cow<'static, str>),
    /// Dispatch within this operator.
    Within(Cow<'static, str>),
    /// Dispatch that does not say for which operator.
    Dispatch,
    /// Code like any other.
    Ordinary,
}

/// Operators of ATen as their schemas name them, `name.overload`, those that have an `at::_ops` function in PyTorch
/// 2.15. Made by joining `torch._C._jit_get_all_schemas()` with the exported symbols. A table, since `add__Tensor` does
/// not tell where the name ends.
const ATEN: &str = include_str!("aten.txt");

/// The meaning of a function with this demangled name.
pub fn meaning(symbol: &str) -> Meaning {
    // Nearly every name fails here.
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
            "call" => Some(Meaning::Begins(aten(id))),
            "redispatch" => Some(Meaning::Within(aten(id))),
            _ => None,
        };
    }
    const LAYERS: [&str; 3] =
        ["torch::autograd::VariableType::", "torch::ADInplaceOrView::", "torch::TraceType::"];
    let rest = LAYERS.iter().find_map(|layer| symbol.strip_prefix(layer))?;
    let id = function(rest.strip_prefix("(anonymous namespace)::").unwrap_or(rest))?;
    // These namespaces have helpers too.
    known(id).map(|name| Meaning::Within(Cow::Borrowed(name)))
}

/// Nodes of the backward pass.
fn autograd(symbol: &str) -> Option<Meaning> {
    let rest = symbol.strip_prefix("torch::autograd::")?;
    if let Some(generated) = rest.strip_prefix("generated::") {
        let (node, rest) = identifier(generated)?;
        if node.ends_with("_apply_functional") {
            return Some(Meaning::Dispatch);
        }
        return (function(rest.strip_prefix("::")?)? == "apply")
            .then(|| node_name(node).map(Meaning::Begins))?;
    }
    let (node, rest) = identifier(rest)?;
    let is_node = matches!(node, "AccumulateGrad" | "CopySlices" | "PyNode");
    let applies = rest.strip_prefix("::").and_then(function) == Some("apply");
    (is_node && applies).then(|| Meaning::Begins(Cow::Owned(format!("torch::autograd::{node}"))))
}

/// `AddmmBackward0`, as profilers of the framework itself show it.
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
    named.then(|| Meaning::Begins(Cow::Owned(format!("c10d::{group}::{method}"))))
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
        // Overloads call each other: a stage begins once.
        return Some(Meaning::Within(Cow::Borrowed(stage)));
    }
    if class == "Thunk" || !class.ends_with("Thunk") {
        return None;
    }
    let method = function(without_template(rest)?.strip_prefix("::")?)?;
    let executes = matches!((place, method), ("cpu", "Execute") | ("gpu", "ExecuteOnStream"));
    // A function within it is a part of it.
    let is_itself = !rest.contains(")::");
    (executes && is_itself).then(|| Meaning::Begins(Cow::Owned(format!("xla::{place}::{class}"))))
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

/// The identifier at the beginning, and what follows it.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The name of a function: an identifier that its parameters follow, or nothing.
fn function(text: &str) -> Option<&str> {
    let (name, rest) = identifier(text)?;
    (rest.is_empty() || rest.starts_with('(')).then_some(name)
}

/// What follows the template arguments at the beginning, if there are any.
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

/// The identifiers of the operators with a name: `aten::add.Tensor` is one of them, `aten::add` all that are called so. One
/// that the table lacks may be newer, and is taken to have no overload, or the one that is named.
pub fn identifiers(name: &str) -> Vec<String> {
    let name = name.strip_prefix("aten::").unwrap_or(name);
    let is_named = |known: &&str| *known == name || known.split('.').next() == Some(name);
    let known: Vec<String> = ATEN.lines().filter(is_named).map(|name| name.replace('.', "_")).collect();
    if known.is_empty() { vec![name.replace('.', "_")] } else { known }
}

/// The name of the operator with this identifier; one that is not in the table is named by its function.
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
pub fn base_name(name: &str) -> Option<&'static str> {
    static NAMES: OnceLock<FxHashSet<&'static str>> = OnceLock::new();
    let names = NAMES.get_or_init(|| ATEN.lines().filter_map(|name| name.split('.').next()).collect());
    names.get(name).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Names as they came out of stacks of PyTorch 2.15 and jaxlib 0.12.
    #[test]
    fn functions_mean_what_the_framework_names_them_for() {
        let begins = |name: &'static str| Meaning::Begins(Cow::Borrowed(name));
        let within = |name: &'static str| Meaning::Within(Cow::Borrowed(name));
        for (symbol, expect) in [
            ("at::_ops::addmm::call(at::Tensor const&, at::Tensor const&)", begins("aten::addmm")),
            (
                "at::_ops::add__Tensor::call(at::Tensor&, at::Tensor const&, c10::Scalar const&)",
                begins("aten::add_.Tensor"),
            ),
            (
                "at::_ops::_to_copy::redispatch(c10::DispatchKeySet, at::Tensor const&)",
                within("aten::_to_copy"),
            ),
            ("at::_ops::not_in_2_15::call(at::Tensor const&)", begins("at::_ops::not_in_2_15")),
            ("at::_ops::addmm::schema_str", Meaning::Ordinary),
            ("at::_ops::addmm::caller(int)", Meaning::Ordinary),
            (
                "torch::autograd::VariableType::(anonymous namespace)::mul_Tensor(c10::DispatchKeySet)",
                within("aten::mul.Tensor"),
            ),
            (
                "torch::ADInplaceOrView::(anonymous namespace)::add__Tensor(c10::DispatchKeySet)",
                within("aten::add_.Tensor"),
            ),
            (
                "torch::autograd::VariableType::(anonymous namespace)::unpack(at::Tensor const&)",
                Meaning::Ordinary,
            ),
            (
                "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
                begins("AddmmBackward0"),
            ),
            (
                "torch::autograd::generated::TBackward1_apply_functional(std::vector<at::Tensor>&&)",
                Meaning::Dispatch,
            ),
            ("torch::autograd::generated::AddmmBackward0::release_variables()", Meaning::Ordinary),
            (
                "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
                begins("torch::autograd::AccumulateGrad"),
            ),
            ("torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", begins("torch::autograd::PyNode")),
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
                begins("c10d::ProcessGroupNCCL::allreduce"),
            ),
            ("c10d::ProcessGroupNCCL::getNCCLComm(std::string const&)", Meaning::Ordinary),
            (
                "xla::cpu::DotThunk::Execute(xla::cpu::Thunk::ExecuteParams const&)",
                begins("xla::cpu::DotThunk"),
            ),
            (
                "xla::cpu::SmallKernelThunk<9l, 1l>::Execute(xla::cpu::Thunk::ExecuteParams const&)",
                begins("xla::cpu::SmallKernelThunk"),
            ),
            ("xla::cpu::ThunkExecutor::Execute(xla::cpu::Thunk::ExecuteParams const&)", Meaning::Ordinary),
            (
                "xla::cpu::YnnFusionThunk::Execute(xla::cpu::Thunk::ExecuteParams const&)::$_0::operator()(long) const",
                Meaning::Ordinary,
            ),
            (
                "xla::gpu::GemmThunk::ExecuteOnStream(xla::gpu::Thunk::ExecuteParams const&)",
                begins("xla::gpu::GemmThunk"),
            ),
            (
                "xla::cpu::CpuCompiler::RunBackend(std::unique_ptr<xla::HloModule, std::default_delete<xla::HloModule> >)",
                within("[compile] xla code generation"),
            ),
            (
                "xla::gpu::NVPTXCompiler::CompileTargetBinary(xla::HloModuleConfig const&)",
                within("[compile] xla target binary"),
            ),
            ("xla::cpu::CpuCompiler::RunHloPassesThroughLayoutAssn(xla::HloModule*)", Meaning::Ordinary),
            ("main", Meaning::Ordinary),
        ] {
            assert_eq!(meaning(symbol), expect, "{symbol}");
        }
    }

    #[test]
    fn every_operator_of_the_table_has_an_identifier_of_its_own() {
        let mut ids: Vec<_> = ATEN.lines().map(|name| name.replace('.', "_")).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), all > 3000), (all, true));
    }

    proptest! {
        #[test]
        fn any_name_has_a_meaning(symbol in r"(at::_ops::|torch::autograd::(generated::)?|c10d::|xla::cpu::)?[<>()a-zA-Z_:é]{0,40}") {
            if let Meaning::Begins(name) | Meaning::Within(name) = meaning(&symbol) {
                prop_assert!(!name.is_empty());
            }
        }
    }
}
