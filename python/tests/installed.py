"""What is true where the wheel is installed and nothing else.

The interpreter of that environment runs it in the folder above this one: `installed.py FOLDER_WITH_PYARROW`.
"""

import doctest
import importlib
import pathlib
import pkgutil
import sys

import deepctx


def main(folder_with_pyarrow: str) -> None:
    package = pathlib.Path(deepctx.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} is not what was installed"
    assert (package / "py.typed").is_file() and (package / "_native.pyi").is_file()

    examples = 0
    for found in pkgutil.iter_modules([str(package)], "deepctx."):
        module = importlib.import_module(found.name)
        result = doctest.testmod(module)
        assert result.failed == 0, f"{found.name}: {result.failed} examples fail"
        examples += result.attempted
    examples += doctest.testmod(deepctx, raise_on_error=True).attempted
    assert examples > 10, f"only {examples} examples in the texts"

    profile = deepctx.open("examples/run.folded")
    assert profile.root.inclusive() == 100 and "<svg" in profile.flamegraph_svg()
    sys.path.append(folder_with_pyarrow)
    pyarrow = importlib.import_module("pyarrow")
    nodes = pyarrow.table(profile.table("nodes"))
    assert (nodes.num_rows, sum(nodes.column("samples_exclusive_count").to_pylist())) == (6, 100)


if __name__ == "__main__":
    main(sys.argv[1])
