"""The SQL dialect. `parse(generate(tree)) == tree` for every parsed tree.

`parse` raises only BadSyntax, Unsupported and BadClause, each with its position, and LimitReached.
"""

from __future__ import annotations

from functools import cache, lru_cache

from sqlglot import exp
from sqlglot.generator import Generator

from promising.errors import BadSyntax
from promising.query.sql.check import offset_of
from promising.query.sql.dialect import Promising, read
from promising.query.sql.tokenizer import scan

__all__ = ["MOST_TOKENS", "generate", "offset_of", "parse", "parse_known", "parse_many"]

MOST_TOKENS = 1 << 12  # of a query, by default: what can be parsed in about 10 ms
KNOWN = 256  # parsed statements that are cached
LONGEST_KNOWN = 2048  # characters of a cached statement

_dialect = Promising()


def parse(sql: str, most: int | None = None) -> exp.Expression:
    """The single statement of a text; a final semicolon is allowed. most: tokens of a query."""
    found = parse_many(sql, most)
    if not found:
        raise BadSyntax("no statement", sql, 0)
    if len(found) > 1:
        raise BadSyntax("a second statement; one is read at a time", sql, offset_of(found[1]))
    return found[0]


def parse_known(sql: str, most: int | None = None) -> exp.Expression:
    """`parse` with a cache, for callers that do not modify the tree."""
    return _known(sql, most) if len(sql) <= LONGEST_KNOWN else parse(sql, most)


@lru_cache(KNOWN)
def _known(sql: str, most: int | None) -> exp.Expression:
    return parse(sql, most)


def parse_many(sql: str, most: int | None = None) -> list[exp.Expression]:
    """The statements of a text, separated by semicolons. Positions are those in the whole text."""
    return read(scan(sql, most), sql)


def generate(node: exp.Expr, pretty: bool = False) -> str:
    """The text of a tree; `pretty` puts each clause on its own line."""
    return _generator(pretty).generate(node)


@cache
def _generator(pretty: bool) -> Generator:
    """It has no state of its own, so all threads share it."""
    return _dialect.generator(pretty=pretty)
