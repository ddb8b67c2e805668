"""Exact aggregates against DuckDB over random data, and what DuckDB does not say: order, slices, limits."""

import itertools
import math
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from promising.errors import Overflow
from promising.query.aggregate.aggregates import OF_NUMBERS, QUANTILES, Aggregate, Function, Groups, check
from promising.query.aggregate.grouping import SEED, GroupTable, Strings
from promising.query.scalar.types import ARROW, Kind
from promising.summaries.kernels.hashing import P1, P2, remix
from promising.summaries.kernels.text_table import hash_text
from tests.conftest import NO_JIT

KINDS: tuple[Kind, ...] = ("int", "float", "string", "bool", "timestamp", "interval")
FUNCTIONS: tuple[Function, ...] = (
    *("count", "sum", "avg", "min", "max", "median", "quantile", "count_distinct"),
    *("approx_quantile", "approx_count_distinct"),
)
ROWS = 60 if NO_JIT else 3000

CALLS = [Aggregate("count")]
for _function, _kind in itertools.product(FUNCTIONS, KINDS):
    if check(_function, _kind) is None:
        CALLS.append(Aggregate(_function, _kind, 0.3 if _function in QUANTILES else None))

Row = tuple[Any, ...]


def column(rng: np.random.Generator, kind: Kind, rows: int, nulls: float = 0.2) -> pa.Array:
    """Random values with ties, nulls, and for floats NaN, infinities and both zeros; cut out of a longer array."""
    total = rows + 11
    missing = rng.random(total) < nulls
    small = rng.integers(-4, 5, total)
    array: pa.Array
    if kind == "string":
        words = np.array(["", "a", "aa", "ä", "z", "Z", "milk", "milk and honey", "a long text " * 9], object)
        array = pa.array(words[small + 4], ARROW[kind], mask=missing)
    elif kind == "bool":
        array = pa.array(small > 0, mask=missing)
    elif kind == "float":
        odd = np.array([np.nan, np.inf, -0.0, 0.0, -np.nan, 0.5, -1.5, 1e300, 7.25])
        values = np.where(rng.random(total) < 0.3, odd[small + 4], rng.normal(size=total).round(1))
        array = pa.array(values, mask=missing)
    else:
        wide = rng.integers(-(1 << 61), 1 << 61, total)
        values = np.where(rng.random(total) < 0.5, small, wide if kind == "int" else wide >> 12)
        array = pa.array(values, mask=missing).view(ARROW[kind])
    return array.slice(7, rows)


def added(
    keys: list[pa.Array], kinds: list[Kind], calls: list[Aggregate], arguments: list[pa.Array | None], cuts: list[int]
) -> Groups:
    """All rows, in slices that end where `cuts` say."""
    groups = Groups(kinds, calls)
    for start, stop in itertools.pairwise(cuts):
        groups.add(
            [key.slice(start, stop - start) for key in keys],
            [None if argument is None else argument.slice(start, stop - start) for argument in arguments],
            stop - start,
        )
    return groups


def sql_of(call: Aggregate, place: int) -> str:
    name = f"a{place}"
    match call.function:
        case "count":
            return "count(*)" if call.kind is None else f"count({name})"
        case "count_distinct" | "approx_count_distinct":
            return f"count(DISTINCT {name})"
        case "quantile" | "approx_quantile":
            return f"quantile_cont({name}, {call.at})"
        case "min" | "max" if call.kind == "interval":
            return f"to_microseconds({call.function}(epoch_us({name})))"
        case _:
            return f"{call.function}({name})"


def duck(keys: list[pa.Array], calls: list[Aggregate], arguments: list[pa.Array | None], rows: int) -> list[Row]:
    """The same by DuckDB, the groups in order of first appearance."""
    table = {f"k{i}": key for i, key in enumerate(keys)}
    table |= {f"a{i}": argument for i, argument in enumerate(arguments) if argument is not None}
    table["place"] = pa.array(np.arange(rows))
    shown = ", ".join([f"k{i}" for i in range(len(keys))] + [sql_of(call, i) for i, call in enumerate(calls)])
    by = f" GROUP BY {', '.join(f'k{i}' for i in range(len(keys)))} ORDER BY min(place)" if keys else ""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("t", pa.table(table))
        return connection.execute(f"SELECT {shown} FROM t{by}").fetchall()


def rows_of(groups: Groups) -> list[Row]:
    result = groups.result()
    columns = [array.to_pylist() for array in (*result.keys, *result.values)]
    return list(zip(*columns, strict=True))


def near(ours: object, theirs: object) -> bool:
    """Equal; floats to 1e-9 of their size, NaN equal to NaN."""
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    return type(ours) is type(theirs) and ours == theirs


def assert_same(ours: list[Row], theirs: list[Row]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert all(map(near, mine, other)), f"{mine} where {other} is due"


@pytest.mark.kernel
@pytest.mark.parametrize("seed", range(3 if NO_JIT else 40))
def test_as_duckdb(seed: int):
    """Every function on every kind it takes, by 0 to 4 keys of any kind, in slices of any size."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(0, ROWS))
    kinds = [KINDS[i] for i in rng.integers(0, len(KINDS), seed % 5)]
    keys = [column(rng, kind, rows, 0.2 * (seed % 3)) for kind in kinds]
    calls = [CALLS[i] for i in rng.permutation(len(CALLS))[:12]]
    arguments: list[pa.Array | None] = []
    for call in calls:
        arguments.append(None if call.kind is None else column(rng, call.kind, rows, 0.1 * (seed % 4)))
    cuts = sorted({0, rows, *rng.integers(0, rows + 1, seed % 7).tolist()})
    ours = added(keys, kinds, calls, arguments, [*cuts, rows])
    try:
        mine = rows_of(ours)
    except Overflow:
        theirs = duck(keys, calls, arguments, rows)
        sums = [len(keys) + i for i, call in enumerate(calls) if call.function == "sum" and call.kind == "int"]
        assert any(abs(row[i] or 0) >= 1 << 63 for row in theirs for i in sums)
        return
    assert_same(mine, duck(keys, calls, arguments, rows))


@pytest.mark.kernel
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.function}-{call.kind}")
@pytest.mark.parametrize("keyed", [False, True])
def test_each_call_as_duckdb(call: Aggregate, keyed: bool):
    rng = np.random.default_rng(7)
    rows = 200 if NO_JIT else 2000
    keys = [column(rng, "int", rows)] if keyed else []
    argument = None if call.kind is None else column(rng, call.kind, rows)
    if call.function == "sum" and call.kind == "int" and argument is not None:
        argument = pa.array(np.asarray(argument.fill_null(0)) >> 12)
    ours = added(keys, ["int"] if keyed else [], [call], [argument], [0, rows // 3, rows // 3, rows])
    assert_same(rows_of(ours), duck(keys, [call], [argument], rows))
    assert [array.type for array in ours.result().values] == [ARROW[call.result_kind]]


@pytest.mark.kernel
def test_without_rows():
    calls = [call for call in CALLS if call.kind != "interval"]
    arguments = [None if call.kind is None else pa.array([], ARROW[call.kind]) for call in calls]
    expected = [0 if "count" in call.function else None for call in calls]
    one = Groups([], calls)
    assert rows_of(one) == [tuple(expected)]
    one.add([], arguments, 0)
    assert rows_of(one) == [tuple(expected)]
    none = Groups(["int", "string"], calls)
    none.add([pa.array([], ARROW["int"]), pa.array([], ARROW["string"])], arguments, 0)
    assert rows_of(none) == []
    assert [key.type for key in none.result().keys] == [ARROW["int"], ARROW["string"]]


@pytest.mark.kernel
def test_null_literals():
    """Arguments and keys that are NULL in every row, and of no other type."""
    calls = [Aggregate(function, "null", 0.5) for function in FUNCTIONS]
    groups = Groups(["null", "int"], calls)
    groups.add([pa.nulls(3), pa.array([1, None, 1])], [pa.nulls(3)] * len(calls), 3)
    expected = (0, None, None, None, None, None, None, 0, None, 0)
    assert rows_of(groups) == [(None, 1, *expected), (None, None, *expected)]
    assert [array.type for array in groups.result().values] == [ARROW[call.result_kind] for call in calls]


@pytest.mark.kernel
@pytest.mark.parametrize("keyed", [False, True])
def test_integer_sums_are_exact_up_to_64_bits_and_refused_beyond(keyed: bool):
    most, least = (1 << 63) - 1, -(1 << 63)

    def total(values: list[int]) -> object:
        groups = Groups(["bool"] if keyed else [], [Aggregate("sum", "int"), Aggregate("avg", "int")])
        for value in values:  # a slice each, and all of them again as one that comes to nothing
            groups.add([pa.array([True])] * keyed, [pa.array([value])] * 2, 1)
        ordinary = [value for value in values if value != least]
        both = pa.array([*ordinary, *(-value for value in ordinary)], pa.int64())
        rows = len(both)
        groups.add([pa.array([False] * rows)] * keyed, [both if keyed else pa.nulls(rows, pa.int64())] * 2, rows)
        mine = rows_of(groups)[0][keyed:]
        assert near(mine[1], sum(values) / len(values))
        return mine[0]

    assert total([most, most, -most, 5, -5]) == most
    assert total([least, least, most, 1]) == least
    assert total([most] * 5 + [least] * 5) == -5
    assert total([(1 << 32) - 1, 1, -1, -(1 << 32)]) == -1
    for beyond in ([most, 1], [least, -1], [most] * 9):
        with pytest.raises(Overflow, match=f"sum {sum(beyond)} does not fit 64 bits"):
            total(beyond)


@pytest.mark.kernel
def test_groups_come_in_order_of_first_appearance_however_the_rows_are_cut():
    rng = np.random.default_rng(3)
    rows = 300 if NO_JIT else 20_000
    numbers = rng.integers(0, rows // 3, rows)
    keys = [pa.array(numbers, mask=numbers == 5), pa.array([f"item {n % 97}" for n in numbers], ARROW["string"])]
    seen: dict[Row, int] = {}
    for row in zip(*(key.to_pylist() for key in keys), strict=True):
        seen[row] = seen.get(row, 0) + 1
    for step in (rows, rows // 7, 64):
        groups = added(keys, ["int", "string"], [Aggregate("count")], [None], [*range(0, rows, step), rows])
        assert {row[:2]: row[2] for row in rows_of(groups)} == seen
        assert [row[:2] for row in rows_of(groups)] == list(seen)


@pytest.mark.kernel
def test_results_can_be_asked_between_slices():
    """A result is a state of its own: later rows do not show in it, and asking changes nothing."""
    rng = np.random.default_rng(5)
    rows = 120 if NO_JIT else 5000
    keys = [pa.array(np.sort(rng.integers(0, 40, rows)))]
    calls = [call for call in CALLS if call.function != "sum" or call.kind != "int"]
    arguments = [None if call.kind is None else column(rng, call.kind, rows) for call in calls]
    groups = Groups(["int"], calls)
    kept: list[tuple[int, list[pa.Array], list[Row]]] = []
    for start in range(0, rows, rows // 6):
        size = min(rows // 6, rows - start)
        cut = [None if argument is None else argument.slice(start, size) for argument in arguments]
        groups.add([keys[0].slice(start, size)], cut, size)
        kept.append((start + size, groups.result().values, rows_of(groups)))
    for stop, values, shown in kept:
        cut = [None if argument is None else argument.slice(0, stop) for argument in arguments]
        assert_same(shown, duck([keys[0].slice(0, stop)], calls, cut, stop))
        assert_same(list(zip(*(array.to_pylist() for array in values), strict=True)), [row[1:] for row in shown])


@pytest.mark.kernel
def test_every_integer_is_a_key_of_its_own_next_to_null():
    """Whatever stands for NULL within, no value is taken for it; nor are keys in other columns."""
    extremes = [0, 2, -1, (1 << 63) - 1, -(1 << 63), 0x7FF8000000000001, None]
    pairs = list(itertools.product(extremes, [None, True, False], [None, "", "a"]))
    kinds: list[Kind] = ["int", "bool", "string"]
    columns = [pa.array([pair[i] for pair in pairs], ARROW[kind]) for i, kind in enumerate(kinds)]
    groups = added(columns * 2, kinds * 2, [Aggregate("count")], [None], [0, 9, len(pairs)])
    assert rows_of(groups) == [(*pair, *pair, 1) for pair in pairs]


@pytest.mark.kernel
def test_more_keys_than_one_word_can_flag():
    rows = 130
    keys = [pa.array([None if i == row else 0 for row in range(rows)], pa.int64()) for i in range(rows - 1)]
    groups = added(keys, ["int"] * len(keys), [Aggregate("count")], [None], [0, rows])
    assert rows_of(groups) == [(*(None if i == row else 0 for i in range(rows - 1)), 1) for row in range(rows)]


@pytest.mark.kernel
def test_strings_that_share_beginnings_or_lengths():
    words = ["", *("x" * n for n in range(1, 40)), *("x" * n + "y" for n in range(40)), "\0", "\0\0", "ß", "x\0"]
    rng = np.random.default_rng(1)
    shuffled = [words[i] for i in rng.integers(0, len(words), 300)]
    keys = [pa.array(shuffled, ARROW["string"])]
    calls = [
        Aggregate("count"),
        Aggregate("min", "string"),
        Aggregate("max", "string"),
        Aggregate("count_distinct", "string"),
    ]
    other = pa.array(shuffled[::-1], ARROW["string"])
    groups = added(keys, ["string"], calls, [None, other, other, other], [0, 100, 300])
    expected: dict[str, list[str]] = {}
    for key, value in zip(shuffled, shuffled[::-1], strict=True):
        expected.setdefault(key, []).append(value)
    assert rows_of(groups) == [
        (key, len(v), min(v, key=str.encode), max(v, key=str.encode), len(set(v))) for key, v in expected.items()
    ]


@pytest.mark.kernel
def test_rows_whose_hashes_are_equal_are_told_apart():
    """The hash can be run backwards by whoever knows the seed: here, the test."""
    wanted = np.uint64(0x0123456789ABCDEF)
    rows = []
    for a, b in itertools.product(range(4), range(5)):
        h = np.uint64(remix(np.uint64(remix(SEED ^ np.uint64(a))) ^ np.uint64(b)))
        rows.append([a, b, int((wanted ^ h).view(np.int64))])
    words = np.ascontiguousarray(np.array(rows).T)
    table = GroupTable(3)
    assert table.enter(words).tolist() == list(range(20))
    assert table.enter(np.ascontiguousarray(words[:, ::-1])).tolist() == list(range(20))[::-1]
    assert table.find(words).tolist() == list(range(20))
    assert table.find(words + 1).tolist() == [-1] * 20


@pytest.mark.kernel
def test_strings_whose_hashes_are_equal_are_told_apart():
    rng = np.random.default_rng(4)
    texts: list[bytes] = []
    while len(texts) < 10:  # 8 bytes that leave 8 more to bring the hash to what it should be
        start = rng.integers(0, 1 << 63, dtype=np.uint64)
        with np.errstate(over="ignore"):
            h = (SEED ^ (np.uint64(16) * P1) ^ start) * P2
        rest = int(h ^ (h >> np.uint64(32)) ^ np.uint64(0x0123456789ABCDEF))
        texts.append(int(start).to_bytes(8, "little") + rest.to_bytes(8, "little"))
    data, ends = b"".join(texts), np.arange(11) * 16
    places = ends.astype(np.uint64)
    plain = np.frombuffer(data, np.uint8)
    hashes = {int(hash_text(plain, places[i], places[i + 1], SEED)) for i in range(10)}
    assert len(hashes) == 1
    strings = Strings()
    array = pa.Array.from_buffers(ARROW["string"], 10, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    assert strings.enter(array).tolist() == list(range(10))
    assert strings.enter(array.slice(3)).tolist() == list(range(3, 10))
    assert strings.take(np.array([7, -1])).cast(pa.large_binary()).to_pylist() == [texts[7], None]


@pytest.mark.kernel
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        ([math.nan, 2.0], 2.0, math.nan),
        ([2.0, math.nan], 2.0, math.nan),
        ([math.nan, math.inf, math.nan], math.inf, math.nan),
        ([math.nan], math.nan, math.nan),
    ],
)
def test_nan_is_greater_than_every_number(values: list[float], least: float, greatest: float, keyed: bool):
    groups = Groups(["int"] if keyed else [], [Aggregate("min", "float"), Aggregate("max", "float")])
    for part in (values, *([value] for value in values)):
        groups.add([pa.array([1] * len(part))] * keyed, [pa.array(part)] * 2, len(part))
        if part is values:
            assert all(map(near, rows_of(groups)[0][keyed:], (least, greatest)))
    assert all(map(near, rows_of(groups)[0][keyed:], (least, greatest)))


@pytest.mark.kernel
def test_best_strings_keep_no_more_than_they_need():
    """A group whose string grows better all the time gives the old ones up."""
    groups = Groups(["int"], [Aggregate("max", "string")])
    for n in range(250):
        values = pa.array([f"{n:05}" + "x" * 1000, "-"], ARROW["string"])
        groups.add([pa.array([1, n])], [values], 2)
    state = cast(Any, groups.accumulators[0])
    assert len(state._arena) < 1 << 17
    assert rows_of(groups)[0] == (1, f"{n:05}" + "x" * 1000)
    assert len(rows_of(groups)) == n + 1


@pytest.mark.kernel
def test_float_sums_do_not_depend_on_the_order_of_rows():
    """Rows come best first in one query, oldest first in another: the answers are the same."""
    rng = np.random.default_rng(2)
    rows = 200 if NO_JIT else 50_000
    values = rng.lognormal(0, 6, rows) * rng.choice([-1, 1], rows)
    keys = rng.integers(0, 3, rows)
    for kinds in ([], ["int"]):
        sums = []
        for order in (np.arange(rows), rng.permutation(rows)):
            key = [pa.array(keys[order])] if kinds else []
            groups = added(
                key, cast(list[Kind], kinds), [Aggregate("sum", "float")], [pa.array(values[order])], [0, rows]
            )
            sums.append(sorted(row[-1] for row in rows_of(groups)))
        exact = sorted(math.fsum(values[keys == k]) for k in range(3)) if kinds else [math.fsum(values)]
        if kinds:
            assert sums[0] == sums[1] == exact
        assert np.allclose(sums[0], exact, rtol=1e-13, atol=np.abs(values).sum() * 1e-15)


@pytest.mark.kernel
def test_a_slice_of_the_wrong_type_or_length_is_refused_and_nothing_added():
    groups = Groups(["string"], [Aggregate("sum", "float"), Aggregate("count")])
    key, value = pa.array(["a", "b"], ARROW["string"]), pa.array([1.0, 2.0])
    groups.add([key], [value, None], 2)
    before = rows_of(groups)
    wrong: list[tuple[list[pa.Array], list[pa.Array | None]]] = [
        ([pa.array(["c", "d"])], [value, None]),
        ([key], [pa.array([1, 2]), None]),
        ([key], [pa.array([1.0]), None]),
        ([key], [None, None]),
        ([key.slice(1)], [value, None]),
    ]
    for keys, arguments in wrong:
        with pytest.raises(TypeError):
            groups.add(keys, arguments, 2)
    with pytest.raises(ValueError, match="zip"):
        groups.add([], [value, None], 2)
    assert rows_of(groups) == before


def test_which_arguments_a_function_takes():
    assert check("count", None) is None
    assert check("sum", None) == "sum needs an argument"
    assert check("avg", "string") == "avg wants a number, not a string"
    assert check("median", "timestamp") == "median wants a number, not a timestamp"
    assert [kind for kind in KINDS if check("sum", kind) is None] == ["int", "float"]
    for function in set(FUNCTIONS) - OF_NUMBERS:
        assert all(check(function, kind) is None for kind in KINDS)
    assert Aggregate("sum", "int").result_kind == "int"
    assert Aggregate("avg", "int").result_kind == "float"
    assert Aggregate("max", "timestamp").result_kind == "timestamp"
    assert Aggregate("median", "int").result_kind == "float"
