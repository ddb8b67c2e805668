"""A statement that was read lately is not read again; its tree must be as it was, whatever was done with it."""

import numpy as np
import pytest

import promising
from promising.errors import BadSyntax, NoSuchName
from promising.query.sql import LONGEST_KNOWN, generate, parse, parse_known

START = 1_700_000_000_000_000
STATEMENTS = [
    "SELECT * FROM a",
    "SELECT x.*, y.price AS p FROM a x, b y WHERE x.item = y.item AND x.price > 1",
    "SELECT item, count(*) AS n, avg(price) FROM a GROUP BY item HAVING count(*) > 1 ORDER BY n DESC, item LIMIT 3",
    "SELECT item % 3 AS k, sum(price) FROM a WHERE NOT (price BETWEEN 1 AND 2 OR item IN (1, 2)) GROUP BY k",
    "SELECT price FROM a WHERE item = 3 ORDER BY price WINDOW 1 HOUR",
    "SELECT a.item FROM a JOIN b ON a.item = b.item"
    " WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item) FADE FACTOR 0.8 WINDOW 1 HOUR BUDGET 1 SECOND",
    "SELECT avg(price) AS mean FROM a WHERE price > 0 WITH ERROR 0.5",
]


@pytest.fixture
def session():
    with promising.open(seed=7) as made:
        rng = np.random.default_rng(1)
        for name in ("a", "b"):
            made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
            made.execute(
                f"CREATE SUMMARY {name}_items ON {name} (item) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)"
            )
            made.ingest(
                name, {"ts": START + np.arange(50), "item": rng.integers(0, 9, 50), "price": rng.normal(2, 1, 50)}
            )
        yield made


@pytest.mark.parametrize("sql", STATEMENTS)
def test_what_is_done_with_a_statement_leaves_its_tree_as_it_was(session, sql):
    fresh = parse(sql)
    first = session.query(sql).to_arrow()
    session.explain(sql, analyze=True)
    (many,) = session.query_many([sql])
    tree = parse_known(sql)
    assert parse_known(sql) is tree
    assert tree == fresh
    assert generate(tree) == generate(fresh)
    assert sorted(map(str, session.query(sql).to_arrow().to_pylist())) == sorted(map(str, first.to_pylist()))
    assert sorted(map(str, many.to_pylist())) == sorted(map(str, first.to_pylist()))


def test_a_known_statement_means_what_its_names_mean_by_now(session):
    assert session.query("SELECT * FROM a").to_arrow().num_rows == 50
    session.execute("DROP STREAM a CASCADE")
    with pytest.raises(NoSuchName):
        session.query("SELECT * FROM a")
    session.execute("CREATE STREAM a (ts TIMESTAMP, word TEXT) TIMESTAMP BY ts")
    assert session.query("SELECT * FROM a").to_arrow().column_names == ["ts", "word"]


def test_what_cannot_be_read_is_refused_each_time_and_what_is_long_is_not_kept():
    for _ in range(2):
        with pytest.raises(BadSyntax):
            parse_known("SELECT FROM")
    long = "SELECT item FROM a WHERE item IN (" + ", ".join(map(str, range(LONGEST_KNOWN))) + ")"
    assert parse_known(long) is not parse_known(long)
    assert parse_known(long) == parse(long)
