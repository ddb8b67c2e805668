"""Splits text into tokens.

Keywords are not classified here: nearly all may also be names, which only the grammar can decide. Invalid characters
and unterminated strings and comments raise BadSyntax with their position.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from sqlglot.tokens import Tokenizer

from promising.errors import BadSyntax, LimitReached

LONGEST_TEXT = 100_000
LONGEST_NUMBER = 400  # in characters: the largest double has 309 digits, and Python refuses to parse thousands

WORD, NUMBER, STRING, QUOTED, SIGN, HINT, END = "word", "number", "string", "quoted", "sign", "hint", "end"
"""Kinds of tokens."""

# Groups that may be absent are not possessive: in Python 3.11.2, Debian's, such a group eats what it began to match.
_TOKEN = re.compile(
    r"""
    (?: \s++ | --[^\n\r]*+ )*+
    (?: (?P<word>    [^\W\d]\w*+ )
      | (?P<number>  (?: [0-9]++ (?:\.[0-9]*+)? | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? )
      | (?P<comment> /\* )
      | (?P<string>  '[^']*+(?:''[^']*+)*+' )
      | (?P<quoted>  "[^"]*+(?:""[^"]*+)*+" )
      | (?P<sign>    <=> | ->> | <> | <= | >= | != | == | \|\| | :: | := | => | -> | \*\* | // | << | >> | !~
                   | [-+*/%×=<>(),.;?@:$\#&|^~\[\]{}!\\] )
      | (?P<end>     \Z )
      | (?P<stray> ) )
    """,
    re.VERBOSE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASKING = ("SELECT", "EXPLAIN", "(")


class Token(NamedTuple):
    """`text` is the content of a string or a quoted name; `start` and `end` are its first and last character."""

    kind: str
    text: str
    start: int
    end: int


def scan(sql: str, most: int | None = None) -> list[Token]:
    """The tokens of a text, in O(length). Comments are skipped, except that `/*+` gives a HINT.

    most: tokens of a query, which is not read further; other statements may have more.
    """
    if len(sql) > LONGEST_TEXT:
        raise BadSyntax(f"a text of {len(sql)} characters; at most {LONGEST_TEXT} are read")
    if not sql.isascii() and (bad := _SURROGATE.search(sql)):
        raise BadSyntax("half a character (a lone surrogate)", sql, bad.start())
    tokens: list[Token] = []
    limit = len(sql) if most is None else most
    match, add, made, at = _TOKEN.match, tokens.append, tuple.__new__, 0
    while True:
        found = match(sql, at)
        assert found is not None  # the last alternative is empty
        kind = found.lastgroup
        assert kind is not None
        start, at = found.span(kind)
        if kind in (WORD, SIGN):
            add(made(Token, (kind, found[kind], start, at - 1)))
        elif kind == END:
            return tokens
        elif kind == "comment":
            at = _comment_end(sql, start)
            if sql.startswith("/*+", start):
                add(Token(HINT, "/*+", start, at - 1))
        elif kind == "stray":
            raise _stray(sql, start)
        else:
            add(_literal(sql, kind, found[kind], start, at))
        if len(tokens) > limit and tokens[0].text.upper() in _ASKING:
            raise LimitReached(
                f"a query of more than {limit:,} tokens (names, numbers and signs); split it, or raise max_sql_tokens"
            )


def _literal(sql: str, kind: str, text: str, start: int, end: int) -> Token:
    """The token of a number, a string or a quoted name."""
    if kind == STRING:
        text = text[1:-1].replace("''", "'")
    elif kind == QUOTED:
        text = text[1:-1].replace('""', '"')
        if not text:
            raise BadSyntax("an empty name", sql, start)
    else:
        if sql[end : end + 1].isidentifier():
            raise BadSyntax(f"a number that runs into a word: '{_run(sql, start)}'", sql, start)
        if len(text) > LONGEST_NUMBER:
            raise BadSyntax(f"a number of more than {LONGEST_NUMBER} characters", sql, start)
    return Token(kind, text, start, end - 1)


def _comment_end(sql: str, start: int) -> int:
    """Where the comment that starts here ends; comments nest."""
    depth, at = 1, start + 2
    while depth:
        stop = sql.find("*/", at)
        if stop < 0:
            raise BadSyntax("a comment without an end", sql, start)
        opened = sql.find("/*", at, stop)
        depth, at = (depth + 1, opened + 2) if opened >= 0 else (depth - 1, stop + 2)
    return at


def _run(sql: str, start: int) -> str:
    end = start
    while end < len(sql) and end < start + 40 and (sql[end].isalnum() or sql[end] in "._"):
        end += 1
    return sql[start:end]


def _stray(sql: str, at: int) -> BadSyntax:
    char = sql[at]
    if char == "'":
        return BadSyntax("a string without an end", sql, at)
    if char == '"':
        return BadSyntax("a quoted name without an end", sql, at)
    shown = f"'{char}'" if char.isprintable() else f"U+{ord(char):04X}"
    return BadSyntax(f"a character that has no meaning here: {shown}", sql, at)


class PromisingTokenizer(Tokenizer):
    def tokenize(self, sql: str) -> Any:
        return scan(sql)  # of our own kind: only our grammar reads them
