"""Texts of statements: what kind each is, where its errors are, and how often it is parsed."""

import asyncio
from pathlib import Path

import pytest
from sqlglot import exp

import promising
import promising.query.sql
from promising.client import aio
from promising.client.scripts import many, one
from promising.errors import BadSyntax, StatementError
from promising.query.sql import LONGEST_KNOWN, dialect, nodes, parse, parse_many
from promising.testing.service import running

SQL = Path(__file__).resolve().parents[2] / "sql"
START = 1_700_000_000_000_000
TEXTS = [
    *(line for line in (SQL / "identity.sql").read_text(encoding="utf-8").splitlines() if line.strip()),
    "select 1 FROM a;",
    " ;;-- SHOW\n\tdesc a",
    "/* a /* b */ SHOW */ (SELECT x FROM a)",
    "Explain SELECT x FROM a -- ;",
]


@pytest.mark.parametrize("sql", TEXTS)
def test_the_first_word_tells_the_kind(sql):
    found = parse_many(sql)
    assert found
    for statement, node in zip(many(sql), found, strict=True):
        expected = "define"
        if isinstance(node, exp.Query):
            expected = "select"
        elif isinstance(node, nodes.Show | nodes.Describe | nodes.Explain):
            expected = "read"
        assert statement.kind == expected
        assert type(parse(statement.sql)) is type(node)
    assert one(sql).kind == many(sql)[0].kind


@pytest.mark.parametrize("sql", ["", " \n", ";; ;", "-- nothing", "/* nothing; */", "/* a */ -- b\n;"])
def test_a_text_without_statements_has_none(sql):
    assert parse_many(sql) == many(sql) == []


def test_of_several_statements_none_is_sent_unless_all_can_be_parsed():
    with pytest.raises(BadSyntax, match="expected a statement") as told:
        many("SHOW STREAMS; SELEC x")
    assert told.value.column == 15


def test_errors_of_one_statement_are_placed_in_the_whole():
    text = "SHOW STREAMS; -- one\n\tSELECT\n x FROM é;DROP STREAM y"
    first, second, third = many(text)
    assert (first.kind, second.kind, third.kind) == ("read", "select", "define")
    assert [s.sql for s in (first, second, third)] == [
        "SHOW STREAMS; -- one\n\t",
        "SELECT\n x FROM é;",
        "DROP STREAM y",
    ]
    for statement, offset in ((second, text.index("x FROM")), (third, text.index("y", 50))):
        inside = offset - statement.start
        told = BadSyntax("wrong", statement.sql, inside)
        whole = BadSyntax("wrong", text, offset)
        found = statement.placed(told)
        assert type(found) is BadSyntax and isinstance(found, StatementError)
        assert (str(found), found.line, found.column) == (str(whole), whole.line, whole.column)
        assert found.problem == "wrong"
    plain = BadSyntax("without a place")
    assert second.placed(plain) is plain


# --- parsed once -------------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch):
    """The texts that are parsed, in the order in which they are; the client and the service are in one process."""
    texts: list[str] = []
    read = dialect.read

    def counted(tokens, sql):
        texts.append(sql)
        return read(tokens, sql)

    monkeypatch.setattr(promising.query.sql, "read", counted)
    promising.query.sql._known.cache_clear()
    yield texts
    promising.query.sql._known.cache_clear()


STATEMENTS = [
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts",
    "CREATE CONTINUOUS QUERY q AS SELECT k FROM s WINDOW 1 HOUR",
    "CREATE TABLE t (k BIGINT, PRIMARY KEY (k))",
    "INSERT INTO t VALUES (1)",
    "SHOW STREAMS",
    "DESCRIBE s",
    "EXPLAIN SELECT k FROM s",
    "EXPLAIN ANALYZE SELECT k FROM s WHERE k > 1",
    "SELECT k FROM s WHERE k > 2",
    f"SELECT k FROM s WHERE k IN ({', '.join(map(str, range(900)))})",
]
assert len(STATEMENTS[-1]) > LONGEST_KNOWN


def test_execute_parses_a_statement_once(parsed):
    with running() as target, promising.connect(target) as session:
        for sql in STATEMENTS:
            session.execute(sql)
    assert parsed == STATEMENTS


def test_execute_of_an_asyncio_session_parses_a_statement_once(parsed):
    async def go(target):
        async with aio.connect(target) as session:
            for sql in STATEMENTS:
                await session.execute(sql)

    with running() as target:
        asyncio.run(go(target))
    assert parsed == STATEMENTS


def test_each_process_parses_several_statements_once(parsed):
    with running() as target, promising.connect(target) as session:
        session.execute_many(";".join(STATEMENTS))
    assert parsed[0] == ";".join(STATEMENTS)  # by the client, before the first is sent
    assert [text.rstrip(";") for text in parsed[1:]] == STATEMENTS


def test_questions_and_subscriptions_parse_a_statement_at_most_once(parsed):
    with running() as target, promising.connect(target) as session:
        session.execute_many(";".join(STATEMENTS[:3]))
        session.ingest("s", {"ts": [START, START + 1], "k": [1, 9]})
        parsed.clear()
        for sql in (*STATEMENTS[-2:], "SELECT count(*) AS n FROM s"):
            session.query(sql).to_arrow()
            assert parsed == [sql]
            parsed.clear()
            session.explain(f"{sql} LIMIT 1")
            assert parsed == [f"{sql} LIMIT 1"]
            parsed.clear()
        asked = [f"{sql} ORDER BY k" for sql in STATEMENTS[-2:]]
        session.query_many(asked)
        assert parsed == asked
        parsed.clear()
        session.query(asked[0]).to_arrow()
        assert parsed == []  # it is known
        with session.subscribe("q") as subscription:
            subscription.poll(None)
            assert subscription.snapshot().num_rows == 2
        assert parsed == []
