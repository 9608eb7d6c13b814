"""The notebook of the tour runs, and every cell shows something.

Its outputs are not stored: a flame graph is tens of kilobytes of SVG, which nobody reads in a change.
"""

import pathlib
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

TOUR = pathlib.Path(__file__).resolve().parent.parent / "examples" / "tour.ipynb"


def text(cell: Any) -> str:
    """All that a cell shows, in whatever form."""
    shown = ""
    for output in cell.outputs:
        shown += output.get("text", "") + "".join(output.get("data", {}).values())
    return shown


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    stored = [cell.id for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
    assert stored == [], "outputs are not stored: clear them"
    with pytest.MonkeyPatch.context() as patch:
        # Not the settings and histories of whoever runs the tests.
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        NotebookClient(notebook, resources={"metadata": {"path": str(TOUR.parent)}}).execute()
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def test_every_cell_shows_something_and_none_warns(cells):
    assert [name for name, cell in cells.items() if not text(cell).strip()] == []
    errors = [output for cell in cells.values() for output in cell.outputs if output.get("name") == "stderr"]
    assert errors == []


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("open", ["<iframe", "<td>gemm</td>"]),
        ("contexts", ["70    70        gemm"]),
        ("part", ["70"]),
        ("tables", ["gemm", "exclusive_percent"]),
        ("sql", ["step", "80"]),
        ("findings", ["gemm", "loader-workers"]),
        ("flame-graph", ["<svg", "gemm (70 times"]),
        ("rule", ["loading takes 20 % of samples"]),
        ("diff", ["+72.0 %", "load"]),
    ],
)
def test_cells_show_what_their_headings_promise(cells, cell, shown):
    assert [part for part in shown if part not in text(cells[cell])] == []
