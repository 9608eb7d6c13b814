"""Profiles of deepctx-bpf, and of other profilers, in Python.

>>> import deepctx
>>> profile = deepctx.open("examples/run.folded")
>>> profile.metric, len(profile)
('samples', 6)
>>> [(node.name, node.exclusive()) for node in profile.walk() if node.exclusive()]
[('gemm', 70), ('relu', 10), ('load', 20)]
>>> profile.table("nodes").shape
(6, 11)

`open` reads whatever `deepctx-bpf report` reads, without root. `Profile.table` gives tables to pandas, polars and
DuckDB without a copy, `Profile.findings` what the rules conclude, and `analyze` runs rules of your own beside them.
"""

from deepctx._native import DeepctxError, Node, OpenError, Table, Walk
from deepctx.findings import Analysis, Check, Figure, Finding, Gain, Place
from deepctx.profile import Change, Diff, Metric, Note, Profile, diff, open
from deepctx.rule import NotChecked, Rule, analyze

__all__ = [
    "Analysis",
    "Change",
    "Check",
    "DeepctxError",
    "Diff",
    "Figure",
    "Finding",
    "Gain",
    "Metric",
    "Node",
    "NotChecked",
    "Note",
    "OpenError",
    "Place",
    "Profile",
    "Rule",
    "Table",
    "Walk",
    "analyze",
    "diff",
    "open",
]
