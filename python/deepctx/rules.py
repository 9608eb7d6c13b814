"""`python3 -m deepctx.rules FILE PROFILE`: runs the rules of a file, each in a process of its own.

`--metric`, `--filter` and `--path` choose the part of the profile that they see, as with `deepctx-bpf analyze`.

It writes JSON lines: first `{"rules": [NAME, ...]}`, or `{"error": SENTENCE}`, then for each rule
`{"check": {...}, "findings": [{...}, ...]}`. A rule that loops, prints without end or ends its process costs itself a
sentence. The file is loaded in those processes only, since its own code may do the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import inspect
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from deepctx.findings import Check
from deepctx.profile import open
from deepctx.rule import Rule, run, sentence, valid

#: A rule reads one profile; those that ship take less than a second.
DEADLINE_S = 10.0
#: What a rule prints is for whoever writes it: some screens of text.
PRINTED_MAX = 64 << 10
#: All findings of a rule: `FINDINGS_MAX` of about a kilobyte.
ANSWER_MAX = 1 << 20


def _load(path: str) -> list[type[Rule]]:
    """The rules that a file defines, in its order."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("deepctx_rules_of_user", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == spec.name)
    # One without a check is a base of others.
    return [value for value in own if hasattr(value, "check") and not inspect.isabstract(value)]


def _isolated(work: Callable[[], Any], deadline_s: float) -> Any:
    """What `work` gives, computed in a process of its own. RuntimeError: why there is nothing, in a sentence."""
    answer, answer_to = os.pipe()
    printed, printed_to = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(printed_to, 1)
        os.dup2(printed_to, 2)
        _answer(work, answer_to)
    os.close(answer_to)
    os.close(printed_to)
    try:
        text = _read(answer, printed, deadline_s)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(answer)
        os.close(printed)
    try:
        result = json.loads(text)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        how = f"by signal {-code}" if code < 0 else f"with {code}"
        raise RuntimeError(f"its process ended {how} without an answer") from None
    if "raised" in result:
        raise RuntimeError(result["raised"])
    return result["gave"]


def _answer(work: Callable[[], Any], to: int) -> None:
    """Works, writes the answer, and ends this process, which must not return into its parent's code."""
    try:
        try:
            text = json.dumps({"gave": work()})
        except BaseException as error:
            text = json.dumps({"raised": sentence(error)})
        sys.stdout.flush()
        with os.fdopen(to, "w") as out:
            out.write(text)
    finally:
        os._exit(0)


def _read(answer: int, printed: int, deadline_s: float) -> bytes:
    """The answer; what is printed meanwhile goes to standard error. RuntimeError: too late, or too much of either."""
    limits = {answer: (ANSWER_MAX, "its findings take"), printed: (PRINTED_MAX, "it printed")}
    texts: dict[int, bytes] = {answer: b"", printed: b""}
    ends = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        for source in limits:
            selector.register(source, selectors.EVENT_READ)
        while selector.get_map():
            left = ends - time.monotonic()
            if left <= 0:
                raise RuntimeError(f"it did not end within {deadline_s:g} s")
            for key, _ in selector.select(left):
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fd)
                texts[key.fd] += part
                most, what = limits[key.fd]
                if len(texts[key.fd]) > most:
                    raise RuntimeError(f"{what} more than {most >> 10} KiB")
    sys.stderr.write(texts[printed].decode(errors="replace"))
    return texts[answer]


def main(rules: str, path: str, deadline_s: float = DEADLINE_S, selection: dict[str, str | None] | None = None) -> int:
    """Runs the rules of a file on the part of a profile that `Profile.select` takes `selection` for."""
    def put(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    try:
        profile = open(path).select(**(selection or {}))
        taken = [check.rule for check in profile.analysis().checks]
        names = _isolated(lambda: [rule.name for rule in valid(_load(rules), taken)], deadline_s)
    except Exception as error:
        put({"error": str(error)})
        return 1
    put({"rules": names})

    def checked(number: int) -> dict[str, Any]:
        check, found = run(valid(_load(rules), taken)[number], profile)
        return {"check": dataclasses.asdict(check), "findings": [finding.as_dict() for finding in found]}

    for number, name in enumerate(names):
        try:
            line: dict[str, Any] = _isolated(functools.partial(checked, number), deadline_s)
        except RuntimeError as error:
            line = {"check": dataclasses.asdict(Check(name, "failed", 0, str(error))), "findings": []}
        put(line)
    return 0


def _command() -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m deepctx.rules", description="Runs rules written in Python.")
    parser.add_argument("rules", metavar="FILE", help="the file with the rules")
    parser.add_argument("profile", metavar="PROFILE", help="what to check")
    parser.add_argument("--metric", metavar="NAME", help="what to measure by")
    parser.add_argument("--filter", metavar="REGEX", help="only stacks with a frame that matches")
    parser.add_argument("--path", metavar="QUERY", help="only stacks that match this query")
    asked = parser.parse_args()
    selection = {"metric": asked.metric, "filter": asked.filter, "path": asked.path}
    return main(asked.rules, asked.profile, selection=selection)


if __name__ == "__main__":
    sys.exit(_command())
