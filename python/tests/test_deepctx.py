"""Tests of the module: each is a sentence that is true."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import types

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import deepctx
from deepctx import _native

STACKS = """\
main;step;gemm 70
main;step;relu 10
main;load 20
"""


@pytest.fixture
def folded(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "run.folded"
    path.write_text(STACKS)
    return path


@pytest.fixture
def profile(folded: pathlib.Path) -> deepctx.Profile:
    return deepctx.open(folded)


def test_the_stub_documents_what_the_library_does():
    """Editors show the stub's texts, `help` the library's."""
    stub = ast.parse(pathlib.Path(deepctx.__file__).with_name("_native.pyi").read_text())
    documented = 0
    for kind in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        members = [node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
        for node in (kind, *members):
            there = getattr(_native, kind.name) if node is kind else getattr(getattr(_native, kind.name), node.name)
            texts = ((text or "").split() for text in (ast.get_docstring(node), there.__doc__))
            assert next(texts) == next(texts) != [], f"{kind.name}.{node.name}"
            documented += 1
    assert documented > 30


def test_walk_visits_callers_before_callees(profile):
    names = [node.name for node in profile.walk()]
    assert names == ["all", "main", "step", "gemm", "relu", "load"]
    assert [node.name for node in profile.root.children[0].children[0].walk()] == ["step", "gemm", "relu"]


def test_every_node_knows_its_place_and_values(profile):
    gemm = profile.filter(lambda node: node.name == "gemm")[0]
    assert (gemm.depth, gemm.path, gemm.parent.name) == (3, ["main", "step", "gemm"], "step")
    assert (gemm.parent.exclusive(), gemm.parent.inclusive(), gemm.exclusive()) == (0, 80, 70)
    assert gemm.parent.metrics == {profile.metric: (0, 80)}
    assert gemm == profile.node(gemm.id) and hash(gemm) == hash(profile.node(gemm.id)) and gemm != gemm.parent
    assert profile.root.parent is None and profile.root.inclusive() == 100


def test_every_node_knows_its_phase(profile):
    assert {node.phase for node in profile.walk()} == {"other"}
    training = deepctx.open(RECORDED / "profiles/torch-steps.dctx")
    assert {"other", "forward", "backward", "optimizer"} <= {node.phase for node in training.walk()}
    forward = training.select(path="phase:forward")
    assert 0 < forward.root.inclusive() < training.root.inclusive()


def test_a_selected_part_is_a_profile(profile):
    part = profile.select(path="step ** gemm")
    assert isinstance(part, deepctx.Profile) and part.metric == profile.metric
    assert [node.name for node in part.walk()] == ["all", "main", "step", "gemm"] and part.root.inclusive() == 70
    assert profile.select(filter="!step").root.inclusive() == 20
    assert profile.select(filter="relu", path="load").root.inclusive() == 0
    assert part.ledger == profile.ledger and part.select(filter="relu").metrics == []
    assert profile.select() is profile and profile.select(metric="samples") is not profile
    with pytest.raises(ValueError, match="path: column 3"):
        profile.select(path="**")
    with pytest.raises(ValueError, match="filter: "):
        profile.select(filter="(")
    with pytest.raises(ValueError, match="no values of `gpu-time`"):
        profile.select(metric="gpu-time")


def test_groups_add_up_to_the_total(profile):
    groups = profile.group_by(lambda node: node.parent.name)
    assert groups == {"step": 80, "main": 20}
    assert sum(groups.values()) == profile.metrics[0].total == 100


@pytest.mark.parametrize(
    ("content", "kind", "hint"),
    [(None, "not-found", "a profile is a folder"), (b"\0\1\2 nothing", "not-imported", "are imported")],
)
def test_opening_errors_name_kind_path_and_hint(tmp_path, content, kind, hint):
    path = tmp_path / "run"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(deepctx.OpenError, match="run") as raised:
        deepctx.open(path)
    assert (raised.value.kind, raised.value.path) == (kind, str(path))
    assert hint in raised.value.hint and raised.value.hint in str(raised.value)


#: Recorded profiles and traces.
RECORDED = pathlib.Path(__file__).parents[2] / "analysis/tests"


def test_ranks_of_a_folder_are_compared():
    job = deepctx.open(RECORDED / "traces/dlrm")
    found = {finding.rule: finding for finding in job.findings(only=["straggler", "uneven-ranks"])}
    assert set(found) == {"straggler", "uneven-ranks"}
    assert found["straggler"].places[0].name == "rank 7"
    # A part has the same ranks: single events are those of the whole.
    part = job.select(path="operator:aten::mm")
    assert [finding.rule for finding in part.findings(only=["straggler"])] == ["straggler"]
    rank = deepctx.open(RECORDED / "traces/dlrm/rank0.json.gz")
    assert [check.outcome for check in rank.analysis(only=["straggler"]).checks] == ["not-checked"]


def test_reports_and_tables_have_findings_on_ranks():
    job = deepctx.open(RECORDED / "traces/dlrm")
    rules = [finding.rule for finding in job.findings()]
    assert "straggler" in rules
    assert [finding["rule"] for finding in job.report()["findings"]] == rules
    assert pa.table(job.table("findings")).column("rule").to_pylist() == rules
    checks = {check["rule"]: check["outcome"] for check in pa.table(job.table("checks")).to_pylist()}
    assert checks == {check.rule: check.outcome for check in job.analysis().checks}


def test_unknown_metric_table_and_node_say_what_exists(profile):
    with pytest.raises(ValueError, match="no values of `gpu-time`: it has samples"):
        profile.root.exclusive("gpu-time")
    with pytest.raises(ValueError, match="unknown metric `time`"):
        profile.table("nodes", "time")
    with pytest.raises(ValueError, match="no table `node`: expected one of nodes, metrics, functions"):
        profile.table("node")
    for number in (6, -1, 1 << 32, 1 << 70):
        with pytest.raises(IndexError, match=f"no context {number}: the profile has 6"):
            profile.node(number)
    with pytest.raises(TypeError):
        profile.node("6")
    with pytest.raises(ValueError, match="unknown rule `hotspots`"):
        profile.findings(only=["hotspots"])


def test_a_difference_names_what_grew(profile, tmp_path):
    (tmp_path / "after.folded").write_text(STACKS.replace("load 20", "load 900"))
    diff = deepctx.diff(profile, deepctx.open(tmp_path / "after.folded"))
    grown = max(diff.contexts, key=lambda change: change.change)
    assert (list(grown.frames)[-1], grown.before["value"], grown.after["value"]) == ("load", 20, 900)
    assert (diff.before["total"], diff.after["total"]) == (100, 980)


def test_a_difference_of_two_programs_says_so(profile, tmp_path):
    (tmp_path / "other.folded").write_text("other;f 100\n")
    (note,) = deepctx.diff(profile, deepctx.open(tmp_path / "other.folded")).notes
    assert "may be different programs" in note
    assert deepctx.diff(profile, profile).notes == ()


def test_report_and_ledger_are_the_commands_own(profile):
    report = profile.report(rows=1)
    assert (len(report["functions"]), report["rows_left_out"]["functions"]) == (1, 4)
    assert profile.ledger["losses"] == report["losses"]


def test_nodes_are_the_same_in_pyarrow_polars_duckdb_and_pandas(profile):
    table = profile.table("nodes")
    assert (table.shape[0], len(table)) == (len(profile), 6)
    rows = [(node.id, node.parent and node.parent.id, node.name, node.inclusive()) for node in profile.walk()]
    columns = ["id", "parent", "name", "samples_inclusive_count"]
    arrow = pa.table(table)
    assert arrow.column_names == table.column_names == pa.schema(table).names
    assert [tuple(row.values()) for row in arrow.select(columns).to_pylist()] == rows
    assert pl.DataFrame(table).select(columns).rows() == rows
    assert duckdb.sql(f"select {', '.join(columns)} from arrow order by id").fetchall() == rows
    frame = arrow.to_pandas()
    assert frame.groupby("kind", observed=True)["samples_exclusive_count"].sum().sum() == 100


def test_a_table_outlives_its_profile_and_is_read_twice(folded):
    table = deepctx.open(folded).table("functions")
    first, second = pa.table(table), pa.table(table)
    assert first == second and first.column("function").to_pylist()[0] == "gemm"
    table.__arrow_c_stream__()  # A stream that nobody reads is released with its capsule.


def test_every_table_can_be_read(profile):
    for name in profile.tables:
        assert pa.table(profile.table(name)).num_rows == len(profile.table(name)), name


def test_tables_of_a_model_are_tables():
    profile = deepctx.open(RECORDED / "profiles/torch-layers.dctx")
    layers = pa.table(profile.table("model_layers")).to_pylist()
    (linear,) = [row for row in layers if row["layer"] == "Net.encoder.layers.0.linear1 (Linear)"]
    assert linear["type"] == "Linear" and linear["modelled_flops_per_byte"] == pytest.approx(18.2, abs=0.1)
    types = pa.table(profile.table("model_layer_types"))
    assert sum(types.column("layers").to_pylist()) == len(layers)
    curves = pa.table(profile.table("model_memory_curves")).to_pydict()
    assert set(curves) == {"process", "device", "begin_ns", "live_bytes"}
    assert curves["begin_ns"][:2] == [0, 100_000_000] and max(curves["live_bytes"]) > 0


class Loading(deepctx.Rule):
    name = "loading-share"
    title = "loading takes too much"

    def check(self, profile):
        yield deepctx.Finding("20 % loading", gain=deepctx.Gain("it must still load", 20.0), datapoints=100)


class Raises(Loading):
    name = "raises"

    def check(self, profile):
        raise KeyError("gone")


class NotAFinding(Loading):
    name = "not-a-finding"

    def check(self, profile):
        return ["20 %"]


class Endless(Loading):
    name = "endless"

    def check(self, profile):
        while True:
            yield deepctx.Finding("again")


class NeedsInput(Loading):
    name = "needs-input"

    def check(self, profile):
        raise deepctx.NotChecked("the profile has no time of kernels", "--gpu-activity")


def test_a_failing_rule_costs_itself_a_sentence(profile):
    rules = [Raises, NotAFinding, Endless, NeedsInput, Loading]
    analysis = deepctx.analyze(profile, rules, builtin=False)
    outcomes = {check.rule: (check.outcome, check.reason) for check in analysis.checks}
    assert outcomes["raises"][0] == "failed" and "KeyError: 'gone' (test_deepctx.py:" in outcomes["raises"][1]
    assert "must give findings, not str" in outcomes["not-a-finding"][1]
    assert "more than 1000 findings" in outcomes["endless"][1]
    assert outcomes["needs-input"] == ("not-checked", "the profile has no time of kernels")
    assert outcomes["loading-share"] == ("findings", None)
    assert [(found.rule, found.severity, found.metric) for found in analysis.findings] == [
        ("loading-share", "high", "samples")
    ]


def test_rules_run_beside_the_built_in_ones(profile):
    checks = deepctx.analyze(profile, [Loading]).checks
    assert checks[-1].rule == "loading-share" and checks[:-1] == profile.analysis().checks


@pytest.mark.parametrize(
    ("name", "message"),
    [("hotspot", "another rule has this name"), ("Load", "words joined by"), (None, "words joined by")],
)
def test_bad_rule_names_are_refused(profile, name, message):
    with pytest.raises(ValueError, match=message):
        deepctx.analyze(profile, [type("Bad", (Loading,), {"name": name})])


def test_a_finding_keeps_its_severity_when_another_has_its_gain():
    fields = {
        **deepctx.Finding("small batches", rule="small-batch").as_dict(),
        "severity": "high",
        "gain": {"label": "unknown", "because": "`idle-device` found the same time"},
    }
    finding = deepctx.Finding.from_dict(fields)
    assert (finding.severity, finding.weight_percent) == ("high", None)
    assert finding.as_dict() == fields
    fields["severity"] = "low"
    assert deepctx.Finding.from_dict(fields).kept_severity is None
    with pytest.raises(ValueError, match="kept_severity must be one of low, medium, high"):
        deepctx.Finding("t", kept_severity="huge")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "7", True])
def test_figures_are_finite_numbers(value):
    with pytest.raises(ValueError, match="must be a finite number"):
        deepctx.Figure("f", value)


@pytest.mark.parametrize(
    "fields",
    [
        {"datapoints": 1.0},
        {"violations": -1},
        {"violations": 1 << 64},
        {"title": 7},
        {"advice": None},
        {"gain": 20.0},
        {"gain_of_capture_percent": float("nan")},
        {"parameters": {"most": float("inf")}},
        {"parameters": {1: 1.0}},
        {"places": "f"},
        {"places": ["f"]},
        {"evidence": [1.0]},
    ],
)
def test_fields_of_a_finding_have_their_types(fields):
    with pytest.raises(ValueError, match="must be a"):
        deepctx.Finding(**{"title": "t", **fields})


@pytest.mark.parametrize(
    "fields", [{"name": 1}, {"share_percent": float("nan")}, {"kind": "file"}, {"context": -1}, {"context": 1 << 32}]
)
def test_fields_of_a_place_have_their_types(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        deepctx.Place(**{"name": "f", **fields})


RULES = '''
import os, sys, time, deepctx

class Base(deepctx.Rule):
    title = "a title"

class Loops(Base):
    name = "loops"
    def check(self, profile):
        while True: pass

class Prints(Base):
    name = "prints"
    def check(self, profile):
        while True: print("x" * 1000)

class Dies(Base):
    name = "dies"
    def check(self, profile):
        os.abort()

class Exits(Base):
    name = "exits"
    def check(self, profile):
        sys.exit(3)

class Huge(Base):
    name = "huge"
    def check(self, profile):
        yield deepctx.Finding("x" * (2 << 20))

class Healthy(Base):
    name = "healthy"
    def check(self, profile):
        return []

class Finds(Base):
    name = "finds"
    def check(self, profile):
        print("seen by who writes the rule")
        yield deepctx.Finding("found", gain=deepctx.Gain("all of it", 7))
'''


def run(command, folder):
    # Not where the sources are: Python would import them instead of the package.
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)


def run_rules(path, profile):
    # The deadline is shortened, since two of the rules reach it.
    code = f"from deepctx import rules; raise SystemExit(rules.main({str(path)!r}, {str(profile)!r}, 1.0))"
    done = run([sys.executable, "-c", code], path.parent)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_rules_that_loop_print_or_die_leave_the_others_alone(tmp_path, folded):
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    done, (head, *lines) = run_rules(path, folded)
    assert head == {"rules": ["loops", "prints", "dies", "exits", "huge", "healthy", "finds"]}
    checks = {line["check"]["rule"]: line["check"] for line in lines}
    assert checks["loops"]["reason"] == "it did not end within 1 s"
    assert checks["prints"]["reason"] == "it printed more than 64 KiB"
    assert "by signal" in checks["dies"]["reason"]
    assert "SystemExit: 3" in checks["exits"]["reason"]
    assert checks["huge"]["reason"] == "its findings take more than 1024 KiB"
    assert [checks[rule]["outcome"] for rule in ("healthy", "finds")] == ["healthy", "findings"]
    assert lines[-1]["findings"][0]["gain"] == {"label": "bounded", "because": "all of it", "at_most_percent": 7}
    assert "seen by who writes the rule" in done.stderr and done.returncode == 0


@pytest.mark.parametrize(
    ("rules", "message"),
    [("1 / 0", "ZeroDivisionError"), ("def f(:", "SyntaxError"), ("while True: pass", "did not end within 1 s")],
)
def test_a_file_that_cannot_be_loaded_is_one_sentence(tmp_path, folded, rules, message):
    path = tmp_path / "rules.py"
    path.write_text(rules)
    done, lines = run_rules(path, folded)
    assert done.returncode == 1 and len(lines) == 1 and message in lines[0]["error"]


def test_the_runner_starts_by_its_name(folded):
    rules = pathlib.Path(__file__).resolve().parent.parent / "examples" / "rules.py"
    done = run([sys.executable, "-m", "deepctx.rules", rules, folded], folded.parent)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"rules": ["loading-share"]} and len(lines[1]["findings"]) == 1, done.stderr


def analyze(rules, profile, *options):
    """What the command says that the rules run in: its exit code, JSON and errors."""
    command = [os.environ["DEEPCTX_BPF"], "analyze", profile, "--rules", rules, "--format", "json", *options]
    # The command starts `python3`: the one that has the module's packages.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.mark.skipif("DEEPCTX_BPF" not in os.environ, reason="DEEPCTX_BPF does not name the command")
def test_the_command_runs_rules_in_python_beside_its_own(tmp_path, folded):
    rules = pathlib.Path(__file__).resolve().parent.parent / "examples" / "rules.py"
    code, found, said = analyze(rules, folded, "--fail-on", "loading-share")
    outcomes = {check["rule"]: check["outcome"] for check in found["checks"]}
    assert code == 1 and outcomes["loading-share"] == "findings" and "hotspot" in outcomes, said
    code, found, said = analyze(rules, folded, "--only", "loading-share")
    assert code == 0 and [finding["rule"] for finding in found["findings"]] == ["loading-share"], said
    code, found, said = analyze(rules, folded, "--skip", "loading-share")
    assert "loading-share" not in {check["rule"] for check in found["checks"]}, said
    code, found, said = analyze(rules, folded, "--filter", "load")
    assert {"loading-share": 100} == {
        finding["rule"]: finding["share_percent"] for finding in found["findings"] if finding["rule"] != "hotspot"
    }, said
    code, found, said = analyze(rules, folded, "--path", "step")
    (check,) = [check for check in found["checks"] if check["rule"] == "loading-share"]
    assert check["outcome"] == "healthy", said
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from deepctx import Rule\n"
        "class Broken(Rule):\n"
        "    name, title = 'broken', 'divides'\n"
        "    def check(self, profile):\n"
        "        return [1 / 0]\n"
    )
    code, found, said = analyze(broken, folded)
    (check,) = [check for check in found["checks"] if check["rule"] == "broken"]
    assert code == 0 and check["outcome"] == "failed" and "ZeroDivisionError" in check["reason"], said
    # A finding that the program cannot read costs its rule alone.
    broken.write_text(
        "import deepctx\n"
        "class Odd(deepctx.Rule):\n"
        "    name, title = 'odd', 'half a character'\n"
        "    def check(self, profile):\n"
        "        return [deepctx.Finding(chr(0xd800))]\n"
        "class Next(deepctx.Rule):\n"
        "    name, title = 'next', 'nothing'\n"
        "    def check(self, profile):\n"
        "        return []\n"
    )
    code, found, said = analyze(broken, folded)
    outcomes = {check["rule"]: check["outcome"] for check in found["checks"]}
    assert code == 0 and (outcomes["odd"], outcomes["next"]) == ("failed", "healthy"), said
    broken.write_text("1 / 0")
    code, found, said = analyze(broken, folded)
    assert code == 2 and found is None and "ZeroDivisionError" in said


def test_notebooks_get_a_table_and_a_sandboxed_graph(tmp_path):
    path = tmp_path / "odd.folded"
    path.write_text("main;<script>x</script> 5\n")
    page = deepctx.open(path)._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;x" in page and 'sandbox="allow-scripts"' in page


def test_notebooks_get_the_first_rows_of_a_table(tmp_path):
    path = tmp_path / "odd.folded"
    path.write_text("".join(f"main;<b>{number} {number + 1}\n" for number in range(12)))
    profile = deepctx.open(path)
    page = profile.table("functions")._repr_html_()
    assert page.count("<tr>") == 11 and "<b>" not in page and "<td>&lt;b&gt;11</td>" in page
    nodes = profile.table("nodes")._repr_html_()
    # The root has no parent; kinds and names are dictionaries.
    assert "<tr><td>0</td><td></td><td>0</td><td>root</td><td>all</td>" in nodes


def test_a_part_without_values_has_no_graph(profile):
    empty = profile.select(filter="relu", path="load")
    with pytest.raises(ValueError, match="no values of `samples`"):
        empty.flamegraph_svg()
    page = empty._repr_html_()
    assert "<iframe" not in page and "no values of `samples`" in page


def test_networkx_gets_every_context(profile):
    graph = profile.to_networkx()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (6, 5)
    assert graph.nodes[1]["metrics"] == {"samples": (0, 100)}


def test_a_missing_hatchet_is_named(profile, monkeypatch):
    monkeypatch.setitem(sys.modules, "hatchet", None)
    with pytest.raises(ImportError, match="pip install llnl-hatchet"):
        profile.to_hatchet()


def test_hatchet_shows_the_metric_that_was_asked_for(profile, monkeypatch):
    def from_literal(literal):
        return types.SimpleNamespace(literal=literal, default_metric="time")

    stand_in = types.SimpleNamespace(GraphFrame=types.SimpleNamespace(from_literal=from_literal))
    monkeypatch.setitem(sys.modules, "hatchet", stand_in)
    frame = profile.to_hatchet()
    (root,) = frame.literal
    assert (root["frame"]["name"], [child["frame"]["name"] for child in root["children"]]) == ("all", ["main"])
    assert frame.default_metric == "samples" and root["metrics"]["samples"] == 0
    times = deepctx.open(RECORDED / "profiles/stdlib-mix.dctx").to_hatchet("cpu-time")
    assert times.default_metric == "cpu-time (ns)" and "cpu-time (ns)" in times.literal[0]["metrics"]
    with pytest.raises(ValueError, match="no values of `samples`"):
        profile.select(filter="relu", path="load").to_hatchet()
