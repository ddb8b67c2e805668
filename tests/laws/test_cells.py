"""The laws of kinds of cells: those of MEASURES and of USING, and every summary as a kind of which each cell is one."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadMeasure, CannotSubtract
from promising.summaries.adt import BOUNDS, Estimate, FrequencySummary
from promising.summaries.cells import KINDS, CellKind, Measure, Part, SummaryCells, kind_of, same_images
from promising.summaries.counts import COUNTS, counts_kind
from tests.laws.cases import CASES, Case, Values, stream
from tests.tiers import examples

TYPES = {"x": "float", "n": "int", "w": "string", "t": "timestamp", "b": "bool"}
CELLS = 4


@dataclass(frozen=True)
class CellCase:
    """A kind; `column` makes values, None where null; `ask` gives questions about them, `truth` the right answers."""

    name: str
    build: Callable[[], CellKind[Any]]
    column: Callable[[np.random.Generator, int], list[Any]]
    ask: Callable[[list[Any]], list[tuple[Any, ...]]]
    truth: Callable[[list[Any], tuple[Any, ...]], float]


def wild(rng: np.random.Generator, n: int) -> list[Any]:
    """Floats of many sizes, with nulls, NaN, zeros of both signs and infinities."""
    values: list[Any] = (rng.lognormal(0, 3, n) * rng.choice([-1, 1], n)).tolist()
    some = [None, float("nan"), 0.0, -0.0, float("inf"), -float("inf")]
    for at in np.flatnonzero(rng.random(n) < rng.choice([0.0, 0.2])):
        values[at] = some[int(rng.integers(len(some)))]
    return values


def whole(rng: np.random.Generator, n: int) -> list[Any]:
    values: list[Any] = stream(rng, n).tolist()
    return [None if rng.random() < 0.05 else value for value in values]


def words(rng: np.random.Generator, n: int) -> list[Any]:
    return [None if v is None else f"w{v}" * (90 if v == 7 else 1) for v in whole(rng, n)]


def known(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def real(values: list[Any]) -> list[float]:
    return [value for value in known(values) if not np.isnan(value)]


def distinct(values: list[Any], _: Any) -> float:
    return float(len({repr(value) if value else "0" for value in known(values)}))


def rank_of(values: list[Any], question: tuple[Any, ...]) -> float:
    """NaN is greater than everything."""
    ordered = sorted(real(values))
    at = max(0, int(np.ceil(question[0] * len(known(values)) - 1e-9)) - 1)
    return ordered[at] if at < len(ordered) else float("nan")


def moment(values: list[Any], question: tuple[Any, ...]) -> float:
    some, asked = known(values), question[0]
    if asked == "count":
        return float(len(some))
    if asked in ("min", "max"):
        return float((min if asked == "min" else max)(real(values), default=float("nan"))) + 0.0
    if {float("inf"), -float("inf")} <= set(some):
        return float("nan")
    total = math.fsum(some) if any(isinstance(v, float) for v in some) else float(sum(some))
    return total if asked == "sum" else total / len(some) if some else float("nan")


def measured(text: str) -> Callable[[], CellKind[Any]]:
    return lambda: kind_of(Measure.read(text), TYPES, 7)


RANKS: list[tuple[Any, ...]] = [(0.0,), (0.01,), (0.5,), (0.9,), (1.0,)]
MOMENTS: list[tuple[Any, ...]] = [("count",), ("sum",), ("avg",), ("min",), ("max",)]


def counted(values: list[Any], question: tuple[Any, ...]) -> float:
    return float(sum(value == question[0] for value in known(values)))


def between(values: list[Any], question: tuple[Any, ...]) -> float:
    return float(sum(question[0] <= value < question[1] for value in real(values)))


def some_values(values: list[Any]) -> list[tuple[Any, ...]]:
    return [(value,) for value in known(values)[:5]]


CELL_CASES = [
    CellCase("moments of floats", measured("moments(x)"), wild, lambda v: MOMENTS, moment),
    CellCase("moments of integers", measured("moments(n)"), whole, lambda v: MOMENTS, moment),
    CellCase("quantiles of floats", measured("quantiles(x)"), wild, lambda v: RANKS if known(v) else [], rank_of),
    CellCase("quantiles of integers", measured("quantiles(n)"), whole, lambda v: RANKS if known(v) else [], rank_of),
    CellCase("distinct floats", measured("distinct(x)"), wild, lambda v: [()], distinct),
    CellCase("distinct words", measured("distinct(w)"), words, lambda v: [()], distinct),
    CellCase("distinct times", measured("distinct(t)"), whole, lambda v: [()], distinct),
    CellCase("frequent integers", measured("frequent(n)"), whole, some_values, counted),
    CellCase("frequent words", measured("frequent(w)"), words, some_values, counted),
    CellCase(
        "histogram",
        measured("histogram(x, -10, 10, 8)"),
        wild,
        lambda v: [(-1.0, 1.0), (-np.inf, 3.5), (-2.5, 2.5)],
        between,
    ),
    CellCase("sample", measured("sample(16)"), whole, lambda v: [()], lambda v, _: float(len(v))),
]

SEEDS = count(7)  # the bounds of counts are over the seed


def counts(name: str, buckets: int, depth: int, width: int) -> CellCase:
    """A kind of USING; of zones with buckets of their own."""
    return CellCase(
        f"counts {name}, {buckets} buckets of {depth} x {width}",
        lambda: counts_kind(name)(buckets, depth, width, next(SEEDS)),
        whole,
        lambda values: [*some_values(values), (-1,)],
        counted,
    )


COUNT_CASES = [counts(name, *sizes) for name in COUNTS for sizes in ((1, 5, 16), (4, 1, 8), (16, 3, 4))]


class OfSummaries(SummaryCells):
    """Any summary as a kind."""

    def __init__(self, case: Case) -> None:
        super().__init__(Measure(case.name, "n"), "int", 7)
        self.case, self.exact, self.made = case, case.linear, 0  # type: ignore[misc]  # of this object only

    def make(self) -> Any:
        self.made += 1
        return self.case.build(self.made if self.case.name == "sample" else 7)

    def column(self, part: Part) -> tuple[Any, int]:
        return part.values, 0

    def bytes_of(self, summary: Any) -> int:
        return 1

    def ceiling(self, cells: int) -> int:
        return 1 << 20


def as_cells(case: Case) -> CellCase:
    def array(values: list[Any]) -> Values:
        return np.array(known(values), np.int64)

    return CellCase(
        f"cells of {case.name}",
        lambda: OfSummaries(case),
        whole,
        lambda values: case.ask(array(values)) if len(known(values)) > 5 else [],
        lambda values, question: case.truth(array(values), question),
    )


ALL = [*CELL_CASES, *COUNT_CASES, *map(as_cells, CASES)]
every_kind = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


def part_of(kind: CellKind[Any], values: list[Any], cells: Values, first: int = 0, sort: bool = False) -> Part:
    """The values in their cells, in bucket order by `order` or, if they are to be sorted, by themselves."""
    n = len(values)
    order = np.argsort(cells, kind="stable").astype(np.int32)
    starts = np.searchsorted(cells[order], np.arange(CELLS + 1)).astype(np.int64)
    nulls = np.array([value is None for value in values], np.bool_)
    rows = np.arange(first, first + n, dtype=np.int32)
    text = kind.type == "string"
    given = pa.array(values, pa.large_string()) if text else None
    numbers = np.array([0 if v is None or text else v for v in values], float if kind.type == "float" else np.int64)
    made = Part(
        starts, order, None if text else numbers, given, nulls if nulls.any() else None, rows, rows.astype(np.int64)
    )
    if not sort:
        return made
    at = made.taken(order)
    return Part(starts, None, at.values, at.text, at.nulls, at.rows, at.arrivals)


def cells_of(values: list[Any]) -> Values:
    return np.arange(len(values)) * 7 % 11 % CELLS


def built(kind: CellKind[Any], values: list[Any], first: int = 0, sort: bool = False) -> Any:
    state = kind.empty(CELLS)
    kind.add(state, part_of(kind, values, (np.arange(len(values)) + first) * 7 % 11 % CELLS, first, sort))
    return state


def holds(bounds: Estimate, truth: float) -> bool:
    """NaN as an answer is NaN; as a bound it excludes nothing."""
    if np.isnan(truth):
        return bool(np.isnan(bounds.upper))
    return not (bounds.lower > truth or bounds.upper < truth)


def hits(case: CellCase, kind: CellKind[Any], state: Any, values: list[Any]) -> list[bool]:
    found = []
    for cell in range(CELLS):
        mine = [value for at, value in enumerate(values) if at * 7 % 11 % CELLS == cell]
        for question in case.ask(mine):
            found.append(holds(kind.estimate(state, cell, *question), case.truth(mine, question)))
    return found


def test_every_kind_of_measures_has_a_case():
    assert {case.build().measure.kind for case in CELL_CASES} == set(KINDS)
    assert {case.build().measure.kind for case in COUNT_CASES} == set(COUNTS)


@every_kind
def test_absorb_is_union_in_any_order_and_bounds_hold(case: CellCase):
    """To the bit for exact kinds; for the others the answers lie in their bounds, in 95 % and more."""
    found: list[bool] = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values = case.column(rng, int(rng.integers(0, 1500)))
        kind = case.build()
        cuts = sorted(rng.integers(0, len(values) + 1, 3).tolist())
        borders = [0, *cuts, len(values)]
        parts = [built(kind, values[a:b], a) for a, b in pairwise(borders)]
        merged = kind.empty(CELLS)
        for at in rng.permutation(len(parts)):
            before = kind.image(parts[at])
            kind.absorb(merged, parts[at])
            assert not kind.exact or same_images(before, kind.image(parts[at]))
        if kind.exact:
            assert same_images(kind.image(merged), kind.image(built(kind, values)))
            assert kind.differs(merged, built(kind, values, sort=True)) is None
        assert kind.nbytes(merged) <= kind.ceiling(CELLS) + kind.tuple_bytes * len(values)
        found += hits(case, kind, merged, values)
    assert np.mean(found) >= BOUNDS


@every_kind
def test_one_tuple_more_is_seen_by_the_check(case: CellCase):
    kind, values = case.build(), case.column(np.random.default_rng(1), 300)
    more = [next(v for v in values if v is not None)]
    whole_state, other = built(kind, values), built(kind, values)
    assert kind.differs(whole_state, built(kind, values)) is None
    kind.absorb(other, built(kind, more, 300))
    if "distinct" not in case.name or not kind.exact:
        assert kind.differs(other, built(kind, values)) is not None


@every_kind
@settings(max_examples=examples(30))
@given(n=st.integers(0, 200), seed=st.integers(0, 1 << 30))
def test_images_round_trip(case: CellCase, n: int, seed: int):
    kind, values = case.build(), case.column(np.random.default_rng(seed), n)
    state = built(kind, values)
    image = kind.image(state)
    again = kind.restore(image)
    for cell in range(CELLS):
        mine = [value for at, value in enumerate(values) if at * 7 % 11 % CELLS == cell]
        for question in case.ask(mine):
            assert repr(kind.estimate(again, cell, *question)) == repr(kind.estimate(state, cell, *question))
    kind.absorb(again, built(kind, values, n))
    assert not kind.exact or same_images(image, kind.image(state)), "an image is independent of its state"
    assert not kind.exact or same_images(image, kind.image(kind.restore(image)))


@every_kind
def test_subtract_undoes_absorb_or_says_it_cannot(case: CellCase):
    rng = np.random.default_rng(3)
    kind = case.build()
    state, other = built(kind, case.column(rng, 200)), built(kind, case.column(rng, 50), 200)
    before = kind.image(state)
    kind.absorb(state, other)
    if not type(kind).subtracts:
        with pytest.raises(CannotSubtract, match=f"{kind.measure.kind}.*rebuild"):
            kind.subtract(state, other)
        return
    kind.subtract(state, other)
    for name, left in before.items():
        if name not in ("least", "greatest", "special"):  # bounds stay, and counts of what was there
            assert same_images(left, kind.image(state)[name])


def test_adt_and_cells_agree():
    """A cell answers what the summary of its tuples answers."""
    for case in CASES:
        if not isinstance(case.build(7), FrequencySummary) or case.name == "sample":
            continue
        values = stream(np.random.default_rng(5), 500)
        one = case.build(7)
        one.summarize(values)
        kind = OfSummaries(case)
        state = kind.empty(1)
        kind.add(state, Part.whole(values))
        for question in case.ask(values):
            assert kind.estimate(state, 0, *question) == one.estimate(*question)


# --- texts -------------------------------------------------------------------------------------------------------


@given(
    kind=st.sampled_from(["moments", "Distinct", "SAMPLE"]),
    column=st.none() | st.text(min_size=1, max_size=12).filter(lambda text: text.strip() == text),
    numbers=st.lists(st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False), max_size=3),
)
def test_texts_of_measures_round_trip(kind: str, column: str | None, numbers: list[float]):
    measure = Measure(kind.lower(), column, tuple(numbers) if column is not None else ())
    again = Measure.read(str(measure))
    assert (again.kind, again.column) == (measure.kind, measure.column)
    assert np.array_equal(again.arguments, measure.arguments)
    assert str(again) == str(measure)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tea(x)", "unknown measure TEA; there are DISTINCT"),
        ("quantiles(w)", "'w' is of type string; QUANTILES measures columns of type float, int, timestamp: n, t, x"),
        ("quantiles(none)", "there is no column 'none'"),
        ("quantiles()", r"names no column; write QUANTILES\(column\)"),
        ("quantiles(x, 3)", "too many arguments"),
        ("quantiles", "is not a measure"),
        ("histogram(x)", r"HISTOGRAM\(x, 0, 100\)"),
        ("histogram(x, 1, 1)", "range of finite numbers"),
        ("histogram(x, 0, 1, 0.5)", "whole number"),
        ("sample(0)", r"1 to 16,384 rows are wanted; for example SAMPLE\(64\)"),
        ("sample(x)", "measures whole tuples"),
        ("sample(1.5)", "rows are wanted"),
        ("frequent(x)", "of type float; FREQUENT measures"),
    ],
)
def test_what_cannot_be_measured_is_named(text: str, said: str):
    with pytest.raises(BadMeasure, match=said):
        kind_of(Measure.read(text), TYPES, 7)
