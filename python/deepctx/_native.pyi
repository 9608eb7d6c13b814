"""The native part of deepctx; the package `deepctx` gives it names for users."""

from collections.abc import Iterator, Sequence
from os import PathLike

class DeepctxError(Exception):
    """Any error of deepctx."""

class OpenError(DeepctxError):
    """A file cannot be opened as a profile.

    `kind` names the reason (`not-found`, `not-a-profile`, `corrupt`, `newer-version`, `older-version`,
    `unreadable`, `not-imported`), `path` is what was to be opened, and `hint` says what helps, or is None.
    The error of the system or of the parser is its `__cause__`.
    """

    kind: str
    path: str
    hint: str | None

class Node:
    """One calling context: a frame below its caller's context.

    Two nodes are equal if they are the same context of the same opened profile.
    """

    @property
    def id(self) -> int:
        """Number of the context; the root is 0, and callers have smaller numbers than what they call."""
    @property
    def name(self) -> str:
        """Text of the frame, as in every report, without the line."""
    @property
    def label(self) -> str:
        """Text of the frame with the line that ran, where it is known."""
    @property
    def kind(self) -> str:
        """What stands there, as queries name it: `python`, `operator`, `gpu-kernel`, …; `root` and `stream`, which no
        query sees.
        """
    @property
    def phase(self) -> str:
        """The part of training or serving that it belongs to, as queries name it: `forward`, `backward`, `optimizer`,
        `data loading`, …; `other` where no frame shows it.
        """
    @property
    def module(self) -> str | None:
        """Path of the library or executable of native code; None when there is none or it is unknown."""
    @property
    def file(self) -> str | None:
        """Path of the source file; None when unknown."""
    @property
    def line(self) -> int | None:
        """Line that ran, counted from 1; None when unknown."""
    @property
    def parent(self) -> Node | None:
        """The caller's context; None for the root."""
    @property
    def children(self) -> list[Node]:
        """What this context called."""
    @property
    def depth(self) -> int:
        """How many callers there are: 0 for the root."""
    @property
    def path(self) -> list[str]:
        """Names from the outermost frame to this one; the root is left out."""
    def exclusive(self, metric: str | None = None) -> int:
        """Sum of the metric in this context alone, in the metric's unit.

        Without a name it is the profile's usual metric. ValueError: the profile has no values of the metric.
        """
    def inclusive(self, metric: str | None = None) -> int:
        """Sum of the metric in this context and all that it called, in the metric's unit.

        Without a name it is the profile's usual metric. ValueError: the profile has no values of the metric.
        """
    def count(self, metric: str | None = None) -> int:
        """How many values of the metric there are in this context alone: samples, calls or kernels."""
    @property
    def metrics(self) -> dict[str, tuple[int, int]]:
        """By metric: exclusive and inclusive sum, in the metric's unit. Metrics without a value here are left out."""
    def walk(self) -> Walk:
        """This context and all below it, callers first."""

class Walk(Iterator[Node]):
    """An iterator over contexts, callers first and each caller's children in order."""

    def __next__(self) -> Node: ...

class Table:
    """A table of a profile.

    Whatever reads Arrow's C stream interface takes it without a copy: `pyarrow.table(t)`, `polars.DataFrame(t)`,
    `duckdb.from_arrow(pyarrow.table(t))`. It may be read any number of times.
    """

    @property
    def name(self) -> str:
        """Name of the table."""
    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in their order."""
    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns there are: `(rows, columns)`."""
    def __len__(self) -> int: ...
    def _repr_html_(self) -> str: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Part:
    """A part of a profile that was selected, for the constructor of `Profile`."""

class Profile:
    """A profile: calling contexts with their figures, and what became of every record."""

    def __init__(self, source: str | PathLike[str] | Part) -> None: ...
    @property
    def target(self) -> str:
        """What was profiled, in words."""
    @property
    def host(self) -> str:
        """Name of the host; empty when unknown."""
    @property
    def elapsed_ns(self) -> int:
        """Length of the capture in nanoseconds; 0 when unknown."""
    @property
    def frequency_hz(self) -> int:
        """Samples per second and CPU; 0 when nothing was sampled."""
    @property
    def format(self) -> str:
        """What the file is: `folder` or `packed` for our own format, else the name of the other tool's."""
    @property
    def complete(self) -> bool:
        """Whether all that was captured is there; `notes` say what is not."""
    @property
    def metric(self) -> str:
        """Name of the metric that is meant where none is named: what the timer measured, or else the first with
        values.
        """
    @property
    def root(self) -> Node:
        """The context above all others."""
    @property
    def tables(self) -> list[str]:
        """Names of all tables."""
    def node(self, id: int) -> Node:
        """The context with this number. IndexError: there is none."""
    def __len__(self) -> int: ...
    def table(self, name: str, metric: str | None = None) -> Table:
        """A table with all its rows, by a metric. The unit of a column is the end of its name: `time_exclusive_ns`.

        ValueError: there is no such table, or no value of the metric.
        """
    def flamegraph_svg(self, metric: str | None = None) -> str:
        """A flame graph as an SVG document: a frame's width is its inclusive value.

        ValueError: there is no value of the metric.
        """
    def _part(self, filter: str | None, path: str | None, metric: str | None) -> Part: ...
    def _notes(self) -> str: ...
    def _totals(self) -> str: ...
    def _losses(self) -> str: ...
    def _report(self, metric: str | None, rows: int) -> str: ...
    def _functions(self, rows: int) -> str: ...
    def _findings(self, only: Sequence[str], skip: Sequence[str]) -> str: ...
    def _hatchet(self, metric: str | None) -> str: ...

def diff_json(before: Profile, after: Profile, metric: str | None, rows: int) -> str: ...
