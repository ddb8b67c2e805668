"""Progress of an answer on stderr while it is read."""

from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Display

from promising.query.answers import Frame, Progress


class Bar:
    """A transient bar of coverage. Nothing is shown without a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        console = Console(stderr=True) if console is None else console
        columns = (BarColumn(), TextColumn("{task.description}"))
        # Frames are frequent enough: drawing needs no thread.
        self._display = Display(
            *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
        )
        self._task = self._display.add_task("", total=1.0)

    def __enter__(self) -> "Bar":
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def show(self, progress: Progress) -> None:
        """Draw the current progress."""
        share, least, most = (100 * share for share in progress.coverage)
        known = progress.coverage.known
        said = f"{share:5.1f} % covered, {least:.1f} to {most:.1f}" if known else "coverage unknown"
        said += f"; {progress.rows:,} rows, {progress.cpu_seconds:.2f} s of CPU time"
        self._display.update(self._task, completed=(share if known else least) / 100, description=said)
        self._display.refresh()


def shown(frames: Iterator[Frame], console: Console | None = None) -> Iterator[Frame]:
    """The same frames, with a progress bar."""
    with Bar(console) as bar:
        for frame in frames:
            bar.show(frame.progress)
            yield frame
