//! Node: a calling context as Python sees it, and the walk over all of them.
//!
//! Owns: [`Node`] and [`Walk`]. Because: a million contexts are walked within a second only if each is a number and a
//! reference. Does not: copy anything of the tree.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use deepctx_analysis::query;
use deepctx_profile::intern::StrId;
use deepctx_profile::{Frame, Metric, NodeId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::loaded::LoadedProfile;

/// One calling context: a frame below its caller's context.
///
/// Two nodes are equal if they are the same context of the same opened profile.
#[pyclass(frozen, module = "deepctx")]
pub(crate) struct Node {
    loaded: Arc<LoadedProfile>,
    id: NodeId,
}

/// The library or executable of a frame.
pub(crate) fn module_of(frame: &Frame) -> Option<StrId> {
    match *frame {
        Frame::Native { module, .. } | Frame::NativeUnnamed { module, .. } => Some(module),
        _ => None,
    }
    .filter(|module| *module != StrId::EMPTY)
}

/// Source file and line of a frame; for a Python function without a current line, the line of its definition.
pub(crate) fn source_of(frame: &Frame) -> (Option<StrId>, Option<u32>) {
    match frame.source(true) {
        Some((file, line)) => (Some(file), Some(line)),
        None => (frame.source_file().map(|(file, _)| file), None),
    }
}

impl Node {
    pub(crate) fn new(loaded: &Arc<LoadedProfile>, id: NodeId) -> Self {
        Node { loaded: Arc::clone(loaded), id }
    }

    fn frame(&self) -> Frame {
        let profile = self.loaded.profile();
        profile.frames.get(profile.tree.node(self.id).frame)
    }

    fn text(&self, id: StrId) -> &str {
        self.loaded.profile().strings.get(id)
    }

    fn metric(&self, name: Option<&str>) -> PyResult<Metric> {
        self.loaded.metric(name).map_err(PyValueError::new_err)
    }
}

#[pymethods]
impl Node {
    /// Number of the context; the root is 0, and callers have smaller numbers than what they call.
    #[getter]
    fn id(&self) -> u32 {
        self.id.number()
    }

    /// Text of the frame, as in every report, without the line.
    #[getter]
    fn name(&self) -> String {
        self.frame().label(&self.loaded.profile().strings, false)
    }

    /// Text of the frame with the line that ran, where it is known.
    #[getter]
    fn label(&self) -> String {
        self.frame().label(&self.loaded.profile().strings, true)
    }

    /// What stands there, as queries name it: `python`, `operator`, `gpu-kernel`, …; `root` and `stream`, which no
    /// query sees.
    #[getter]
    fn kind(&self) -> &'static str {
        query::kind_of(&self.frame())
    }

    /// The part of training or serving that it belongs to, as queries name it: `forward`, `backward`, `optimizer`,
    /// `data loading`, …; `other` where no frame shows it.
    #[getter]
    fn phase(&self) -> &'static str {
        self.loaded.phase(self.id).name()
    }

    /// Path of the library or executable of native code; None when there is none or it is unknown.
    #[getter]
    fn module(&self) -> Option<&str> {
        module_of(&self.frame()).map(|id| self.text(id))
    }

    /// Path of the source file; None when unknown.
    #[getter]
    fn file(&self) -> Option<&str> {
        source_of(&self.frame()).0.map(|id| self.text(id))
    }

    /// Line that ran, counted from 1; None when unknown.
    #[getter]
    fn line(&self) -> Option<u32> {
        source_of(&self.frame()).1
    }

    /// The caller's context; None for the root.
    #[getter]
    fn parent(&self) -> Option<Node> {
        (self.id != NodeId::ROOT)
            .then(|| Node::new(&self.loaded, self.loaded.profile().tree.node(self.id).parent))
    }

    /// What this context called.
    #[getter]
    fn children(&self) -> Vec<Node> {
        self.loaded.children(self.id).iter().map(|id| Node::new(&self.loaded, *id)).collect()
    }

    /// How many callers there are: 0 for the root.
    #[getter]
    fn depth(&self) -> usize {
        self.loaded.profile().tree.stack(self.id).len()
    }

    /// Names from the outermost frame to this one; the root is left out.
    #[getter]
    fn path(&self) -> Vec<String> {
        let profile = self.loaded.profile();
        let stack = profile.tree.stack(self.id);
        stack.into_iter().map(|id| profile.frames.get(id).label(&profile.strings, false)).collect()
    }

    /// Sum of the metric in this context alone, in the metric's unit.
    ///
    /// Without a name it is the profile's usual metric. ValueError: the profile has no values of the metric.
    #[pyo3(signature = (metric=None))]
    fn exclusive(&self, metric: Option<&str>) -> PyResult<u64> {
        Ok(self.loaded.profile().tree.exclusive(self.id, self.metric(metric)?).sum)
    }

    /// Sum of the metric in this context and all that it called, in the metric's unit.
    ///
    /// Without a name it is the profile's usual metric. ValueError: the profile has no values of the metric.
    #[pyo3(signature = (metric=None))]
    fn inclusive(&self, metric: Option<&str>) -> PyResult<u64> {
        let all = self.loaded.inclusive(self.metric(metric)?);
        Ok(all.get(self.id.index()).copied().unwrap_or_default())
    }

    /// How many values of the metric there are in this context alone: samples, calls or kernels.
    #[pyo3(signature = (metric=None))]
    fn count(&self, metric: Option<&str>) -> PyResult<u64> {
        Ok(self.loaded.profile().tree.exclusive(self.id, self.metric(metric)?).count)
    }

    /// By metric: exclusive and inclusive sum, in the metric's unit. Metrics without a value here are left out.
    #[getter]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (found, tree) = (PyDict::new(py), &self.loaded.profile().tree);
        for metric in tree.metrics() {
            let inclusive = self.loaded.inclusive(metric).get(self.id.index()).copied().unwrap_or_default();
            if inclusive > 0 {
                found.set_item(metric.name(), (tree.exclusive(self.id, metric).sum, inclusive))?;
            }
        }
        Ok(found)
    }

    /// This context and all below it, callers first.
    fn walk(&self) -> Walk {
        Walk { loaded: Arc::clone(&self.loaded), ahead: Mutex::new(vec![self.id]) }
    }

    fn __eq__(&self, other: &Node) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.loaded, &other.loaded)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.id.number(), Arc::as_ptr(&self.loaded).addr()).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<Node {} {} {:?}>", self.id.number(), self.kind(), self.label())
    }
}

/// An iterator over contexts, callers first and each caller's children in order.
#[pyclass(frozen, module = "deepctx")]
pub(crate) struct Walk {
    loaded: Arc<LoadedProfile>,
    /// Remaining contexts, the next one last.
    ahead: Mutex<Vec<NodeId>>,
}

#[pymethods]
impl Walk {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self) -> Option<Node> {
        // A panic leaves a valid list of remaining contexts.
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ahead.pop()?;
        ahead.extend(self.loaded.children(id).iter().rev());
        Some(Node::new(&self.loaded, id))
    }
}
