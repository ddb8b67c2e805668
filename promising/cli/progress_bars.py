"""Bars on stderr for as long as something takes, where somebody looks."""

from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from promising.cli.console import err
from promising.cli.context import State


def progress(asked: State, *columns: ProgressColumn) -> Progress:
    """A bar of these columns, which leaves nothing behind; hidden without a terminal, and with --quiet."""
    return Progress(*columns, console=err(), transient=True, disable=asked.quiet or not err().is_terminal)


class Rate(ProgressColumn):
    """Rows, and how many a second: as the field `rate` of the task says, else since it began."""

    def render(self, task: Task) -> Text:
        rows = task.fields["rows"]
        rate = task.fields.get("rate", rows / max(task.elapsed or 0.0, 0.001))
        return Text(f"{rows:,} rows, {rate:,.0f} rows/s" if rows else "", no_wrap=True)
