"""A text of several statements, sent one by one; errors give their position in the whole text."""

import re
from dataclasses import dataclass
from typing import Literal

from promising.client.calls import text_of
from promising.errors import PromisingError, StatementError

Kind = Literal["select", "read", "define"]

_PLACED = re.compile(r"\A(.*)\nline (\d+), column (\d+):\n  [^\n]*\n[ \t]*\^\Z", re.DOTALL)
_BEGINS = re.compile(r"(?:[\s;]|--[^\n\r]*)*+(/\*|\w+|.?)", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """A statement, its text, and its offset there."""

    sql: str
    kind: Kind
    whole: str
    start: int = 0

    @property
    def explained(self) -> str | None:
        """The statement that counts what this one would remove; None if it removes nothing."""
        found = _BEGINS.match(self.sql)
        assert found is not None
        return f"EXPLAIN {self.sql[found.start(1) :]}" if _first(self.sql) in ("DROP", "ALTER") else None

    def placed(self, problem: PromisingError) -> PromisingError:
        """An error of this statement, positioned in the whole text."""
        found = _PLACED.match(str(problem))
        if self.sql == self.whole or found is None:
            return problem
        told, line, column = found.group(1), int(found.group(2)), int(found.group(3))
        before = 0
        for _ in range(line - 1):
            before = self.sql.find("\n", before) + 1
        whole = StatementError(told, self.whole, self.start + before + column - 1)
        made = type(problem).__new__(type(problem))
        Exception.__init__(made, str(whole))
        made.__dict__.update(vars(problem))
        if isinstance(made, StatementError):
            made.line, made.column = whole.line, whole.column
        return made


def one(sql: str) -> Statement:
    """The single statement of a text, classified by its first word: the service parses it."""
    return Statement(sql, _kind(text_of(sql)), sql)


def many(sql: str) -> list[Statement]:
    """The statements between semicolons. Several are all parsed before the first is sent."""
    if ";" not in sql.strip().strip(";"):
        return [one(sql)] if _first(sql) else []
    from promising.query.sql import offset_of, parse_many  # noqa: PLC0415  # sqlglot: not for a single statement

    starts = [offset_of(node) or 0 for node in parse_many(sql)]
    ends = [*starts[1:], len(sql)][: len(starts)]
    return [Statement(sql[a:b], _kind(sql[a:b]), sql, a) for a, b in zip(starts, ends, strict=True)]


def _kind(sql: str) -> Kind:
    word = _first(sql)
    if word in ("SELECT", "("):
        return "select"
    return "read" if word in ("SHOW", "DESCRIBE", "DESC", "EXPLAIN") else "define"


def _first(sql: str) -> str:
    """The first token besides comments: a word in upper case, or a sign; empty for an empty text.

    >>> _first("-- all of them\\n;(SELECT 1)"), _first("show streams"), _first("/* ; */ Select 1"), _first(" ; ")
    ('(', 'SHOW', 'SELECT', '')
    """
    found = _BEGINS.match(sql)
    assert found is not None
    text: str = found[1]
    if text == "/*":
        from promising.query.sql.tokenizer import scan  # noqa: PLC0415  # as above: comments nest

        text = next((token.text for token in scan(sql) if token.text != ";"), "")
    return text.upper() if text.isascii() else text  # keywords are ASCII only
