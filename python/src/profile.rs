//! Profile: an opened profile as Python sees it.
//!
//! Owns: [`Profile`], and what of the analyses Python asks for as JSON. Because: one object must lead to contexts,
//! tables and reports. Does not: turn JSON into Python's objects; `deepctx/profile.py` does.

use std::path::PathBuf;
use std::sync::Arc;

use deepctx_analysis::findings::{Findings, Settings};
use deepctx_analysis::{Functions, Losses, MetricTotal, Query, Report, diff};
use deepctx_profile::view::{Pattern, Selection};
use deepctx_profile::{Metric, NodeId};
use deepctx_storage::export::{Format, Source};
use deepctx_storage::{FileFormat, Note};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde_json::json;

use crate::errors::{failed, json, open};
use crate::loaded::LoadedProfile;
use crate::node::Node;
use crate::table::Table;
use crate::{columns, rows};

/// A profile: calling contexts with their figures, and what became of every record.
#[pyclass(frozen, subclass, module = "deepctx._native")]
pub(crate) struct Profile {
    loaded: Arc<LoadedProfile>,
}

/// A part of a profile that was selected, for the constructor of `Profile`.
#[pyclass(frozen, module = "deepctx._native")]
pub(crate) struct Part {
    loaded: Arc<LoadedProfile>,
}

impl Profile {
    fn metric_of(&self, name: Option<&str>) -> PyResult<Metric> {
        self.loaded.metric(name).map_err(PyValueError::new_err)
    }

    fn export(&self, py: Python<'_>, format: Format, metric: Option<&str>) -> PyResult<String> {
        // The usual metric by its name, too: a part of a profile may have no values of it.
        let metric = self.metric_of(Some(metric.unwrap_or_else(|| self.loaded.metric.name())))?;
        let selection = Selection::of(metric);
        let text = py.detach(|| {
            let source = Source {
                profile: self.loaded.profile(),
                selection,
                elapsed: self.loaded.opened.elapsed,
                folds: true,
            };
            let mut text = Vec::new();
            format.write(&source, &mut text).map(|()| text)
        })?;
        String::from_utf8(text).map_err(failed)
    }
}

#[pymethods]
impl Profile {
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(part) = source.cast::<Part>() {
            return Ok(Profile { loaded: Arc::clone(&part.get().loaded) });
        }
        let path: PathBuf = source.extract()?;
        let opened =
            py.detach(|| deepctx_storage::open(&path).map(|opened| LoadedProfile::new(&path, opened)));
        match opened {
            Ok(loaded) => Ok(Profile { loaded: Arc::new(loaded) }),
            Err(error) => Err(open(py, &path.to_string_lossy(), &error)),
        }
    }

    /// What was profiled, in words.
    #[getter]
    fn target(&self) -> &str {
        &self.loaded.profile().meta.target
    }

    /// Name of the host; empty when unknown.
    #[getter]
    fn host(&self) -> &str {
        &self.loaded.profile().meta.host
    }

    /// Length of the capture in nanoseconds; 0 when unknown.
    #[getter]
    fn elapsed_ns(&self) -> u64 {
        self.loaded.opened.elapsed.0
    }

    /// Samples per second and CPU; 0 when nothing was sampled.
    #[getter]
    fn frequency_hz(&self) -> u32 {
        self.loaded.profile().meta.frequency_hz
    }

    /// What the file is: `folder` or `packed` for our own format, else the name of the other tool's.
    #[getter]
    fn format(&self) -> String {
        match self.loaded.opened.format {
            FileFormat::Folder(_) => "folder".to_owned(),
            FileFormat::Packed(_) => "packed".to_owned(),
            FileFormat::Imported(kind) => kind.to_string(),
        }
    }

    /// Whether all that was captured is there; `notes` say what is not.
    #[getter]
    fn complete(&self) -> bool {
        self.loaded.opened.is_complete()
    }

    /// Name of the metric that is meant where none is named: what the timer measured, or else the first with values.
    #[getter]
    fn metric(&self) -> &'static str {
        self.loaded.metric.name()
    }

    /// The context above all others.
    #[getter]
    fn root(&self) -> Node {
        Node::new(&self.loaded, NodeId::ROOT)
    }

    /// The context with this number. IndexError: there is none.
    fn node(&self, id: &Bound<'_, PyAny>) -> PyResult<Node> {
        let contexts = self.loaded.profile().tree.len();
        let found = match id.extract::<u32>() {
            Ok(number) => Some(NodeId::from_number(number)).filter(|id| id.index() < contexts),
            // Below zero, or above what any context has.
            Err(error) if error.is_instance_of::<PyOverflowError>(id.py()) => None,
            Err(error) => return Err(error),
        };
        let missing = || PyIndexError::new_err(format!("no context {id}: the profile has {contexts}"));
        found.map(|id| Node::new(&self.loaded, id)).ok_or_else(missing)
    }

    /// How many contexts there are, the root included.
    fn __len__(&self) -> usize {
        self.loaded.profile().tree.len()
    }

    /// Names of all tables.
    #[getter]
    fn tables(&self) -> Vec<&'static str> {
        ["nodes", "metrics"].iter().chain(rows::NAMES).copied().collect()
    }

    /// A table with all its rows, by a metric. The unit of a column is the end of its name: `time_exclusive_ns`.
    ///
    /// ValueError: there is no such table, or no value of the metric.
    #[pyo3(signature = (name, metric=None))]
    fn table(&self, py: Python<'_>, name: &str, metric: Option<&str>) -> PyResult<Table> {
        let metric = self.metric_of(metric)?;
        let batch = py.detach(|| match name {
            "nodes" => Some(columns::nodes(&self.loaded).map_err(failed)),
            "metrics" => Some(columns::metrics(&self.loaded).map_err(failed)),
            _ if !rows::NAMES.contains(&name) => None,
            _ => {
                // Events of many ranks take seconds to read.
                let events = if rows::OF_RULES.contains(&name) { self.loaded.events() } else { None };
                let subset = self.loaded.subset(metric, usize::MAX).with_events(events);
                let table = rows::of(name, &subset, self.loaded.opened.elapsed)?;
                Some(table.map_err(failed).and_then(|table| rows::batch(&table).map_err(failed)))
            }
        });
        let batch = batch.ok_or_else(|| {
            PyValueError::new_err(format!("no table `{name}`: expected one of {}", self.tables().join(", ")))
        })??;
        Ok(Table::new(name, batch))
    }

    /// A flame graph as an SVG document: a frame's width is its inclusive value.
    ///
    /// ValueError: there is no value of the metric.
    #[pyo3(signature = (metric=None))]
    fn flamegraph_svg(&self, py: Python<'_>, metric: Option<&str>) -> PyResult<String> {
        self.export(py, Format::Svg, metric)
    }

    /// The stacks that a regular expression for one frame and a query over call paths let through, by a metric.
    /// ValueError: one of them cannot be read, or the profile has no values of the metric.
    fn _part(
        &self,
        py: Python<'_>,
        filter: Option<&str>,
        path: Option<&str>,
        metric: Option<&str>,
    ) -> PyResult<Part> {
        let bad =
            |name: &str, error: &dyn std::fmt::Display| PyValueError::new_err(format!("{name}: {error}"));
        let metric = self.metric_of(metric)?;
        let filter = filter.map(Pattern::new).transpose().map_err(|error| bad("filter", &error))?;
        let path = path.map(Query::parse).transpose().map_err(|error| bad("path", &error))?;
        let selection =
            deepctx_analysis::Selection { filter, path, ..deepctx_analysis::Selection::of(metric) };
        Ok(Part { loaded: Arc::new(py.detach(|| self.loaded.part(&selection))) })
    }

    /// Notes as JSON.
    fn _notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let note = |note: &Note| {
            let kind = match note {
                Note::NewerMinor { .. } => "newer-minor",
                Note::NotEndedWell => "not-ended-well",
                Note::FileLeftOut { .. } => "file-left-out",
                Note::NotImported { .. } => "not-imported",
                _ => "other",
            };
            json!({ "kind": kind, "text": note.to_string(), "is_damage": note.is_damage() })
        };
        json(py, &self.loaded.opened.notes.iter().map(note).collect::<Vec<_>>())
    }

    /// The sum of each metric as JSON.
    fn _totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        json(py, &MetricTotal::all(self.loaded.profile()))
    }

    /// What became of every record as JSON.
    fn _losses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        json(py, &Losses::compute(self.loaded.profile()))
    }

    /// All tables of a report as JSON.
    fn _report<'py>(
        &self,
        py: Python<'py>,
        metric: Option<&str>,
        rows: usize,
    ) -> PyResult<Bound<'py, PyString>> {
        let metric = self.metric_of(metric)?;
        let report = py.detach(|| {
            let subset = self.loaded.subset(metric, rows).with_events(self.loaded.events());
            Report::compute(&subset, self.loaded.opened.elapsed)
        });
        json(py, &report)
    }

    /// The hottest functions as JSON.
    fn _functions<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<Bound<'py, PyString>> {
        let functions = py.detach(|| Functions::compute(&self.loaded.subset(self.loaded.metric, rows)));
        json(py, &functions)
    }

    /// What the built-in rules conclude, as JSON.
    fn _findings<'py>(
        &self,
        py: Python<'py>,
        only: Vec<String>,
        skip: Vec<String>,
    ) -> PyResult<Bound<'py, PyString>> {
        let mut settings = Settings::default();
        let named = only.iter().try_for_each(|rule| settings.only(rule));
        let named = named.and_then(|()| skip.iter().try_for_each(|rule| settings.skip(rule)));
        named.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let findings = py.detach(|| {
            let subset = self.loaded.subset(self.loaded.metric, 0).with_events(self.loaded.events());
            Findings::compute(&subset, self.loaded.opened.elapsed, &settings)
        });
        json(py, &findings)
    }

    /// The document that `hatchet.GraphFrame.from_literal` reads, as JSON.
    fn _hatchet(&self, py: Python<'_>, metric: Option<&str>) -> PyResult<String> {
        self.export(py, Format::Hatchet, metric)
    }
}

/// What changed between two profiles, as JSON.
#[pyfunction]
pub(crate) fn diff_json<'py>(
    py: Python<'py>,
    before: &Profile,
    after: &Profile,
    metric: Option<&str>,
    rows: usize,
) -> PyResult<Bound<'py, PyString>> {
    let metric = match metric {
        Some(_) => before.metric_of(metric).or_else(|_| after.metric_of(metric))?,
        None => before.loaded.metric,
    };
    let changes = py.detach(|| {
        let (before, after) = (before.loaded.profile(), after.loaded.profile());
        diff::compare(before, after, &Selection::of(metric)).changes(rows)
    });
    let mut document = serde_json::to_value(&changes).map_err(failed)?;
    document["notes"] = json!(changes.notes());
    json(py, &document)
}
