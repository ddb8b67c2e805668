"""Ten thousand continuous queries come and go in any order while tuples arrive; in the end nothing is left of them."""

import random
from typing import Any

import numpy as np
import pytest

from promising.errors import PromisingError
from promising.query import Session

QUERIES = 10_000
STANDING = 60  # at a time, about
SECOND = 1_000_000


@pytest.mark.deep("ten thousand queries")
def test_ten_thousand_queries_come_and_go():
    rng = random.Random(7)
    session = Session(clock=lambda: 1 << 60, seed=3)
    for name in ("a", "b"):
        columns = "id BIGINT, k BIGINT, f DOUBLE, w VARCHAR, ts TIMESTAMP"
        session.execute(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts")
    session.execute("CREATE TABLE items (k BIGINT, label VARCHAR, PRIMARY KEY (k))")
    session.execute("INSERT INTO items VALUES " + ", ".join(f"({k}, 'label {k}')" for k in range(50)))
    standing: list[str] = []
    watched: dict[str, Any] = {}
    clock, shown = 0, 0
    for number in range(QUERIES):
        name = f"q{number}"
        session.execute(f"CREATE CONTINUOUS QUERY {name} AS {_statement(rng)}")
        standing.append(name)
        if rng.random() < 0.05:
            watched[name] = session.subscribe(name)
        while len(standing) > rng.randrange(2 * STANDING):
            gone = standing.pop(rng.randrange(len(standing)))
            session.execute(f"DROP CONTINUOUS QUERY {gone}")
            if (left := watched.pop(gone, None)) is not None:
                with pytest.raises(PromisingError):
                    left.poll()
                left.close()
        if number % 20 == 0:
            clock += SECOND // 4
            session.ingest(rng.choice("ab"), _tuples(rng, clock, rng.choice((1, 10, 100))))
            session.standing.tick()
        if number % 100 == 0:
            for name, subscription in watched.items():
                subscription.poll()
                shown += len(subscription)
                assert subscription.schema is not None, name
    assert shown > 100
    most = session.standing.nbytes
    for name in standing:
        session.execute(f"DROP CONTINUOUS QUERY {name}")
    session.standing.tick()
    assert len(session.standing) == 0
    assert session.standing.status() == []
    assert session.standing.nbytes < min(most, 4096)
    session.close()


def _statement(rng: random.Random) -> str:
    window = f"WINDOW {rng.choice((1, 5, 20))} SECONDS"
    k, f = rng.randrange(50), rng.random()
    pick = rng.random()
    if pick < 0.5:
        return f"SELECT id, f FROM a WHERE k = {k} {window}"
    if pick < 0.7:
        return f"SELECT id FROM b WHERE f BETWEEN {f} AND {f + 0.1} {window}"
    if pick < 0.85:
        return f"SELECT id FROM a WHERE w = 'word {k}' AND f > {f} {window}"
    if pick < 0.9:
        return f"SELECT a.id, b.id FROM a, b WHERE a.k = b.k AND a.k < {k} {window}"
    return rng.choice(
        (
            f"SELECT k, count(*), max(f) FROM a WHERE k < {k} GROUP BY k {window}",
            f"SELECT DISTINCT k FROM b WHERE k < {k} {window}",
            f"SELECT k FROM a WHERE k < {k} {window} EXCEPT SELECT k FROM b {window}",
            f"SELECT k FROM a WHERE k < {k} {window} INTERSECT ALL SELECT k FROM b {window}",
            f"SELECT id FROM a WHERE k < {k} AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) {window}",
            f"SELECT a.id, items.label FROM a, items WHERE a.k = items.k AND a.k < {k} {window}",
            f"SELECT id FROM a WHERE k = {k} {window} UNION ALL SELECT id FROM b WHERE k = {k} {window}",
        )
    )


def _tuples(rng: random.Random, clock: int, size: int) -> dict[str, Any]:
    draw = np.random.default_rng(rng.randrange(1 << 30))
    return {
        "id": np.arange(size),
        "k": draw.integers(0, 50, size),
        "f": draw.random(size),
        "w": [f"word {k}" for k in draw.integers(0, 50, size)],
        "ts": clock + draw.integers(0, SECOND // 4, size),
    }
