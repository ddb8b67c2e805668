"""Answers of queries: frames of rows, each with its progress."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from promising.index.regions import Guess

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from promising.query.cells import Cells

Cut = Literal["budget", "limit", "cancelled", "error", "deadline", "memory"]


@dataclass(frozen=True)
class Progress:
    """Progress of an answer.

    rows: rows of the answer so far.
    total: rows of the whole answer, with bounds; for aggregates, the tuples (or pairs) that go into them.
    coverage: the fraction of `total` that the answer so far is based on, with bounds. Of a join either may be unknown
        (`coverage.known`): its bounds hold but are more than a factor of 2 apart, and its value is NaN.
    complete: nothing is missing, so the rows are exact; a LIMIT that was reached counts as complete.
    cut: why the answer ended early: "budget", "limit", "cancelled", "error" (the error target was reached), "deadline"
        (of the service call was near), "memory" (of queries is limited; LimitReached follows), or None.
    cpu_seconds: CPU time spent, including parsing and planning.
    granularities: the granularities that tuples were read from; 1 is the finest.
    read: tuples read.
    entries, rank: size of the promising set, and how many of its entries were processed or sampled.
    token: resumes the answer from here; None if nothing is left to do.
    send_seconds: CPU time that a service took to send rows, which no budget is charged with.
    """

    rows: int
    total: Guess
    coverage: Guess
    complete: bool
    cut: Cut | None
    cpu_seconds: float
    granularities: tuple[int, ...]
    read: int
    entries: int
    rank: int
    token: str | None = None
    warnings: tuple[str, ...] = ()
    send_seconds: float = 0.0


@dataclass(frozen=True)
class Frame:
    """One step of an answer: "append" adds rows, "replace" is the whole answer so far.

    `lower` and `upper` bound the aggregates of a "replace" frame, by column and row; null if unknown or no aggregate.
    """

    rows: pa.Table
    mode: Literal["append", "replace"]
    progress: Progress
    lower: pa.Table | None = None
    upper: pa.Table | None = None


@dataclass
class Answer:
    """The answer to one query; iterating over it does the work.

    >>> import promising
    >>> session = promising.open()
    >>> session.execute("CREATE STREAM s (ts TIMESTAMP, item INT) TIMESTAMP BY ts").message
    'stream s created'
    >>> session.ingest("s", {"ts": [1, 2, 3], "item": [7, 7, 9]}).accepted
    3
    >>> answer = session.query("SELECT item, count(*) AS n FROM s GROUP BY item ORDER BY n DESC")
    >>> answer.to_arrow().to_pydict()
    {'item': [7, 9], 'n': [2, 1]}
    >>> answer.progress.complete
    True
    """

    frames: Iterator[Frame | None]  # None: other work may have its turn
    first: Callable[[], Progress]
    schema: pa.Schema
    _stop: Callable[[bool], None]  # True stores the answer, so that it can be resumed
    reads: tuple[str, ...] = ()  # the streams it reads, where known
    _tables: list[pa.Table] = field(default_factory=list)
    _last: Frame | None = None
    _problem: BaseException | None = None

    def __iter__(self) -> Iterator[Frame]:
        """Frames as they arrive, each exactly once; their rows are retained for `to_arrow`."""
        return (frame for frame in self._turns(keep=True) if frame is not None)

    def stream(self) -> Iterator[Frame]:
        """Frames as they arrive, without retaining their rows for `to_arrow`."""
        return (frame for frame in self.turns() if frame is not None)

    def turns(self) -> Iterator[Frame | None]:
        """The same, and None after each few milliseconds of work: other work may have its turn."""
        return self._turns(keep=False)

    def _turns(self, *, keep: bool) -> Iterator[Frame | None]:
        while True:
            if self._problem is not None:
                raise self._problem
            try:
                frame = next(self.frames)
            except StopIteration:
                return
            except BaseException as problem:
                self._problem = problem
                raise
            if frame is not None:
                if frame.mode == "replace":
                    self._tables = [frame.rows]
                elif frame.rows.num_rows and keep:
                    self._tables.append(frame.rows)
                self._last = frame
            yield frame
            del frame

    def run(self) -> "Answer":
        """Run to completion."""
        for _ in self._turns(keep=True):
            pass
        return self

    def cancel(self) -> None:
        """Stop after the current slice of work; thread-safe. The next frame is the last.

        It omits rows that need sorting and aggregates of many groups; `resume` returns them.
        """
        self._stop(True)

    def close(self) -> None:
        """Stop and release all resources; thread-safe. There are no more frames, and the answer cannot be resumed."""
        self._stop(False)
        self.frames = iter(())

    @property
    def progress(self) -> Progress:
        """As of the last frame read; before the first, what is known without work."""
        return self.first() if self._last is None else self._last.progress

    @property
    def last(self) -> Frame | None:
        return self._last

    @property
    def bounds(self) -> tuple[pa.Table, pa.Table] | None:
        """Lower and upper bounds of aggregates, after running to completion."""
        self.run()
        if self._last is None or self._last.lower is None or self._last.upper is None:
            return None
        return self._last.lower, self._last.upper

    def _repr_html_(self) -> str:
        """For a notebook: the answer is run to completion, as its budget allows, and shown with its coverage."""
        from promising.query.answer_html import answer_html  # noqa: PLC0415  # for notebooks alone

        return answer_html(self.to_arrow(), self.progress)

    def to_arrow(self) -> pa.Table:
        """All rows, after running to completion."""
        self.run()
        return pa.concat_tables(self._tables) if self._tables else self.schema.empty_table()

    def to_pandas(self) -> "pd.DataFrame":
        """All rows as a pandas frame; needs pandas."""
        table: Any = self.to_arrow()
        return table.to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """All rows as a Polars frame; needs Polars."""
        import polars as pl  # noqa: PLC0415  # an optional dependency

        found = pl.from_arrow(self.to_arrow())
        assert isinstance(found, pl.DataFrame)
        return found


@dataclass(frozen=True)
class Done:
    """A statement was executed or, with IF [NOT] EXISTS, was unnecessary."""

    message: str
    changed: bool

    def __str__(self) -> str:
        return self.message

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.message)}</p>"


@dataclass
class Explanation:
    """A query plan.

    `regions` lists the cells of the most promising entries, best first, with estimates for the entry's key and bounds.
    `pruned` counts the (key, zone) pairs that the filters ruled out for those entries. `cells`: what they answer or
    rule out. `cold`: what was read of the regions of cold tuples, and pruned by reason, a line each; with ANALYZE.
    """

    steps: list[str]
    total: Guess
    warnings: tuple[str, ...]
    regions: pa.Table
    considered: int = 0
    pruned: int = 0
    progress: Progress | None = None
    listed: int = 0
    cells: "Cells | None" = None
    cold: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_arrow(self) -> pa.Table:
        """The text, one line per row."""
        return pa.table({"plan": pa.array(self.lines, pa.string())})


@dataclass(frozen=True)
class Part:
    """Rows of one of many statements; with `more`, further rows of the same statement follow."""

    statement: int
    rows: pa.Table
    more: bool = False
