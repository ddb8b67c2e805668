"""Damaged statements, executed: a typed error that changes nothing, or an answer that another plan gives as well."""

import math
import random
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp

from promising.errors import PromisingError, StatementError
from promising.query import Session
from promising.query.answers import Answer
from promising.query.sql import generate, parse
from tests.fuzz import world
from tests.fuzz.cases import Broken, Subject, differs, typed
from tests.fuzz.sql_mutations import SEEDS, mutated, number, tokens

OURS = (Path(__file__).parent / "statements.sql").read_text(encoding="utf-8").splitlines()
SELECTS = [text for text in OURS if text.startswith("SELECT")]
COLUMNS = ["ts", "a", "b", "c", "d", "k", "item_id", "price", "name", "n"]
NAMES = [
    *["s", "t", "store1", "names", "watch", "pairs", "u", "q", "s_k", "t_k", "x", "y"],
    *COLUMNS,
    *["count", "sum", "avg", "min", "max", "median", "abs", "floor", "sqrt", "upper", "length", "coalesce", "round"],
]
MOST_FRAMES = 2_000  # of an answer over a few tuples; a budget cuts one after some
MOST_ROWS = world.TUPLES**2
DEEP = 256  # cases between two looks at all that a user can see


def expressions(statements: list[str]) -> list[str]:
    """Every expression in them."""
    found = set()
    for statement in statements:
        for node in parse(statement).find_all(exp.Binary, exp.Unary, exp.Func, exp.Literal, exp.In, exp.Between):
            if not isinstance(node, exp.If):
                found.add(generate(node))
    return sorted(found)


EXPRESSIONS = expressions(OURS)


def graft(rng: random.Random, text: str) -> str:
    """An expression in place of a column or number."""
    found = tokens(text)
    places = [at for at, token in enumerate(found) if token in COLUMNS or token.isdigit()]
    if places:
        found[rng.choice(places)] = f"({rng.choice(EXPRESSIONS)})"
    return "".join(found)


def rename(rng: random.Random, text: str) -> str:
    """A name becomes another of this world."""
    found = tokens(text)
    places = [at for at, token in enumerate(found) if token.lower() in NAMES]
    if places:
        found[rng.choice(places)] = rng.choice(NAMES)
    return "".join(found)


class Statements(Subject):
    """Every statement against one session; a second one with the same tuples summarises them in another way."""

    name: ClassVar[str] = "sql"
    verdicts: ClassVar[dict[str, float]] = {"answered": 0.04, "changed": 0.02, "BadSyntax": 0.1, "NoSuchName": 0.02}

    def __init__(self) -> None:
        self._session = world.session()
        self._other = world.session("none")
        self._content = world.content(self._session)
        self._since = 0

    def input(self, rng: random.Random) -> str:
        if rng.random() < 0.4:
            return mutated(rng, rng.choice(OURS if rng.random() < 0.6 else SEEDS))
        text = rng.choice(OURS if rng.random() < 0.6 else SELECTS)
        for _ in range(rng.choice((1, 1, 2, 3))):  # what is still a statement, mostly
            text = rng.choice((graft, graft, rename, rename, number))(rng, text)
        return text

    def judge(self, given: str) -> str:
        session = self._session
        before = world.state(session)
        try:
            verdict = self._executed(session, given)
        except PromisingError as problem:
            differs(before, world.state(session), "a refused statement")
            verdict = typed(problem)
            if isinstance(problem, StatementError) and problem.line is not None:
                _check_place(problem, given)
        if world.state(session) != before:
            world.content(session)  # what is there now can be read
            self._fresh()
            return "changed"
        self._since += 1
        if self._since >= DEEP:
            differs(self._content, world.content(session), f"one of the last {DEEP} statements")
            self._since = 0
        return verdict

    def __exit__(self, *_: object) -> None:
        self._session.close()
        self._other.close()

    def _fresh(self) -> None:
        world.clear(self._session)
        world.stock(self._session)
        differs(self._content, world.content(self._session), "what was dropped")
        self._since = 0

    def _executed(self, session: Session, sql: str) -> str:
        node = parse(sql)
        if not isinstance(node, exp.Query):
            session.execute(sql)
            return "executed"
        rows = _read(session.query(sql))
        if rows is None or not _is_function(node):
            return "answered in part"
        again = _read(self._other.query(sql))
        _same(rows, again, f"without summaries {sql!r}")
        _same(rows, session.query_many([sql])[0], f"as one of many {sql!r}")
        return "answered"


def _read(answer: Answer) -> pa.Table | None:
    """The rows of a complete answer, within bounds."""
    rows: list[pa.Table] = []
    for frames, frame in enumerate(answer.stream(), 1):
        rows = [frame.rows] if frame.mode == "replace" else [*rows, frame.rows]
        if frames > MOST_FRAMES or sum(part.num_rows for part in rows) > MOST_ROWS:
            raise Broken(f"more than {MOST_FRAMES:,} frames or {MOST_ROWS:,} rows of so few tuples")
    made = pa.concat_tables(rows) if rows else answer.schema.empty_table()
    made.validate(full=True)
    return made if answer.progress.complete else None


def _is_function(node: exp.Query) -> bool:
    """Whether the rows of a statement follow from the tuples alone: not which of many come first."""
    args = node.args
    return args.get("limit") is None and args.get("limit_by") is None and args.get("error") is None


def _same(one: pa.Table, other: pa.Table | None, how: str) -> None:
    if other is None:
        return
    ours, theirs = (sorted(map(_row, table.to_pylist()), key=repr) for table in (one, other))
    if ours != theirs:
        raise Broken(f"{how} has {len(theirs)} other rows:\n  {ours[:5]}\n  {theirs[:5]}")


def _row(row: dict[str, Any]) -> list[Any]:
    """A row to compare: sums of floats depend on their order."""
    return [
        f"{value:.9g}" if isinstance(value, float) and not math.isnan(value) else repr(value) for value in row.values()
    ]


def _check_place(problem: StatementError, sql: str) -> None:
    lines = sql.split("\n")
    assert problem.line is not None and problem.column is not None
    if not (1 <= problem.line <= len(lines) and 1 <= problem.column <= len(lines[problem.line - 1]) + 1):
        raise Broken(f"{problem.line}:{problem.column} is no place in the statement") from problem
