"""`warmup`: every kernel compiled, before anybody waits for one."""

import typer

from promising.cli.console import err
from promising.cli.context import state


def warmup(ctx: typer.Context) -> None:
    """Compile all kernels now, instead of when first used.

    They are stored in the user's cache folder, or in PROMISING_CACHE_DIR, and serve every later process.
    Takes a minute on two cores.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415  # not for `--help`

    from promising.summaries.kernels.jit import cache_root  # noqa: PLC0415  # numba, as above
    from promising.warmup import compile_all  # noqa: PLC0415

    asked = state(ctx)
    bars = (TextColumn("Compiling kernels"), BarColumn(), MofNCompleteColumn())
    with Progress(*bars, console=err(), transient=True, disable=asked.quiet or not err().is_terminal) as progress:
        bar = progress.add_task("")
        made = compile_all(lambda done, of: progress.update(bar, completed=done, total=of))
    asked.say(f"Compiled {made} kernels into {cache_root()}." if made else "All kernels are compiled already.")
