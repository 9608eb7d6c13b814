//! Phases: which part of training or serving a context belongs to.
//!
//! Owns: [`Phase`], and the phase of every node of a tree, by the frames above it. Because: "is it the data loader or
//! the backward pass?" comes before any question about a function. Does not: observe anything: it matches names of
//! the frameworks' own functions, and finds no phase in a program that uses none of them.
//!
//! Where phases nest, the more specific one counts ([`Phase`] is in that order): recomputation of a checkpoint within
//! the backward pass is backward; data that an optimizer sends to other hosts is communication. A model that runs
//! within an optimizer's step, by its closure, is forward.

use crate::frame::{BACKWARD, Frame, SpinPart, SpinState, is_spinning};
use crate::profile::Profile;
use crate::trace::communicates;
use crate::tree::NodeId;

/// A part of training or serving, more specific ones last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// No known one.
    #[default]
    Other,
    /// Threads wait without giving up their CPUs, while no call waits for them: no part of training.
    Spinning,
    /// Modules are called.
    Forward,
    /// Evaluation or validation, by the names of functions and ranges.
    Evaluation,
    /// Weights are changed, or gradients set to zero.
    Optimizer,
    /// Gradients are computed.
    Backward,
    /// Batches are waited for or made, within the program.
    Loading,
    /// Batches are made in a separate process.
    LoadingWorker,
    /// State is saved or loaded.
    Checkpoint,
    /// Code is compiled.
    Compilation,
    /// Hosts and devices exchange tensors.
    Communication,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Phase; 11] = [
        Phase::Other,
        Phase::Spinning,
        Phase::Forward,
        Phase::Evaluation,
        Phase::Optimizer,
        Phase::Backward,
        Phase::Loading,
        Phase::LoadingWorker,
        Phase::Checkpoint,
        Phase::Compilation,
        Phase::Communication,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Other => "other",
            Phase::Spinning => "spinning",
            Phase::Forward => "forward",
            Phase::Evaluation => "evaluation",
            Phase::Optimizer => "optimizer",
            Phase::Backward => "backward",
            Phase::Loading => "data loading",
            Phase::LoadingWorker => "data loading, in workers",
            Phase::Checkpoint => "checkpoint",
            Phase::Compilation => "compilation",
            Phase::Communication => "communication",
        }
    }

    /// Whether it is a part of training or serving: neither [`Phase::Other`] nor [`Phase::Spinning`].
    pub const fn is_part(self) -> bool {
        !matches!(self, Phase::Other | Phase::Spinning)
    }
}

/// What a frame says by itself.
#[derive(Clone, Copy, Default)]
struct FrameFacts {
    phase: Phase,
    /// A module is imported below it.
    imports: bool,
    /// What it calls runs for a call of the program: it does not spin for nobody.
    names_a_caller: bool,
    /// It is Python code that may evaluate, by its name alone.
    may_evaluate: bool,
    /// It is work of a model: of a layer, an operator, a device, or JAX.
    is_of_model: bool,
    /// What it says about threads that wait for others.
    spin: SpinPart,
}

impl FrameFacts {
    fn of(profile: &Profile, frame: Frame) -> Self {
        let phase = of(profile, frame);
        FrameFacts {
            phase,
            imports: imports(profile, frame),
            names_a_caller: frame.kind().names_a_caller(),
            may_evaluate: phase == Phase::Evaluation && matches!(frame, Frame::Python { .. }),
            is_of_model: phase == Phase::Forward || is_of_model(profile, frame),
            spin: SpinPart::of(&frame, &profile.strings),
        }
    }
}

/// The phase of every node, by its number. [`Phase::Evaluation`] and [`Phase::Spinning`], which any program may have,
/// are not used in a profile without another one.
pub fn phases(profile: &Profile) -> Vec<Phase> {
    let of_frame = facts(profile);
    let mut trains = false;
    let mut phases = vec![Phase::Other; profile.tree.len()];
    let mut is_called = vec![false; profile.tree.len()];
    let mut states = vec![SpinState::default(); profile.tree.len()];
    // A node's number is above its parent's.
    for number in 1..phases.len() {
        let Ok(id) = u32::try_from(number) else { break };
        let node = profile.tree.node(NodeId::from_number(id));
        let frame = profile.frames.get(node.frame);
        let own = of_frame.get(node.frame.index()).copied().unwrap_or_default();
        trains |= own.phase.is_part() && own.phase != Phase::Evaluation;
        let parent = node.parent.index();
        states[number] = states[parent].then(own.spin);
        let [was_idle, is_idle] = [parent, number].map(|at| states[at] == SpinState::Idle);
        // A first call imports code that it does not run; a compiler that is imported to compile runs.
        let above = match phases[parent] {
            Phase::Compilation => Phase::Compilation,
            _ if own.imports => Phase::Other,
            // It fell asleep at last.
            Phase::Spinning if matches!(frame, Frame::Wait { .. }) => Phase::Other,
            // A worker got work.
            Phase::Spinning if was_idle && !is_idle => Phase::Other,
            above => above,
        };
        let own_phase = match own.phase {
            // A call waits: it is part of what that call does.
            Phase::Spinning if is_called[parent] => Phase::Other,
            Phase::Other if is_idle && !matches!(frame, Frame::Wait { .. }) => Phase::Spinning,
            phase => phase,
        };
        is_called[number] = is_called[parent] || own.names_a_caller;
        phases[number] = match (above, own_phase) {
            // The step of an optimizer calls a closure that runs the model.
            (Phase::Optimizer, Phase::Forward) => Phase::Forward,
            _ => above.max(own_phase),
        };
    }
    // Web servers validate too.
    if !trains {
        phases.fill(Phase::Other);
    }
    phases
}

/// The facts of every frame, by its number. Web servers validate too: a Python function evaluates if work
/// of a model is below it somewhere.
fn facts(profile: &Profile) -> Vec<FrameFacts> {
    let nodes = 1..u32::try_from(profile.tree.len()).unwrap_or(u32::MAX);
    let node = |number: u32| profile.tree.node(NodeId::from_number(number));
    // Frames are far fewer than nodes.
    let mut facts: Vec<FrameFacts> =
        profile.frames.iter().map(|(_, frame)| FrameFacts::of(profile, frame)).collect();
    if !facts.iter().any(|facts| facts.may_evaluate) {
        return facts;
    }
    // The innermost node at or above each that may evaluate; 0 for none.
    let mut evaluating = vec![0_usize; profile.tree.len()];
    let mut evaluates = vec![false; profile.tree.len()];
    for number in nodes.clone() {
        let (at, number) = (node(number), number as usize);
        let own = facts.get(at.frame.index()).copied().unwrap_or_default();
        let above = evaluating[at.parent.index()];
        evaluating[number] = if own.may_evaluate { number } else { above };
        evaluates[above] |= own.is_of_model && above != 0;
    }
    let mut shown = vec![false; profile.frames.len()];
    // From the leaves up: what is below the inner one is below the outer one, too.
    for number in nodes.rev() {
        let at = node(number);
        if evaluates[number as usize] {
            shown[at.frame.index()] = true;
            let above = evaluating[at.parent.index()];
            evaluates[above] |= above != 0;
        }
    }
    for (facts, is_shown) in facts.iter_mut().zip(shown) {
        if facts.may_evaluate && !is_shown {
            facts.phase = Phase::Other;
        }
    }
    facts
}

/// Whether a frame is an operator, work of a device, or of JAX, whose layers run only while they are traced.
fn is_of_model(profile: &Profile, frame: Frame) -> bool {
    let text = |id| profile.strings.get(id);
    match frame {
        Frame::Operator { .. } | Frame::GpuApi { .. } | Frame::GpuKernel { .. } => true,
        // Importing JAX runs nothing.
        Frame::Python { function, file, .. } => {
            text(file).contains("/jax/_src/") && text(function) != "<module>"
        }
        Frame::Native { symbol, .. } => {
            ["jax::", "xla::"].iter().any(|begin| text(symbol).starts_with(begin))
        }
        _ => false,
    }
}

/// Whether a module is imported below a frame.
fn imports(profile: &Profile, frame: Frame) -> bool {
    let Frame::Python { function, file, .. } = frame else { return false };
    is_import(profile.strings.get(file), profile.strings.get(function))
}

/// Whether a Python function, by its file and qualified name, is the one that imports a module.
pub fn is_import(file: &str, function: &str) -> bool {
    let frozen = file == "<frozen importlib._bootstrap>" || file.ends_with("/importlib/_bootstrap.py");
    frozen && function.rsplit('.').next().unwrap_or(function).starts_with("_find_and_load")
}

/// The phase of a frame alone.
fn of(profile: &Profile, frame: Frame) -> Phase {
    let text = |id| profile.strings.get(id);
    match frame {
        Frame::Python { function, file, .. } => of_python(text(file), text(function)),
        Frame::Operator { name } => of_operator(text(name)),
        Frame::Range { name } => of_range(text(name)),
        Frame::Native { symbol, .. } => of_native(text(symbol)),
        Frame::GpuApi { name } if text(name).starts_with("nccl") => Phase::Communication,
        Frame::GpuKernel { name } if communicates(text(name)) => Phase::Communication,
        _ => Phase::Other,
    }
}

/// By the end of a path, or by a folder in it that ends with `/`; and by the end of a qualified name, if needed.
const PYTHON: &[(&str, &[&str], Phase)] = &[
    ("torch/nn/modules/module.py", &["_call_impl"], Phase::Forward),
    ("torch/optim/lr_scheduler.py", &[], Phase::Other),
    ("torch/optim/", &[], Phase::Optimizer),
    ("torch/_tensor.py", &["backward"], Phase::Backward),
    ("torch/autograd/__init__.py", &["backward", "grad"], Phase::Backward),
    ("torch/autograd/graph.py", &["_engine_run_backward"], Phase::Backward),
    ("torch/utils/data/_utils/worker.py", &["_worker_loop"], Phase::LoadingWorker),
    ("torch/utils/data/dataloader.py", &["__next__", "__iter__"], Phase::Loading),
    ("torch/utils/data/_utils/pin_memory.py", &[], Phase::Loading),
    ("torch/serialization.py", &["save", "load"], Phase::Checkpoint),
    ("torch/distributed/checkpoint/", &[], Phase::Checkpoint),
    ("safetensors/torch.py", &[], Phase::Checkpoint),
    ("torch/distributed/distributed_c10d.py", &[], Phase::Communication),
    // Other files in these folders merely call compiled code.
    ("torch/_dynamo/convert_frame.py", &[], Phase::Compilation),
    (
        "torch/_inductor/compile_fx.py",
        &["compile_fx", "compile_fx_inner", "compile_to_fn"],
        Phase::Compilation,
    ),
    ("triton/compiler/compiler.py", &["compile"], Phase::Compilation),
    // What JAX traces runs the program's own functions; only what it does with the result is distinguished.
    ("jax/_src/interpreters/mlir.py", &[], Phase::Compilation),
    ("jax/_src/compiler.py", &[], Phase::Compilation),
    // An array is pickled.
    ("jax/_src/array.py", &["__reduce__"], Phase::Checkpoint),
    ("jax/experimental/array_serialization/", &[], Phase::Checkpoint),
    (
        "flax/serialization.py",
        &["to_bytes", "from_bytes", "msgpack_serialize", "msgpack_restore"],
        Phase::Checkpoint,
    ),
    ("flax/training/checkpoints.py", &[], Phase::Checkpoint),
    ("orbax/checkpoint/", &[], Phase::Checkpoint),
    ("flax/training/train_state.py", &["apply_gradients"], Phase::Optimizer),
    ("optax/", &["update_fn", "apply_updates"], Phase::Optimizer),
    // Other iterators of Grain run in threads of its own, too.
    ("grain/_src/python/data_loader.py", &["__next__"], Phase::Loading),
    ("grain/_src/python/dataset/transformations/prefetch.py", &["__next__"], Phase::Loading),
    ("grain/_src/python/dataset/transformations/prefetch.py", &["_work_loop"], Phase::LoadingWorker),
    ("grain/_src/python/grain_pool.py", &["_worker_loop"], Phase::LoadingWorker),
    // `tf.data`, and TensorFlow Datasets, which is iterated over by it.
    ("tensorflow/python/data/ops/iterator_ops.py", &["__next__", "get_next"], Phase::Loading),
    ("tensorflow/python/data/ops/dataset_ops.py", &["__next__"], Phase::Loading),
];
/// Names of a program's functions that evaluate.
const EVALUATES: [&str; 5] =
    ["evaluate", "validate", "evaluation_loop", "evaluation_step", "validation_step"];

fn of_python(file: &str, function: &str) -> Phase {
    let function = function.rsplit('.').next().unwrap_or(function);
    let is_in = |place: &str| match place.strip_suffix('/') {
        Some(_) => file.contains(&format!("/{place}")),
        None => file.strip_suffix(place).is_some_and(|before| before.is_empty() || before.ends_with('/')),
    };
    // Importing a file is not running it.
    let named = |names: &[&str]| {
        names.is_empty() && function != "<module>" || names.iter().any(|name| function.ends_with(name))
    };
    match PYTHON.iter().find(|(place, names, _)| is_in(place) && named(names)) {
        Some((_, _, phase)) => *phase,
        None if EVALUATES.contains(&function) => Phase::Evaluation,
        None => Phase::Other,
    }
}

/// Whether an operator is a node of PyTorch's backward pass: `AddmmBackward0`.
pub fn is_backward_node(name: &str) -> bool {
    let is_numbered = name
        .rsplit_once("Backward")
        .is_some_and(|(of, number)| !of.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    is_numbered || name == "torch::autograd::AccumulateGrad"
}

fn of_operator(name: &str) -> Phase {
    // JAX names what it transforms: `jit(f)/jvp(gate)/tanh`, and its gradient `jit(f)/transpose(jvp(gate))/mul`.
    let path = name.split(" [").next().filter(|path| path.contains('/')).unwrap_or_default();
    if name.starts_with("c10d::") {
        Phase::Communication
    } else if path.contains("transpose(jvp(") {
        Phase::Backward
    } else if path.contains("jvp(") {
        Phase::Forward
    } else if name == BACKWARD || is_backward_node(name) {
        Phase::Backward
    } else {
        Phase::Other
    }
}

/// Names of ranges in programs that name their phases, ignoring case, spaces and underscores.
const RANGES: [(&str, Phase); 12] = [
    ("forward", Phase::Forward),
    ("backward", Phase::Backward),
    ("optimizer", Phase::Optimizer),
    ("optimizerstep", Phase::Optimizer),
    ("dataloading", Phase::Loading),
    ("dataloader", Phase::Loading),
    ("loaddata", Phase::Loading),
    ("loadbatch", Phase::Loading),
    ("checkpoint", Phase::Checkpoint),
    ("savecheckpoint", Phase::Checkpoint),
    ("allreduce", Phase::Communication),
    ("communication", Phase::Communication),
];

fn of_range(name: &str) -> Phase {
    let lower = name.to_ascii_lowercase();
    let word: String = lower.chars().filter(|c| !matches!(c, ' ' | '_' | '-' | '.')).collect();
    if let Some((_, phase)) = RANGES.iter().find(|(range, _)| *range == word) {
        return *phase;
    }
    // To invalidate is no validation.
    let lower = lower.replace("invalid", "");
    if name.starts_with("Optimizer.") {
        Phase::Optimizer
    } else if name.starts_with("enumerate(DataLoader)") {
        Phase::Loading
    } else if ["evaluat", "validat"].iter().any(|word| lower.contains(word)) {
        Phase::Evaluation
    } else {
        Phase::Other
    }
}

fn of_native(symbol: &str) -> Phase {
    const NATIVE: [(&str, Phase); 5] = [
        ("torch::autograd::Engine::evaluate_function", Phase::Backward),
        ("c10d::ProcessGroup", Phase::Communication),
        ("nccl", Phase::Communication),
        ("xla::cpu::CpuCompiler::", Phase::Compilation),
        ("xla::gpu::GpuCompiler::", Phase::Compilation),
    ];
    match NATIVE.iter().find(|(begin, _)| symbol.starts_with(begin)) {
        Some((_, phase)) => *phase,
        None if is_spinning(symbol) => Phase::Spinning,
        None => Phase::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::testing::profile;
    use crate::text::parse_frame;

    /// The phase of the leaf of a stack.
    #[track_caller]
    fn check(stack: &str, expect: Phase) {
        let profile = profile(&format!("{stack} 1"));
        let (leaf, _) = profile.tree.cells(Metric::CpuTime).next().unwrap();
        assert_eq!(phases(&profile)[leaf.index()], expect, "{stack}");
    }

    const MODULE: &str = "y /v/torch/nn/modules/module.py:Module._call_impl";

    #[test]
    fn the_functions_of_frameworks_tell_the_phase() {
        for (stack, expect) in [
            ("y /a/train.py:main", Phase::Other),
            (
                "y /a/train.py:evaluate / y /v/torch/nn/modules/module.py:Module.__call__._call_impl",
                Phase::Evaluation,
            ),
            ("y /v/h11/_util.py:validate / n f", Phase::Other),
            ("y /v/torch/nn/modules/module.py:Module._call_impl / o aten::addmm", Phase::Forward),
            ("y /v/torch/nn/modules/module.py:Module.state_dict", Phase::Other),
            ("y /v/torch/optim/sgd.py:SGD.step / o aten::add_.Tensor", Phase::Optimizer),
            ("y /v/torch/optim/lr_scheduler.py:LRScheduler.step", Phase::Other),
            ("y /v/torch/_tensor.py:Tensor.backward", Phase::Backward),
            ("n torch::autograd::Engine::evaluate_function(x) / o AddmmBackward0", Phase::Backward),
            ("y /v/torch/utils/data/dataloader.py:_BaseDataLoaderIter.__next__", Phase::Loading),
            ("y /v/torch/utils/data/_utils/worker.py:_worker_loop / n decode", Phase::LoadingWorker),
            ("y /v/torch/serialization.py:save / n write", Phase::Checkpoint),
            ("y /v/torch/_dynamo/convert_frame.py:compile_frame", Phase::Compilation),
            ("y /v/torch/_dynamo/eval_frame.py:_fn", Phase::Other),
            ("y /v/torch/_dynamo/convert_frame.py:<module>", Phase::Other),
            ("y /a/mytorch/optimizers.py:step", Phase::Other),
            ("g ncclDevKernel_AllReduce", Phase::Communication),
            ("o EmbeddingBackwardX", Phase::Other),
            ("o [xla jit_f] / o jit(f)/jvp(gate)/tanh", Phase::Forward),
            ("o [xla jit_f] / o jit(f)/transpose(jvp(gate))/mul", Phase::Backward),
            ("o [xla jit_f] / o jit(f)/sub", Phase::Other),
        ] {
            check(stack, expect);
        }
    }

    #[test]
    fn a_server_of_a_model_that_validates_does_not_evaluate() {
        let served = profile(&format!("y /v/h11/_util.py:validate / n f 1\n{MODULE} / o aten::addmm 1"));
        let found: Vec<Phase> =
            served.tree.cells(Metric::CpuTime).map(|(leaf, _)| phases(&served)[leaf.index()]).collect();
        assert_eq!(found, [Phase::Other, Phase::Forward]);
    }

    #[test]
    fn what_evaluates_once_does_so_everywhere() {
        let evaluate = "y /a/t.py:evaluate / y /a/t.py:evaluation_loop";
        let trained = profile(&format!("{evaluate} / y /a/t.py:load 1\n{evaluate} / {MODULE} 1"));
        let found: Vec<Phase> =
            trained.tree.cells(Metric::CpuTime).map(|(leaf, _)| phases(&trained)[leaf.index()]).collect();
        assert_eq!(found, [Phase::Evaluation, Phase::Evaluation]);
    }

    #[test]
    fn a_function_that_runs_jax_evaluates() {
        let phases_of = |below: &str| -> Vec<Phase> {
            let profile = profile(&format!("y /a/t.py:evaluate / {below} 1\n{MODULE} 1"));
            profile.tree.cells(Metric::CpuTime).map(|(leaf, _)| phases(&profile)[leaf.index()]).collect()
        };
        for below in ["n xla::PjRtFuture::Await()", "y /v/jax/_src/array.py:ArrayImpl._value / n futex"] {
            assert_eq!(phases_of(below), [Phase::Evaluation, Phase::Forward], "{below}");
        }
        assert_eq!(phases_of("y /v/jax/_src/api.py:<module>"), [Phase::Other, Phase::Forward]);
    }

    #[test]
    fn libraries_of_jax_tell_the_phase() {
        for (stack, expect) in [
            ("y /v/jax/_src/compiler.py:backend_compile_and_load / n x", Phase::Compilation),
            ("y /v/jax/_src/interpreters/mlir.py:lower_jaxpr_to_module / n x", Phase::Compilation),
            ("y /v/jax/_src/interpreters/mlir.py:<module> / n x", Phase::Other),
            // Tracing runs the functions of the program.
            ("y /v/jax/_src/interpreters/partial_eval.py:trace_to_jaxpr / y /a/t.py:loss", Phase::Other),
            ("y /v/jax/_src/array.py:ArrayImpl.__reduce__ / n memcpy", Phase::Checkpoint),
            ("y /v/jax/_src/array.py:ArrayImpl.__float__ / n x", Phase::Other),
            (
                "y /v/jax/experimental/array_serialization/serialization.py:run_serialization",
                Phase::Checkpoint,
            ),
            ("y /v/flax/serialization.py:to_bytes / n packb", Phase::Checkpoint),
            ("y /v/flax/serialization.py:register_serialization_state", Phase::Other),
            ("y /v/flax/training/checkpoints.py:save_checkpoint / n write", Phase::Checkpoint),
            ("y /v/orbax/checkpoint/checkpoint_manager.py:CheckpointManager.save / n x", Phase::Checkpoint),
            ("y /v/optax/_src/transform.py:scale_by_adam.<locals>.update_fn / n x", Phase::Optimizer),
            ("y /v/optax/_src/update.py:apply_updates / n x", Phase::Optimizer),
            ("y /v/optax/_src/schedule.py:polynomial_schedule.<locals>.schedule", Phase::Other),
            ("y /v/flax/training/train_state.py:TrainState.apply_gradients", Phase::Optimizer),
            ("y /v/grain/_src/python/data_loader.py:DataLoaderIterator.__next__ / n x", Phase::Loading),
            ("y /v/grain/_src/python/grain_pool.py:_worker_loop / y /a/t.py:decode", Phase::LoadingWorker),
            ("y /v/tensorflow/python/data/ops/iterator_ops.py:OwnedIterator.__next__ / n x", Phase::Loading),
        ] {
            check(stack, expect);
        }
        // A thread that prefetches asks the iterator of another one.
        const PREFETCH: &str = "y /v/grain/_src/python/dataset/transformations/prefetch.py";
        let next = format!("{PREFETCH}:PrefetchDatasetIterator.__next__ / n x");
        check(&next, Phase::Loading);
        let thread = format!("{PREFETCH}:_ThreadPrefetchDatasetIterator._work_loop");
        check(&format!("{thread} / {next}"), Phase::LoadingWorker);
    }

    #[test]
    fn importing_within_a_phase_is_none_but_in_compilers() {
        const IMPORT: &str = "y <frozen importlib._bootstrap>:_find_and_load / n read";
        check(&format!("y /v/torch/optim/adamw.py:AdamW.__init__ / {IMPORT}"), Phase::Other);
        check(&format!("y /v/torch/_dynamo/convert_frame.py:compile_frame / {IMPORT}"), Phase::Compilation);
    }

    #[test]
    fn names_of_ranges_determine_the_phase() {
        for (name, expect) in [
            ("forward", Phase::Forward),
            ("Data_Loading", Phase::Loading),
            ("optimizer step", Phase::Optimizer),
            ("all-reduce", Phase::Communication),
            ("validation epoch", Phase::Evaluation),
            ("invalidate cache", Phase::Other),
            ("forward_hook", Phase::Other),
            ("step", Phase::Other),
        ] {
            assert_eq!(of_range(name), expect, "{name}");
        }
    }

    #[test]
    fn spinning_is_a_phase_where_no_call_waits() {
        const SPIN: &str = "n gomp_thread_start / n gomp_team_barrier_wait_end / n do_spin";
        // The phase of the leaf of a stack in a program that trains.
        let check = |stack: &str, expect: Phase| {
            let mut profile = profile(&format!("P a-1 / {MODULE} 1"));
            let mut node = NodeId::ROOT;
            for frame in stack.split(" / ") {
                let frame = match frame.strip_prefix("wait ") {
                    Some(reason) => {
                        let reason = profile.text(reason);
                        profile.frame(Frame::Wait { reason })
                    }
                    None => parse_frame(&mut profile, frame).unwrap(),
                };
                node = profile.tree.child(node, frame);
            }
            assert_eq!(phases(&profile)[node.index()], expect, "{stack}");
        };
        check(&format!("P a-1 / n clone3 / {SPIN}"), Phase::Spinning);
        check(&format!("P a-1 / n clone3 / {SPIN} / k sys_futex / wait lock"), Phase::Other);
        check("P a-1 / y /a/train.py:main / n gomp_team_barrier_wait_end", Phase::Other);
        check(&format!("P a-1 / {MODULE} / n gomp_team_barrier_wait_end"), Phase::Forward);
        check("P a-1 / n gomp_thread_start / n work", Phase::Other);
        let idle = "P a-1 / n clone3 / u libgomp.so.1+0x10 / u libgomp.so.1+0x20";
        check(idle, Phase::Spinning);
        check(&format!("{idle} / k sys_futex"), Phase::Spinning);
        check(&format!("{idle} / k sys_futex / wait lock"), Phase::Other);
        check(&format!("{idle} / n task"), Phase::Other);
        check(&format!("{idle} / y /a/train.py:main"), Phase::Other);
        check("P a-1 / n clone3 / u libgomp.so.1+0x10 / n work", Phase::Other);
    }

    #[test]
    fn a_program_that_only_spins_has_no_phases() {
        check("P a-1 / n clone3 / n gomp_team_barrier_wait_end", Phase::Other);
    }

    #[test]
    fn the_more_specific_of_nested_phases_counts() {
        // A checkpoint runs its part again.
        check(&format!("o SumBackward0 / {MODULE}"), Phase::Backward);
        check(&format!("{MODULE} / o [backward] / o AddmmBackward0"), Phase::Backward);
        check(&format!("y /a/t.py:validate / {MODULE}"), Phase::Evaluation);
        check("y /v/torch/optim/sgd.py:SGD.step / n ncclAllReduce", Phase::Communication);
    }

    #[test]
    fn a_model_called_by_an_optimizer_is_forward() {
        const CLOSURE: &str = "y /v/torch/optim/adam.py:Adam.step / y /a/train.py:closure";
        check(&format!("{CLOSURE} / {MODULE} / o aten::addmm"), Phase::Forward);
        check(&format!("{CLOSURE} / y /v/torch/_tensor.py:Tensor.backward"), Phase::Backward);
        check(&format!("{CLOSURE} / n f"), Phase::Optimizer);
        // A copy of the model with averaged weights.
        let averaged = "y /v/torch/optim/swa_utils.py:AveragedModel.forward";
        check(&format!("{MODULE} / {averaged} / {MODULE} / o aten::addmm"), Phase::Forward);
    }
}
