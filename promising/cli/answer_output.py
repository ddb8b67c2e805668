"""Stream an answer to stdout and its progress to stderr; Ctrl-C cancels it and keeps the rows so far."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Group
from rich.live import Live
from rich.text import Text

from promising.cli.console import err, out
from promising.cli.context import Output, State
from promising.cli.coverage_meter import meter, verdict
from promising.cli.formats import Writer, print_table, rich_table

if TYPE_CHECKING:
    from promising.query.answers import Answer, Frame, Progress

LIVE_ROWS = 10
REFRESH = 10  # times a second


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Within the block the first Ctrl-C runs `act` on its own thread; a second one interrupts as usual.

    An interrupt during a read would break the answer; this way its last frame still arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    acting: list[threading.Thread] = []

    def handle(number: int, frame: Any) -> None:
        if acting:
            raise KeyboardInterrupt
        acting.append(threading.Thread(target=act, name="cancel"))
        acting[0].start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for thread in acting:
            thread.join()


class Screen:
    """Live display of an answer on stderr: its first rows and a coverage meter."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = schema.empty_table()
        self.bounds: tuple[pa.Table, pa.Table] | None = None
        self.progress: Progress | None = None
        self.tabular = sys.stdout.isatty()

    def take(self, frame: "Frame") -> None:
        """Add a frame."""
        self.progress = frame.progress
        if frame.mode == "replace":
            self.rows = frame.rows.slice(0, LIVE_ROWS)
            self.bounds = _bounds(frame, LIVE_ROWS)
        elif frame.rows.num_rows and self.rows.num_rows < LIVE_ROWS:
            self.rows = pa.concat_tables([self.rows, frame.rows.slice(0, LIVE_ROWS - self.rows.num_rows)])

    def __rich__(self) -> Group | Text:
        if self.progress is None:
            return Text("asking ...", style="dim")
        line = meter(self.progress)
        return Group(rich_table(self.rows, self.bounds), line) if self.tabular and self.rows.num_rows else line


def _bounds(frame: "Frame", rows: int | None = None) -> tuple[pa.Table, pa.Table] | None:
    if frame.lower is None or frame.upper is None:
        return None
    return frame.lower.slice(0, rows), frame.upper.slice(0, rows)


def show_answer(state: State, answer: "Answer", shown: int | None) -> "Progress":
    """Write an answer to stdout as it arrives and its verdict to stderr; returns its progress.

    Appended rows are written at once and not buffered; an answer that is replaced as it improves is written at its end.
    On a terminal a table shows at most `shown` rows; None is all.
    """
    limit = shown if out().is_terminal else None
    writer = Writer(state.output, answer.schema, limit)
    screen = Screen(answer.schema)
    whole: Frame | None = None
    # On a terminal the live display would draw over rows written as they arrive.
    apart = state.output is Output.TABLE or not sys.stdout.isatty()
    watched = err().is_terminal and not state.quiet and apart
    live = Live(screen, console=err(), transient=True, refresh_per_second=REFRESH) if watched else nullcontext()
    with on_interrupt(answer.cancel), live:
        for frame in answer.stream():
            screen.take(frame)
            if frame.mode == "append":
                writer.write(frame.rows)
            else:
                whole = frame
    progress = answer.progress
    if whole is None:
        writer.finish()
    else:
        # The last frame of a cancelled answer may have no rows; these are then the latest.
        progress = replace(progress, rows=whole.rows.num_rows, coverage=whole.progress.coverage)
        if state.output is Output.TABLE:
            _print_whole(whole, limit)
        else:
            writer.write(whole.rows)
            writer.finish()
    for warning in progress.warnings:
        state.say(f"note: {warning}")
    state.say(verdict(progress, whole is not None and whole.lower is not None))
    return progress


def _print_whole(frame: "Frame", shown: int | None) -> None:
    print_table(frame.rows.slice(0, shown), _bounds(frame, shown))
    if shown is not None and frame.rows.num_rows > shown:
        out().print(Text(f"... {frame.rows.num_rows - shown:,} more rows", style="dim"))
