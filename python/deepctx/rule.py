"""Rules in Python: what they are, and how they run within this process.

A rule is a class with `name`, `title` and `check`:

>>> class FewContexts(Rule):
...     name = "few-contexts"
...     title = "the profile has few contexts"
...     def check(self, profile):
...         if len(profile) < 10:
...             yield Finding(f"{len(profile)} contexts", gain=Gain("no time is won"), datapoints=len(profile))
>>> import deepctx
>>> profile = deepctx.open("examples/run.folded")
>>> [finding.title for finding in analyze(profile, [FewContexts], builtin=False).findings]
['6 contexts']
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from deepctx.findings import Analysis, Check, Finding, Gain
from deepctx.profile import Profile

__all__ = ["Finding", "Gain", "NotChecked", "Rule", "analyze"]

#: Findings of one rule: more are no conclusion.
FINDINGS_MAX = 1000

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class NotChecked(Exception):
    """Raised by a rule whose input is not in the profile: the reason, and options of `record` that record it."""

    def __init__(self, reason: str, record_with: str | None = None) -> None:
        super().__init__(reason)
        self.record_with = record_with


class Rule(ABC):
    """What is checked. A class need not inherit from this one, as long as it has the same members."""

    #: Id in kebab case; it must not be that of a built-in rule.
    name: str
    #: What the rule looks for, in a few words.
    title: str

    @abstractmethod
    def check(self, profile: Profile) -> Iterable[Finding]:
        """The conclusions; none for a healthy program. NotChecked: the profile lacks what the rule needs."""


def analyze(
    profile: Profile, rules: Iterable[type[Rule] | Rule] = (), builtin: bool = True
) -> Analysis:
    """What the rules conclude, and what became of each: the built-in ones, then `rules` in their order.

    A rule that raises is `failed`, with a sentence, and the others go on. ValueError: a rule has no name, no check, or
    the name of another one.
    """
    known = profile.analysis()
    findings: list[Finding] = []
    checks: list[Check] = []
    if builtin:
        findings, checks = list(known.findings), list(known.checks)
    for rule in valid(rules, [check.rule for check in known.checks]):
        check, found = run(rule, profile)
        checks.append(check)
        findings.extend(found)
    return Analysis.of(findings, checks)


def valid(rules: Iterable[type[Rule] | Rule], taken: Iterable[str]) -> list[Rule]:
    """One of each rule. ValueError: one has no name, no check, or a name that is taken."""
    names = set(taken)
    made: list[Rule] = []
    for given in rules:
        rule = given() if isinstance(given, type) else given
        name, kind = getattr(rule, "name", None), type(rule).__name__
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"rule {kind}: `name` must be words joined by `-`, not {name!r}")
        if not isinstance(getattr(rule, "title", None), str) or not callable(getattr(rule, "check", None)):
            raise ValueError(f"rule `{name}`: it needs a `title` and a method `check(profile)`")
        if name in names:
            raise ValueError(f"rule `{name}`: another rule has this name")
        names.add(name)
        made.append(rule)
    return made


def run(rule: Rule, profile: Profile) -> tuple[Check, Sequence[Finding]]:
    """Runs one rule: whatever it raises becomes a sentence."""
    try:
        found = [_finding(given) for given in itertools.islice(rule.check(profile), FINDINGS_MAX + 1)]
        if len(found) > FINDINGS_MAX:
            raise ValueError(f"it has more than {FINDINGS_MAX} findings")
    except NotChecked as reason:
        return Check(rule.name, "not-checked", 0, str(reason), reason.record_with), ()
    except Exception as error:
        return Check(rule.name, "failed", 0, sentence(error)), ()
    named = [
        dataclasses.replace(finding, rule=rule.name, metric=finding.metric or profile.metric) for finding in found
    ]
    datapoints = max((finding.datapoints for finding in named), default=0)
    return Check(rule.name, "findings" if named else "healthy", datapoints), named


def _finding(given: object) -> Finding:
    """What a rule gave. TypeError: it is no finding."""
    if not isinstance(given, Finding):
        raise TypeError(f"`check` must give findings, not {type(given).__name__}")
    return given


def sentence(error: BaseException) -> str:
    """What was raised and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())[:500]
    return f"it raised {type(error).__name__}{': ' if text else ''}{text}{at}"
