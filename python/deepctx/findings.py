"""Findings: what rules conclude from a profile.

Their fields are those of `deepctx-bpf analyze --format json`, for built-in rules and for rules in Python alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

#: How a figure is known.
BASES = ("measured", "bounded", "modelled")
#: Units of a figure.
UNITS = ("ns", "bytes", "count", "percent", "ratio")
#: Severities, lowest first.
SEVERITIES = ("low", "medium", "high")
#: Kinds of a place.
KINDS = ("line", "layer", "operator", "kernel", "instruction", "function", "process", "rank")


def _check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, not {value!r}")


def _check_count(what: str, value: object, bits: int = 64) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << bits:
        raise ValueError(f"{what} must be a whole number of at most {bits} bits, not {value!r}")


def _check_type(what: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{what} must be a `{kind.__name__}`, not {value!r}")


def _check_each(what: str, values: object, kind: type) -> None:
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
        raise ValueError(f"{what} must be a sequence of `{kind.__name__}`, not {values!r}")
    for value in cast("Sequence[object]", values):
        _check_type(f"each of {what}", value, kind)


def _check_known(what: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, not {value!r}")


@dataclass(frozen=True)
class Place:
    """Where a finding holds."""

    #: Its name: `train.py:step:30`, `aten::addmm`.
    name: str
    #: Share of the finding's metric, in percent.
    share_percent: float = 0.0
    #: Path of the source file with the line, or of the library; empty when unknown.
    at: str = ""
    #: One of `KINDS`.
    kind: str = "function"
    #: Number of the calling context with the largest part: `Profile.node(context)`.
    context: int = 0

    def __post_init__(self) -> None:
        _check_type("name of a place", self.name, str)
        _check_number(f"share_percent of place `{self.name}`", self.share_percent)
        _check_type(f"at of place `{self.name}`", self.at, str)
        _check_known(f"kind of place `{self.name}`", self.kind, KINDS)
        _check_count(f"context of place `{self.name}`", self.context, 32)


@dataclass(frozen=True)
class Figure:
    """One figure behind a finding.

    >>> Figure("median step", 20_000_000, "ns").basis
    'measured'
    """

    name: str
    value: float
    #: One of `UNITS`.
    unit: str = "count"
    #: One of `BASES`.
    basis: str = "measured"

    def __post_init__(self) -> None:
        _check_type("name of a figure", self.name, str)
        _check_number(f"figure `{self.name}`", self.value)
        _check_known(f"unit of figure `{self.name}`", self.unit, UNITS)
        _check_known(f"basis of figure `{self.name}`", self.basis, BASES)


@dataclass(frozen=True)
class Gain:
    """The most that could be won; without a bound, `because` says why there is none."""

    because: str
    #: Share of the finding's metric, in percent; None where there is no bound.
    at_most_percent: float | None = None

    def __post_init__(self) -> None:
        _check_type("because", self.because, str)
        if self.at_most_percent is not None:
            _check_number("at_most_percent", self.at_most_percent)
            if not 0 <= self.at_most_percent <= 100:
                raise ValueError(f"at_most_percent must be between 0 and 100, not {self.at_most_percent}")

    @property
    def label(self) -> str:
        """`bounded` or `unknown`."""
        return "unknown" if self.at_most_percent is None else "bounded"


@dataclass(frozen=True)
class Finding:
    """One conclusion of a rule, with what it rests on.

    >>> finding = Finding("`step` waits 40 % of its time", gain=Gain("the work itself stays", 40.0))
    >>> finding.severity
    'high'
    """

    #: The conclusion in one sentence, with its numbers.
    title: str
    #: Id of the rule; `analyze` fills it in.
    rule: str = ""
    #: Where it holds, largest share first.
    places: Sequence[Place] = ()
    #: Name of the metric that shares are of; `analyze` fills in the profile's usual one.
    metric: str = ""
    #: Share of the metric that is affected, in percent.
    share_percent: float = 0.0
    gain: Gain = Gain("the rule gives no bound")
    #: The gain as a share of the capture's length, where a device was at work for less than that; else None.
    gain_of_capture_percent: float | None = None
    #: The figures behind the conclusion.
    evidence: Sequence[Figure] = ()
    #: What to do.
    advice: str = ""
    #: Parameters of the rule as they were used.
    parameters: Mapping[str, float] = field(default_factory=dict[str, float])
    #: Values that the rule looked at, and those of them that are affected.
    datapoints: int = 0
    violations: int = 0
    #: One of `SEVERITIES`, of a built-in rule whose gain another finding has; None where it follows from the gain.
    kept_severity: str | None = None

    def __post_init__(self) -> None:
        for what in ("title", "rule", "metric", "advice"):
            _check_type(what, getattr(self, what), str)
        _check_number("share_percent", self.share_percent)
        _check_type("gain", self.gain, Gain)
        if self.gain_of_capture_percent is not None:
            _check_number("gain_of_capture_percent", self.gain_of_capture_percent)
        _check_each("places", self.places, Place)
        _check_each("evidence", self.evidence, Figure)
        _check_type("parameters", self.parameters, Mapping)
        for name, value in self.parameters.items():
            _check_type("name of a parameter", name, str)
            _check_number(f"parameter `{name}`", value)
        for what in ("datapoints", "violations"):
            _check_count(what, getattr(self, what))
        if self.kept_severity is not None:
            _check_known("kept_severity", self.kept_severity, SEVERITIES)

    @property
    def weight_percent(self) -> float | None:
        """What could be won, in percent, to be compared with other findings; None where that is not known."""
        of_capture = self.gain_of_capture_percent
        return self.gain.at_most_percent if of_capture is None else of_capture

    @property
    def severity(self) -> str:
        """`high` from 20 % on that could be won, `medium` from 5 % on, else `low`; also where another finding of the
        same time says what could be won.
        """
        if self.kept_severity is not None:
            return self.kept_severity
        percent = self.weight_percent or 0.0
        return "high" if percent >= 20 else "medium" if percent >= 5 else "low"

    def as_dict(self) -> dict[str, Any]:
        """The finding as in `analyze --format json`."""
        fields = asdict(self)
        del fields["kept_severity"]
        fields["severity"] = self.severity
        gain: dict[str, str | float] = {"label": self.gain.label, "because": self.gain.because}
        if self.gain.at_most_percent is not None:
            gain["at_most_percent"] = self.gain.at_most_percent
        return {**fields, "gain": gain}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Finding:
        """The finding of its JSON form."""
        known = {name: fields[name] for name in Finding.__dataclass_fields__ if name in fields}
        gain = fields["gain"]
        known["gain"] = Gain(gain["because"], gain.get("at_most_percent"))
        known["places"] = tuple(Place(**place) for place in fields["places"])
        known["evidence"] = tuple(Figure(**figure) for figure in fields["evidence"])
        finding = Finding(**known)
        severity = fields.get("severity", finding.severity)
        return finding if severity == finding.severity else replace(finding, kept_severity=severity)


@dataclass(frozen=True)
class Check:
    """What became of one rule."""

    rule: str
    #: `findings`, `healthy`, `not-checked`, or `failed` for a rule in Python that raised.
    outcome: str
    #: Values that it looked at; 0 when it was not checked.
    datapoints: int = 0
    #: Why it was not checked, in a sentence; None when it was.
    reason: str | None = None
    #: Options of `record` that record what is missing; None when no option helps.
    record_with: str | None = None
    #: Key of the reason; None of a rule in Python, and when it was checked.
    reason_key: str | None = None


@dataclass(frozen=True)
class Analysis:
    """What all rules said."""

    #: The conclusions: those with the largest gain first, those without a bound last.
    findings: Sequence[Finding]
    #: What became of each rule, in their order.
    checks: Sequence[Check]

    @staticmethod
    def of(findings: Sequence[Finding], checks: Sequence[Check]) -> Analysis:
        """In order of what could be won."""

        def gain(finding: Finding) -> float:
            percent = finding.weight_percent
            return 1.0 if percent is None else -percent

        return Analysis(tuple(sorted(findings, key=gain)), tuple(checks))
