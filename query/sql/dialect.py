"""The dialect `promising`, registered with sqlglot."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser

from promising.errors import BadSyntax, Unsupported
from promising.query.sql.check import check
from promising.query.sql.generator import PromisingGenerator
from promising.query.sql.statement_grammar import Statements
from promising.query.sql.tokenizer import PromisingTokenizer, Token


def read(tokens: list[Token], sql: str) -> list[exp.Expression]:
    """Parse and check the statements of a text."""
    reader = Statements(tokens, sql)
    try:
        found = reader.statements()
    except RecursionError:
        # Our limits are below Python's, unless the caller's stack is deep already.
        raise BadSyntax("nested too deeply", sql, reader.start) from None
    for node in found:
        check(node, sql)
    return found


class PromisingParser(Parser):
    """sqlglot's interface to our grammar; the inherited one is unused."""

    def parse(self, raw_tokens: Any, sql: str) -> list[exp.Expr | None]:
        return list(read(raw_tokens, sql))

    def parse_into(self, expression_types: Any, raw_tokens: Any, sql: str | None = None) -> list[exp.Expr | None]:
        raise Unsupported("only whole statements are read")


class Promising(Dialect):
    Tokenizer = PromisingTokenizer
    Parser = PromisingParser
    Generator = PromisingGenerator
