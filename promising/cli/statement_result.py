"""Write the result of `execute` to stdout."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from promising.cli.console import clean
from promising.cli.context import Output, State
from promising.cli.formats import python_rows, write_table
from promising.cli.text_output import print_json, print_text, write_facts
from promising.index.regions import Guess
from promising.query.answers import Done, Explanation

if TYPE_CHECKING:
    from promising.query.answers import Answer


def show_result(state: State, found: "Done | pa.Table | Explanation | Answer") -> None:
    """Show any result but a running answer."""
    if isinstance(found, Done):
        show_done(state, found)
    elif isinstance(found, Explanation):
        if state.output in (Output.CSV, Output.ARROW):
            write_table(state.output, found.to_arrow())
        else:
            write_facts(state.output, explanation_facts(found), lambda: show_explanation(found))
    elif isinstance(found, pa.Table):
        write_table(state.output, found)
    else:
        write_table(state.output, found.to_arrow())


def show_done(state: State, done: Done) -> None:
    """Show a statement without data: a message as a table, an object as JSON, nothing as CSV and Arrow."""
    if state.output is Output.TABLE:
        print_text(clean(done.message))
    elif state.output is Output.JSON:
        print_json({"message": done.message, "changed": done.changed})
    else:
        state.say(done.message)


def show_explanation(told: Explanation) -> None:
    """Print a plan as text."""
    print_text(clean(str(told)))


def explanation_facts(told: Explanation) -> dict[str, Any]:
    """A plan as one object."""
    return {
        "steps": told.steps,
        "total": _guess(told.total),
        "warnings": list(told.warnings),
        "regions": python_rows(told.regions),
        "considered": told.considered,
        "pruned": told.pruned,
        "listed": told.listed,
        "progress": None if told.progress is None else _progress(told),
    }


def _progress(told: Explanation) -> dict[str, Any]:
    assert told.progress is not None
    facts = asdict(told.progress)
    facts.update(total=_guess(told.progress.total), coverage=_guess(told.progress.coverage))
    return facts


def _guess(guess: Guess) -> dict[str, float | None]:
    """A number with bounds; null if it is unknown."""
    return {"value": guess.value if guess.known else None, "lower": guess.lower, "upper": guess.upper}
