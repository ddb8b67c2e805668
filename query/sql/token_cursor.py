"""A cursor over tokens: the base of the grammar."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from sqlglot import exp

from promising.errors import BadClause, BadSyntax, StatementError, Unsupported
from promising.query.sql import tokenizer
from promising.query.sql.tokenizer import Token
from promising.query.sql.words import RESERVED

E = TypeVar("E", bound=exp.Expression)

DEEPEST = 64  # maximum height of a tree, and nesting of parentheses and calls

NUMBER, STRING, QUOTED, HINT, END = "0", "'", '"', "/*+", ""
"""Values of `word` for tokens that are neither words nor signs."""

_PLACES = {tokenizer.NUMBER: NUMBER, tokenizer.STRING: STRING, tokenizer.QUOTED: QUOTED}


def placed(node: E, start: int) -> E:
    """Records where the text of a node begins."""
    node.meta["start"] = start
    return node


def leaf(kind: type[E], args: dict[str, object], start: int) -> E:
    """A node without children and its place: what the constructor makes, in a third of its time."""
    node = kind.__new__(kind)
    node.args, node._meta = args, {"start": start}
    node.parent = node.arg_key = node.index = node.comments = node._type = node._hash = None
    return node


class TokenCursor:
    """`word` is the next token: a word in upper case, a sign, or the kind of a literal."""

    def __init__(self, tokens: list[Token], sql: str) -> None:
        self.sql = sql
        end = tokens[-1].end + 1 if tokens else len(sql)
        self.tokens = [*tokens, Token(tokenizer.END, "", end, end)]
        places = _PLACES
        self.words = [places.get(kind) or (text.upper() if text.isascii() else text) for kind, text, _, _ in tokens]
        self.words += (END, END)  # the second to peek at
        self.at = 0
        self.word = self.words[0]

    @property
    def start(self) -> int:
        return self.tokens[self.at].start

    def peek(self, ahead: int = 1) -> str:
        at = self.at + ahead
        return self.words[at] if at < len(self.words) else END

    def advance(self) -> Token:
        """Consumes and returns the next token; never passes the end."""
        token = self.tokens[self.at]
        if self.word != END:
            self.at += 1
            self.word = self.words[self.at]
        return token

    def take(self, word: str) -> bool:
        """Consumes this word if it is next; returns whether it was."""
        if self.word != word:
            return False
        self.advance()
        return True

    def take_all(self, *words: str) -> bool:
        """Consumes these words if they are next; returns whether they were."""
        if any(self.peek(i) != word for i, word in enumerate(words)):
            return False
        for _ in words:
            self.advance()
        return True

    def expect(self, word: str, more: str = "") -> Token:
        """Consumes this word, or fails; `more` completes the message."""
        if self.word != word:
            self.unexpected(f"{word} {more}".rstrip())
        return self.advance()

    def is_word(self) -> bool:
        return self.tokens[self.at].kind == tokenizer.WORD

    def at_name(self) -> bool:
        """Whether the next token can be a name: quoted, or a word that is not reserved."""
        return self.word == QUOTED or (self.word not in RESERVED and self.is_word())

    def name(self, what: str) -> exp.Identifier:
        if not self.at_name():
            if self.is_word():
                self.fail(BadSyntax, f'{self.word} is a reserved word; as {what} write it in quotes: "{self.shown()}"')
            self.unexpected(what)
        return self.identifier()

    def identifier(self) -> exp.Identifier:
        """The next token as a name, even if reserved."""
        token = self.advance()
        return leaf(exp.Identifier, {"this": token.text, "quoted": token.kind == tokenizer.QUOTED}, token.start)

    def shown(self) -> str:
        """The next token as written, truncated."""
        token = self.tokens[self.at]
        text = self.sql[token.start : token.end + 1]
        return text if len(text) <= 30 else text[:27] + "..."

    def unexpected(self, wanted: str) -> NoReturn:
        """Fails at the next token, where `wanted` was expected."""
        if self.word == HINT:
            self.refuse("a hint")
        found = "the end" if self.word == END else self.shown()
        self.fail(BadSyntax, f"expected {wanted}, found {found}")

    def refuse(self, construct: str, start: int | None = None) -> NoReturn:
        """Fails because the construct is recognized but not supported."""
        self.fail(Unsupported, f"{construct} is not supported", start)

    def misplaced(self, message: str, start: int | None = None) -> NoReturn:
        self.fail(BadClause, message, start)

    def fail(self, kind: type[StatementError], message: str, start: int | None = None) -> NoReturn:
        raise kind(message, self.sql, self.start if start is None else start)
