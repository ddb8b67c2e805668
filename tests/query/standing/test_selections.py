"""Selections indexed together find what each finds by itself: its predicates one after the other, on every row."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import DivisionByZero, PromisingError, QueryError
from promising.query.scalar.expressions import Compiled, compile_predicate, conjuncts
from promising.query.scalar.scope import StreamScope
from promising.query.scalar.types import ARROW, Kind
from promising.query.sql import parse
from promising.query.standing import selections
from promising.query.standing.selections import Selections
from tests.conftest import NO_JIT
from tests.query.random_expressions import Generator
from tests.tiers import examples

pytestmark = pytest.mark.kernel

EXAMPLES = 20 if NO_JIT else 60
COLUMNS: dict[str, Kind] = {
    "i": "int",
    "j": "int",
    "big": "int",
    "f": "float",
    "g": "float",
    "wild": "float",
    "s": "string",
    "u": "string",
    "digits": "string",
    "b": "bool",
    "c": "bool",
    "t": "timestamp",
    "v": "timestamp",
}
INT64 = (1 << 63) - 1
INTS = [0, 1, -1, 2, 3, 5, 7, INT64, -INT64, -INT64 - 1, 1 << 53, (1 << 53) + 1, INT64 - 511, INT64 - 512]
FLOATS = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, 2.0, 3.0, 2.0**53, 2.0**63, -(2.0**63), 5e-324]
WORDS = ["", "a", "A", "ab", "jam", "jam %", "ß", "a longer one, of more than eight bytes", "a longer one, of more"]
TIMES = [0, -1, 1, 1_609_459_200_000_000, 1_609_459_200_000_001, INT64, -INT64 - 1]
VALUES: dict[Kind, list[Any]] = {
    "int": INTS,
    "float": FLOATS,
    "string": WORDS,
    "timestamp": TIMES,
    "bool": [True, False],
}


@dataclass
class Log:
    """A stream's columns, as far as they were sent."""

    columns: dict[str, pa.Array] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def take(self, column: str, ids: Any) -> pa.Array:
        self.asked.append(column)
        return self.columns[column].take(pa.array(ids))

    def append(self, part: dict[str, pa.Array]) -> None:
        for name, array in part.items():
            known = self.columns.get(name)
            self.columns[name] = array if known is None else pa.concat_arrays([known, array])


def compiled(condition: str) -> tuple[list[Compiled], list[Any]]:
    sql = f"SELECT 1 FROM r WHERE {condition}"
    parts = conjuncts(parse(sql).args["where"].this)
    scope = StreamScope(sql, [("r", "r", COLUMNS)])
    return [compile_predicate(part, scope) for part in parts], parts


def drawn(rng: random.Random, size: int, nulls: float = 0.15) -> dict[str, pa.Array]:
    """Extremes and many ties; slices of longer arrays, so that no one may ignore an offset."""

    def pick(kind: Kind) -> Any:
        if rng.random() < nulls:
            return None
        if kind in ("int", "float") and rng.random() < 0.3:
            return rng.randrange(-9, 9) / (1 if kind == "int" else 2)
        return rng.choice(VALUES[kind])

    def one(name: str, kind: Kind) -> pa.Array:
        values = [pick(kind) for _ in range(size + 3)]
        if name == "digits":
            values = [rng.choice(["1", "2", "7", "x"]) for _ in values]
        if kind == "int":
            values = [None if v is None else int(v) for v in values]
        return pa.array(values, ARROW[kind]).slice(2, size)

    return {name: one(name, kind) for name, kind in COLUMNS.items()}


def alone(condition: str, part: dict[str, pa.Array], first: int) -> list[int] | QueryError:
    """What the predicates say one by one, each asked of the rows that met those before."""
    predicates, _ = compiled(condition)
    rows = np.arange(len(part["i"]))
    columns = part
    try:
        for predicate in predicates:
            kept = predicate.evaluate({i: columns[i.name] for i in predicate.inputs}, len(rows))
            kept = kept.cast(pa.bool_()).fill_null(False)
            rows = rows[kept.to_numpy(zero_copy_only=False)]
            columns = {name: array.filter(kept) for name, array in columns.items()}
    except QueryError as error:
        return error
    found: list[int] = (rows + first).tolist()
    return found


def told(rng: random.Random, value: Any, kind: Kind) -> str:
    """A literal."""
    if rng.random() < 0.04:
        return "NULL"
    if kind == "string":
        return f"'{value}'"
    if kind == "timestamp":
        return rng.choice(["TIMESTAMP '2021-01-01'", "'2021-01-01 00:00:00'", "TIMESTAMP '1970-01-01 00:00:00.000001'"])
    if kind == "bool":
        return rng.choice(["TRUE", "FALSE"])
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{value}' AS DOUBLE)"
    return rng.choice([repr(value), repr(value), f"({value!r})"])


def comparison(rng: random.Random, name: str) -> str:
    """Of a column with constants."""
    kind = COLUMNS[name]
    values = INTS + FLOATS + [-3, 2.5, 4] if kind in ("int", "float") else VALUES[kind]
    one, other = sorted(rng.sample([told(rng, v, kind) for v in values], 2)) if len(values) > 2 else ("TRUE", "FALSE")
    pick = rng.randrange(8)
    if pick < 4:
        operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
        return rng.choice([f"{name} {operator} {one}", f"{one} {operator} {name}", f"({name}) {operator} {one}"])
    if pick < 6:
        return f"{name} {rng.choice(['', 'NOT '])}BETWEEN {one} AND {other}"
    members = [told(rng, rng.choice(values), kind) for _ in range(rng.choice([1, 2, 3, 20]))]
    return f"{name} {rng.choice(['', '', 'NOT '])}IN ({', '.join(members)})"


def condition(rng: random.Random) -> str:
    def one(depth: int) -> str:
        pick = rng.randrange(12)
        if pick == 0:
            return Generator(rng).make("bool", 2).ours
        if pick == 1:
            return rng.choice(
                ["b", "NOT c", "i % 3 = 1", "10 / i > 1", "s LIKE 'a%'", "i < j", "s IS NULL", "f + 1 > g"]
            )
        if depth and pick < 5:
            word = rng.choice([" OR ", " AND "])
            name = rng.choice(list(COLUMNS))
            parts = [comparison(rng, name) if rng.random() < 0.8 else one(depth - 1) for _ in range(rng.choice([2, 3]))]
            return rng.choice(["", "NOT "]) + f"({word.join(parts)})"
        return comparison(rng, rng.choice(list(COLUMNS)))

    return " AND ".join(one(2) for _ in range(rng.choice([1, 1, 2, 3])))


def good(rng: random.Random) -> str:
    """A condition that can be compiled; some generated ones compare what cannot be."""
    while True:
        made = condition(rng)
        try:
            compiled(made)
        except PromisingError:
            continue
        return made


def check(batch: Any, asked: dict[int, str], part: dict[str, pa.Array]) -> None:
    want = {number: alone(sql, part, batch.first) for number, sql in asked.items()}
    failing = {number for number, found in want.items() if isinstance(found, QueryError)}
    rows = {number: found for number, found in want.items() if not isinstance(found, QueryError)}
    touched = set(batch.touched().tolist())
    assert {number for number, found in rows.items() if found} | failing <= touched <= asked.keys()
    numbers, seqs = batch.pairs()
    together: dict[int, list[int]] = {}
    for number, seq in zip(numbers.tolist(), seqs.tolist(), strict=True):
        together.setdefault(number, []).append(seq)
    assert together == {number: found for number, found in rows.items() if found}
    assert batch.failed.keys() == failing
    for number, found in want.items():
        if isinstance(found, QueryError):
            with pytest.raises(type(found)) as caught:
                batch.matches(number)
            assert str(caught.value) == str(found)
        else:
            assert batch.matches(number).tolist() == found, asked[number]
            assert len(found) <= batch.count(number) <= batch.size
    check_later(batch, want)


def check_later(batch: Any, want: dict[int, list[int] | QueryError]) -> None:
    """Only what arrived from some tuple on is asked for."""
    for later in (batch.first - 3, batch.first + 1, batch.first + batch.size // 2, batch.first + batch.size):
        numbers, seqs = batch.pairs(later)
        rows = {number: [s for s in found if s >= later] for number, found in want.items() if isinstance(found, list)}
        for number, found in rows.items():
            assert batch.matches(number, later).tolist() == found
            assert seqs[numbers == number].tolist() == found


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(0, 1 << 32), st.integers(1, 25), st.sampled_from([0, 1, 2, 30, 63, 64, 65, 130]))
def test_matches_are_those_of_the_predicates_one_by_one(seed, count, size):
    rng = random.Random(seed)
    part = drawn(rng, size, rng.choice([0, 0.15, 1]))
    log = Log()
    log.append(part)
    many = Selections(log)
    asked = {10 * number: good(rng) for number in range(count)}
    for number, sql in asked.items():
        many.add(number, *compiled(sql))
    check(many.index(0, np.arange(size), part.__getitem__), asked, part)


@pytest.mark.deep("thousands of selections")
@settings(max_examples=examples(EXAMPLES // 3))
@given(st.integers(0, 1 << 32))
def test_selections_come_and_go_while_batches_stay(seed):
    rng = random.Random(seed)
    log, many = Log(), Selections(Log())
    many.rows = log
    asked: dict[int, str] = {}
    batches: list[tuple[Any, dict[str, pa.Array]]] = []
    for step in range(rng.randrange(4, 16)):
        for _ in range(rng.randrange(12)):
            if asked and rng.random() < 0.45:
                gone = rng.choice(list(asked))
                del asked[gone]
                many.remove(gone)
            else:
                number = rng.randrange(1 << 40)
                asked[number] = good(rng)
                many.add(number, *compiled(asked[number]))
        if rng.random() < 0.5 or not batches:
            part = drawn(rng, rng.randrange(40))
            first = len(log.columns["i"]) if log.columns else 0
            log.append(part)
            batches.append((many.index(first, np.arange(len(part["i"])), part.__getitem__), part))
        elif step % 2:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(selections, "FEWEST", 0)
                lists = many.lists
                for number in range(len(asked) + 1):
                    many.add(-1 - number, *compiled("s = 'jam'"))
                for number in range(len(asked) + 1):
                    many.remove(-1 - number)
                assert many.lists is not lists, "made anew"
        check(*_with(rng.choice(batches), asked))
    for batch in batches:
        check(*_with(batch, asked))


def _with(batch: tuple[Any, dict[str, pa.Array]], asked: dict[int, str]) -> tuple[Any, dict[int, str], Any]:
    return batch[0], asked, batch[1]


def indexed(sql: str) -> int:
    """How many columns the condition is indexed by; -1 if it takes more than that to check it."""
    many = Selections(Log())
    many.add(1, *compiled(sql))
    return -1 if many.queries[1].rest else len(many.queries[1].columns)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("f BETWEEN 1.5 AND 3", 1),
        ("f > 1 AND f <= 3 AND i = 4", 2),
        ("i < 2.5", 1),
        ("f < 2 OR f > 7 OR f = 5", 1),
        ("NOT (f < 2 AND f > 1)", 1),
        ("i IN (1, 2, 3) AND NOT i = 2", 1),
        ("s = 'a'", 1),
        ("'a' = s AND s IN ('a', 'b')", 1),
        ("t >= '2021-01-01' AND t < TIMESTAMP '2021-01-02'", 1),
        ("b AND NOT c", 2),
        ("i < 1 + 2 * 3", 1),
        ("s <> 'a'", -1),
        ("s > 'a'", -1),
        ("i < 2 OR j < 2", -1),
        ("i + 1 < 2", -1),
        ("i = NULL", -1),
        ("i < 2 AND i < j", -1),
    ],
)
def test_comparisons_with_constants_need_no_look_at_the_rows(sql, columns):
    assert indexed(sql) == columns


def test_a_condition_that_fails_fails_alone_and_as_if_it_were_asked_in_order():
    part = drawn(random.Random(1), 8, 0) | {"i": pa.array([0, 1, 2, 3, 4, 5, 6, 7])}
    log = Log()
    log.append(part)
    many = Selections(log)
    asked = {1: "10 / i > 2 AND i > 0", 2: "i > 0 AND 10 / i > 2", 3: "i > 4", 4: "i > 1 / 0"}
    for number, sql in asked.items():
        many.add(number, *compiled(sql))
    batch = many.index(100, np.arange(8), part.__getitem__)
    numbers, seqs = batch.pairs()
    assert numbers.tolist() == [3, 3, 3, 2, 2, 2, 2]
    assert seqs.tolist() == [105, 106, 107, 101, 102, 103, 104]
    assert batch.failed.keys() == {1, 4}
    with pytest.raises(DivisionByZero):
        batch.matches(1)


def test_every_nan_is_the_one_nan():
    signs = np.array([0x7FF8000000000000, -0x8000000000000, 0x7FF8000000000005, 0x3FF0000000000000], np.int64)
    part = {"f": pa.array(signs.view(np.float64))}
    minus = "CAST('inf' AS DOUBLE) - CAST('inf' AS DOUBLE)"
    many = Selections(Log(part))
    for number, sql in enumerate([f"f = {minus}", f"f >= {minus}", "f > CAST('inf' AS DOUBLE)", f"f <> {minus}"]):
        many.add(number, *compiled(sql))
    batch = many.index(0, np.arange(4), part.__getitem__)
    assert [batch.matches(number).tolist() for number in range(4)] == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [3]]


def test_only_columns_that_are_asked_for_are_read():
    part = drawn(random.Random(1), 8)
    log = Log()
    log.append(part)
    many = Selections(log)
    many.add(1, *compiled("i > 1"))
    many.add(2, *compiled("f > 1"))
    many.remove(2)
    read: list[str] = []

    def columns(name: str) -> pa.Array:
        read.append(name)
        return part[name]

    batch = many.index(0, np.arange(8), columns)
    assert not read
    batch.matches(1)
    assert read == ["i"] and not log.asked
    many.add(3, *compiled("j > 1 AND s LIKE 'a%'"))
    batch.matches(3)
    assert read == ["i"] and log.asked == ["j", "s"]


def test_many_rows_and_few_come_in_order_of_arrival():
    size = 5000
    values = np.random.default_rng(3).permutation(size)
    part = {"i": pa.array(values), "j": pa.array(values[::-1].copy())}
    log = Log()
    log.append(part)
    many = Selections(log)
    for number, width in enumerate([1, 24, 25, 500, 5000]):
        many.add(2 * number, *compiled(f"i >= 700 AND i < {700 + width}"))
        many.add(2 * number + 1, *compiled(f"i >= 700 AND i < {700 + width} AND j < 2500"))
    batch = many.index(1 << 40, np.arange(size), part.__getitem__)
    for number, width in enumerate([1, 24, 25, 500, 5000]):
        want = np.flatnonzero((values >= 700) & (values < 700 + width))
        assert (batch.matches(2 * number) - (1 << 40)).tolist() == want.tolist()
        want = want[values[::-1][want] < 2500]
        assert (batch.matches(2 * number + 1) - (1 << 40)).tolist() == want.tolist()
        for low in (63, 64, 65, 2500, 4999):
            later = batch.matches(2 * number + 1, (1 << 40) + low) - (1 << 40)
            assert later.tolist() == want[want >= low].tolist()


def test_what_is_dropped_is_let_go():
    many = Selections(Log())
    rng = random.Random(5)
    live: list[int] = []
    before, conditions = 0, [compiled(f"i = {v} AND s = 'word {v}'") for v in range(50)]
    for number in range(1_000 if NO_JIT else 5_000):
        many.add(number, *rng.choice(conditions))
        live.append(number)
        if len(live) > 100:
            many.remove(live.pop(rng.randrange(101)))
        if number == 500:
            before = many.nbytes
    assert len(many) == 100
    assert many.nbytes <= 4 * before


def test_a_number_is_taken_once():
    many = Selections(Log())
    many.add(1, *compiled("i = 1"))
    with pytest.raises(ValueError, match="1 is there"):
        many.add(1, *compiled("i = 2"))
    many.remove(1)
    many.add(1, *compiled("i = 2"))
    with pytest.raises(KeyError):
        many.remove(2)
