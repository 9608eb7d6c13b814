"""Profile: what can be asked of an opened profile."""

from __future__ import annotations

import html
import importlib
import json
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from deepctx import _native
from deepctx.findings import Analysis, Check, Finding

Key = TypeVar("Key", bound=Hashable)

#: Contexts in a notebook's table.
_SHOWN = 10


@dataclass(frozen=True)
class Note:
    """What the reader of a profile should know about it."""

    #: `newer-minor`, `not-ended-well`, `file-left-out` or `not-imported`.
    kind: str
    text: str
    #: Whether something that was captured is missing.
    is_damage: bool

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Metric:
    """Figures of the whole profile by one metric."""

    name: str
    #: `ns`, `bytes` or `count`.
    unit: str
    #: The sum of all values, in `unit`.
    total: int


class Profile(_native.Profile):
    """A profile: calling contexts with their figures, and what became of every record.

    `len(profile)` is the number of contexts, the root included.
    """

    @property
    def notes(self) -> list[Note]:
        """What the reader should know: what is missing, and why."""
        return [Note(**note) for note in json.loads(self._notes())]

    @property
    def metrics(self) -> list[Metric]:
        """The metrics that the profile has values of.

        >>> import deepctx
        >>> deepctx.open("examples/run.folded").metrics
        [Metric(name='samples', unit='count', total=100)]
        """
        found: list[Metric] = []
        for row in json.loads(self._totals()):
            field = next(field for field in row if field.startswith("value_"))
            found.append(Metric(row["metric"], field.removeprefix("value_"), row[field]))
        return found

    @property
    def ledger(self) -> dict[str, Any]:
        """What became of every record: `received`, `lost`, `losses` by reason, and the `ledger` of each stage.

        It is that of the whole profile, also of a part of it.
        """
        losses: dict[str, Any] = json.loads(self._losses())
        return losses

    def select(
        self, filter: str | None = None, path: str | None = None, metric: str | None = None
    ) -> Profile:
        """The stacks that count: a regular expression for one frame, a query over call paths, or both.

        They are those of `deepctx-bpf report --filter` and `--path`; nothing else of the profile changes. `metric` is
        meant where none is named. ValueError: one of them cannot be read, or there are no values of the metric.

        >>> import deepctx
        >>> deepctx.open("examples/run.folded").select(path="step ** gemm").root.inclusive()
        70
        """
        if filter is None and path is None and metric is None:
            # A part is a copy, and this one would be as large as the whole.
            return self
        return Profile(self._part(filter, path, metric))

    def walk(self) -> _native.Walk:
        """All contexts, callers first."""
        return self.root.walk()

    def filter(self, predicate: Callable[[_native.Node], object]) -> list[_native.Node]:
        """The contexts for which `predicate` is true, callers first.

        >>> import deepctx
        >>> profile = deepctx.open("examples/run.folded")
        >>> [node.label for node in profile.filter(lambda node: node.exclusive() >= 20)]
        ['gemm', 'load']
        """
        return [node for node in self.walk() if predicate(node)]

    def group_by(self, key: Callable[[_native.Node], Key], metric: str | None = None) -> dict[Key, int]:
        """By key: the exclusive values of its contexts, in the metric's unit. Their sum is the metric's total.

        >>> import deepctx
        >>> deepctx.open("examples/run.folded").group_by(lambda node: node.depth)
        {3: 80, 2: 20}
        """
        sums: dict[Key, int] = {}
        for node in self.walk():
            if value := node.exclusive(metric):
                name = key(node)
                sums[name] = sums.get(name, 0) + value
        return sums

    def report(self, metric: str | None = None, rows: int = 10) -> dict[str, Any]:
        """All tables of a report, as `deepctx-bpf report --format json` has them: lists of at most `rows` dictionaries.

        The unit of a field is the end of its name (`value_ns`, `exclusive_percent`). `rows_left_out` says how many rows
        more a table has. ValueError: there are no values of the metric.

        >>> import deepctx
        >>> report = deepctx.open("examples/run.folded").report(rows=1)
        >>> [row["function"] for row in report["functions"]], report["rows_left_out"]["functions"]
        (['gemm'], 4)
        """
        report: dict[str, Any] = json.loads(self._report(metric, rows))
        return report

    def analysis(self, only: Sequence[str] = (), skip: Sequence[str] = ()) -> Analysis:
        """What the built-in rules conclude, and what became of each. ValueError: there is no such rule."""
        found = json.loads(self._findings(list(only), list(skip)))
        findings = [Finding.from_dict(fields) for fields in found["findings"]]
        return Analysis(tuple(findings), tuple(Check(**check) for check in found["checks"]))

    def findings(self, only: Sequence[str] = (), skip: Sequence[str] = ()) -> Sequence[Finding]:
        """What the built-in rules conclude, largest gain first. ValueError: there is no such rule.

        >>> import deepctx
        >>> [finding.rule for finding in deepctx.open("examples/run.folded").findings()]
        ['hotspot']
        """
        return self.analysis(only, skip).findings

    def to_networkx(self) -> Any:
        """The contexts as a `networkx.DiGraph` from callers to callees.

        A context is its number, with `name`, `kind` and, in `metrics`, by metric the pair of exclusive and inclusive
        values in the metric's unit. ImportError: networkx is not installed.
        """
        graph = _needed("networkx", "networkx").DiGraph()
        for node in self.walk():
            graph.add_node(node.id, name=node.label, kind=node.kind, metrics=node.metrics)
            if node.parent is not None:
                graph.add_edge(node.parent.id, node.id)
        return graph

    def to_hatchet(self, metric: str | None = None) -> Any:
        """The contexts as a `hatchet.GraphFrame`: a row for each, its exclusive values in the unit of each metric.

        Its default metric is `metric`. ImportError: hatchet is not installed. ValueError: there are no values of the
        metric.
        """
        hatchet = _needed("hatchet", "llnl-hatchet")
        # The second part of the document is a table of devices, which hatchet does not read.
        root, *_ = json.loads(self._hatchet(metric))
        frame = hatchet.GraphFrame.from_literal([root])
        shown = metric or self.metric
        columns = (shown, f"{shown} (ns)", f"{shown} (bytes)")
        # Hatchet takes `time` for it, which is not among the columns: `frame.tree()` would fail.
        frame.default_metric = next((name for name in columns if name in root["metrics"]), frame.default_metric)
        return frame

    def __repr__(self) -> str:
        return f"<Profile of {self.target or 'an unnamed target'}: {len(self)} contexts, by {self.metric}>"

    def _repr_html_(self) -> str:
        rows = json.loads(self._functions(_SHOWN))
        cells = "".join(
            f"<tr><td>{row['exclusive_percent']:.1f} %</td><td>{row['inclusive_percent']:.1f} %</td>"
            f"<td>{html.escape(row['function'])}</td><td>{html.escape(row['at'])}</td></tr>"
            for row in rows
        )
        head = f"<p>{html.escape(repr(self))}</p>"
        try:
            graph = html.escape(self.flamegraph_svg(), quote=True)
        except ValueError as error:
            return f"{head}<p>{html.escape(str(error))}</p>"
        # A frame of its own: the graph's script and names must not reach the notebook's page.
        return (
            f"{head}<table><tr><th>exclusive</th><th>inclusive</th><th>function</th><th>at</th></tr>{cells}</table>"
            f'<iframe sandbox="allow-scripts" srcdoc="{graph}" style="width:100%;height:400px;border:0"></iframe>'
        )


@dataclass(frozen=True)
class Change:
    """One context or function in both profiles."""

    #: Names of the frames, outermost first; of a function just its own.
    frames: Sequence[str]
    #: How much its share grew, -1 to 1.
    change: float
    #: Chance changes are smaller than this in 95 of 100 cases; a share.
    bound: float
    #: Whether chance is an unlikely cause, considering how many were compared.
    significant: bool
    #: `share` (0 to 1) and `value` (in the metric's unit) before and after.
    before: dict[str, float]
    after: dict[str, float]


@dataclass(frozen=True)
class Diff:
    """What changed between two profiles, largest change first."""

    metric: str
    #: `total` (in the metric's unit) and `values` of the whole profiles.
    before: dict[str, int]
    after: dict[str, int]
    functions: Sequence[Change]
    contexts: Sequence[Change]
    #: Why these may be no changes of the program, in sentences: captured with other options, or other programs.
    notes: Sequence[str] = ()


def _needed(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"this needs the module {module}: pip install {package}") from error


def open(path: str | os.PathLike[str]) -> Profile:
    """Opens a profile, or what another tool recorded: pprof, Kineto, `perf script`, folded stacks, …

    What is missing is in `Profile.notes`. OpenError: it is no profile, cannot be read, or is of a newer version.
    """
    return Profile(path)


def diff(before: Profile, after: Profile, metric: str | None = None, rows: int = 10) -> Diff:
    """What changed between two profiles: of functions and contexts each the `rows` largest changes.

    Shares of the metric are compared, so that a longer capture is no change. ValueError: neither profile has values of
    the metric.

    >>> import deepctx
    >>> before, after = deepctx.open("examples/run.folded"), deepctx.open("examples/slower.folded")
    >>> [f"{change.frames[-1]} {change.change:+.2f}" for change in deepctx.diff(before, after).functions]
    ['load +0.72', 'gemm -0.63', 'relu -0.09']
    """
    changes = json.loads(_native.diff_json(before, after, metric, rows))
    sides = (Change(**row) for row in changes["functions"]), (Change(**row) for row in changes["contexts"])
    functions, contexts = (tuple(rows) for rows in sides)
    notes = tuple(changes["notes"])
    return Diff(changes["metric"], changes["before"], changes["after"], functions, contexts, notes)
