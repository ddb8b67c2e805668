"""The grid in the terminal: what stands where, on summaries small enough to count by hand."""

import io
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from promising.errors import BadQuestion
from promising.grid import text as module
from promising.grid.text import grid_text
from promising.index import Options, Stream, SummaryIndex
from promising.testing import ManualClock
from tests.tiers import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND


def make(
    structure: str = "adaptive", depth: int = 3, buckets: int = 8, keep: int | None = None
) -> tuple[Stream, SummaryIndex]:
    schema = {"ts": "timestamp", "item": "int"}
    stream = Stream("s", schema, "ts", keep=keep, clock=ManualClock(1 << 50), max_tuples=1 << 16, lateness=MINUTE)
    options = Options(buckets=buckets)
    summary = stream.create_summary(
        "by_item", "item", granularity=MINUTE, collapse=(2, depth), structure=structure, options=options
    )
    return stream, summary


def fill(stream: Stream, start: int, minutes: int) -> None:
    times = start + np.arange(minutes * 60, dtype=np.int64) * SECOND
    stream.append({"ts": times, "item": np.arange(len(times)) % 40})


def shown(summary: SummaryIndex, width: int = 80, buckets: int = 16) -> list[str]:
    """The lines without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(grid_text(summary.describe(cells=True), width, buckets))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def rows_of(lines: list[str]) -> list[str]:
    """Those with cells: between the strip and the dates."""
    first = next(i for i, line in enumerate(lines) if line.lstrip().startswith("G_"))
    last = next(i for i, line in enumerate(lines) if line.startswith("tuples a"))
    return lines[first + 2 : last - 1]


def test_every_granularity_has_a_panel_the_oldest_on_the_left():
    stream, summary = make()
    fill(stream, 0, 9)
    heading = next(line for line in shown(summary) if "G_1" in line)
    assert heading.index("G_3: 2 zones") < heading.index("G_2") < heading.index("G_1: 3 zones")


def test_a_letter_for_each_zone_and_what_it_means():
    stream, summary = make()
    fill(stream, 0, 9)
    lines = shown(summary)
    strip = lines[next(i for i, line in enumerate(lines) if "G_1" in line) + 1]
    zones = summary.describe().zones
    letters = "".join(c for c in strip if c.isalpha())
    assert letters == "".join(module.LETTERS[z.reason] for g in (3, 2, 1) for z in zones if z.granularity == g)
    text = "\n".join(lines)
    for reason in {z.reason for z in zones}:
        assert f"{module.LETTERS[reason]} {reason} (" in text
    assert "maxlength" not in text  # none was


def test_letters_tell_reasons_apart():
    assert len(set(module.LETTERS.values())) == len(module.LETTERS)


def test_late_tuples_have_a_strip_of_their_own():
    stream, summary = make()
    fill(stream, 0, 2)
    before = len(shown(summary))
    stream.append({"ts": np.array([30 * SECOND, 31 * SECOND]), "item": np.array([1, 2])})
    lines = shown(summary)
    assert len(lines) == before + 2  # and it is explained
    assert any(line.strip() in ("l", "l|") for line in lines)


def test_a_busier_stretch_is_darker_and_an_empty_one_blank():
    stream, summary = make("time")
    stream.append({"ts": np.repeat(np.arange(60), 1) * SECOND, "item": np.arange(60)})
    stream.append({"ts": np.repeat(np.arange(120, 180), 50) * SECOND, "item": np.arange(3000)})
    lines = rows_of(shown(summary))
    cells = "".join(lines).removeprefix("0").strip()
    assert cells[0] == module.PLAIN[0]
    assert cells[-1] == module.PLAIN[-1]


def test_buckets_are_summed_down_to_the_rows_there_are():
    stream, summary = make(buckets=64)
    fill(stream, 0, 2)
    assert len(rows_of(shown(summary))) == 16
    assert len(rows_of(shown(summary, buckets=5))) == 4
    assert any(line.startswith("tuples a minute in 16 cells") for line in shown(summary, buckets=5))
    assert len(rows_of(shown(make_filled("time")))) == 1


def make_filled(structure: str) -> SummaryIndex:
    stream, summary = make(structure)
    fill(stream, 0, 2)
    return summary


def test_what_there_is_no_room_for_is_said():
    stream, summary = make(depth=6, keep=255 * MINUTE)  # zones of 32 minutes would be more than an eighth
    fill(stream, 0, 120)
    assert {z.granularity for z in summary.describe().zones} == {1, 2, 3, 4, 5, 6}
    assert "too narrow" not in "\n".join(shown(summary, 100))
    narrow = "\n".join(shown(summary, 40))
    assert "too narrow for G_4, G_5, G_6" in narrow
    assert "G_3" in narrow


def test_colour_only_where_the_terminal_has_it():
    description = make_filled("grid").describe(cells=True)
    for system, colour, expected in (("truecolor", True, True), ("truecolor", False, False), (None, True, False)):
        console = Console(file=io.StringIO(), width=80, color_system=system, force_terminal=True)  # type: ignore[arg-type]  # a literal
        console.print(grid_text(description, colour=colour))
        assert isinstance(console.file, io.StringIO)
        assert (module.FULL in console.file.getvalue()) is expected


def test_names_are_no_markup():
    stream = Stream("s", {"ts": "timestamp", "[red]": "int"}, "ts", clock=ManualClock(1 << 50), max_tuples=100)
    summary = stream.create_summary("[bold]", "[red]", granularity=MINUTE)
    stream.append({"ts": [5], "[red]": [7]})
    assert shown(summary)[0].startswith("[bold] on [red]: 1 tuples of 1 keys")


def test_nothing_to_draw_is_said():
    _, summary = make()
    with pytest.raises(BadQuestion, match="no zones to draw"):
        grid_text(summary.describe(cells=True))
    with pytest.raises(BadQuestion, match="cells=True"):
        grid_text(make_filled("grid").describe())


@settings(max_examples=examples(60))
@given(
    times=st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=60),
    spread=st.sampled_from([1, 10**3, 10**9]),
    width=st.integers(20, 200),
    buckets=st.integers(1, 70),
)
def test_no_line_is_wider_than_asked_for_whatever_the_zones(times, spread, width, buckets):
    stream, summary = make(depth=5)
    for part in (times[: len(times) // 2], times[len(times) // 2 :]):
        if part:
            stream.append({"ts": np.array(part) // spread, "item": np.arange(len(part))})
    if summary.describe().zones:
        lines = shown(summary, width, buckets=buckets)
        assert all(len(line) <= width for line in lines)
        assert len(rows_of(lines)) >= 1


def test_columns_hold_as_many_tuples_as_their_time():
    edges = np.array([0, 10, 15, 100])
    dense = np.array([[3.0, 0.0, 1.0]])
    for columns in (1, 3, 10, 97):
        out = module._resampled(edges, dense, columns)
        assert out.sum() * 100 / columns == pytest.approx(3.0 * 10 + 1.0 * 85)
    ten = module._resampled(edges, dense, 10)[0]
    assert ten[0] == pytest.approx(3.0)
    assert ten[1] == pytest.approx(0.5)
    assert all(a == pytest.approx(b) for a, b in pairwise(ten[2:]))


def test_it_needs_no_compiled_kernels():
    """A client draws what a service described."""
    code = "import promising.grid.text, sys; sys.exit(bool({'numba', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
