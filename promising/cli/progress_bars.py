"""Progress bars on stderr, on a terminal only."""

from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from promising.cli.console import err
from promising.cli.context import State


def progress(asked: State, *columns: ProgressColumn) -> Progress:
    """A transient bar of these columns; hidden without a terminal and with --quiet."""
    return Progress(*columns, console=err(), transient=True, disable=asked.quiet or not err().is_terminal)


class Rate(ProgressColumn):
    """Rows, and rows a second: the field `rate` of the task, else the mean since it began."""

    def render(self, task: Task) -> Text:
        rows = task.fields["rows"]
        rate = task.fields.get("rate", rows / max(task.elapsed or 0.0, 0.001))
        return Text(f"{rows:,} rows, {rate:,.0f} rows/s" if rows else "", no_wrap=True)
