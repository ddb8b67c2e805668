"""`warmup`: compile every kernel ahead of time."""

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from promising.cli.context import state
from promising.cli.progress_bars import progress


def warmup(ctx: typer.Context) -> None:
    """Compile all kernels now, instead of when first used.

    They are stored in the user's cache folder, or in PROMISING_CACHE_DIR, for every later process.
    Takes a minute on two cores.
    """
    from promising.summaries.kernels.jit import cache_root  # noqa: PLC0415  # numba: not for `--help`
    from promising.warmup import compile_all  # noqa: PLC0415  # as above

    asked = state(ctx)
    with progress(asked, TextColumn("Compiling kernels"), BarColumn(), MofNCompleteColumn()) as bar:
        task = bar.add_task("")
        made = compile_all(lambda done, of: bar.update(task, completed=done, total=of))
    asked.say(f"Compiled {made} kernels into {cache_root()}." if made else "All kernels are compiled already.")
