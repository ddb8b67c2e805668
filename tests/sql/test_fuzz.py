"""Damaged statements: each is a typed error with its place, or a statement that round-trips. Nothing else comes out."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from promising.errors import BadClause, BadSyntax, StatementError, Unsupported
from promising.query.sql import generate, parse, parse_many

HERE = Path(__file__).parent
SEEDS = [
    line.strip()
    for name in ("identity.sql", "spellings.sql")
    for line in (HERE / name).read_text(encoding="utf-8").splitlines()
]
TOKEN = re.compile(r"""\w+|'[^']*'|"[^"]*"|\s+|<>|<=|>=|!=|::|\|\||.""", re.DOTALL)
TYPED = (BadSyntax, Unsupported, BadClause)
ROUNDS, EACH = 20, 500

Mutation = Callable[[random.Random, str], str]


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def delete(rng: random.Random, text: str) -> str:
    found = tokens(text)
    at = rng.randrange(len(found))
    del found[at : at + rng.randint(1, 3)]
    return "".join(found)


def duplicate(rng: random.Random, text: str) -> str:
    found = tokens(text)
    at = rng.randrange(len(found))
    return "".join([*found[: at + 1], " ", *found[at : at + rng.randint(1, 6)], *found[at + 1 :]])


def swap(rng: random.Random, text: str) -> str:
    found = tokens(text)
    one, other = rng.randrange(len(found)), rng.randrange(len(found))
    found[one], found[other] = found[other], found[one]
    return "".join(found)


def replace(rng: random.Random, text: str) -> str:
    """A token of another statement in place of one of this."""
    found = tokens(text)
    found[rng.randrange(len(found))] = rng.choice(tokens(rng.choice(SEEDS)))
    return "".join(found)


def splice(rng: random.Random, text: str) -> str:
    other = rng.choice(SEEDS)
    return text[: rng.randrange(len(text))] + rng.choice(["", " ", ";"]) + other[rng.randrange(len(other)) :]


def noise(rng: random.Random, text: str) -> str:
    """Bytes changed; what is no UTF-8 then becomes lone surrogates."""
    raw = bytearray(text.encode(errors="surrogateescape"))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw))
        raw[at : at + rng.randint(0, 1)] = bytes([rng.choice([rng.randrange(256), rng.choice(b"'\"()*/-.;,\\\n\x00")])])
    return raw.decode(errors="surrogateescape")


def truncate(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text))] if rng.random() < 0.5 else text[rng.randrange(len(text)) :]


NESTS = [
    *[("(", ")"), ("abs(", ")"), ("CAST(", " AS INT)"), ("CASE WHEN a THEN ", " END"), ("x IN (", ")")],
    *[("NOT ", ""), ("- ", ""), ("", "::int"), ("", " IS NULL"), ("a + ", ""), ("a = (", ")")],
    *[("a AND (b OR ", ")"), ("1 - (", ")"), ("-(NOT ", ")")],
]


def nest(rng: random.Random, text: str) -> str:
    """A word or a literal inside of many of the same thing."""
    found = tokens(text)
    places = [i for i, token in enumerate(found) if token[0].isalnum()]
    if not places:
        return text
    at, depth = rng.choice(places), rng.choice([1, 2, 10, 30, 70, 300])
    before, after = rng.choice(NESTS)
    found[at] = before * depth + found[at] + after * depth
    return "".join(found)


MUTATIONS: list[Mutation] = [delete, duplicate, swap, replace, splice, noise, truncate, nest]


def mutated(rng: random.Random) -> str:
    text = rng.choice(SEEDS)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice(MUTATIONS)(rng, text) or "x"
    return text


def fate(text: str) -> str:
    """How a text fares: "read" or the name of the typed error. Anything else is an assertion."""
    try:
        tree = parse(text)
    except TYPED as error:
        assert type(error) in TYPED
        assert error.problem
        assert error.line is not None and error.column is not None
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        return type(error).__name__
    canonical = generate(tree)
    again = parse(canonical)
    assert again == tree, canonical
    assert generate(again) == canonical
    assert parse(generate(tree, pretty=True)) == tree
    return "read"


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_damaged_statements(seed):
    rng = random.Random(seed)
    fates: dict[str, int] = {}
    for number in range(EACH):
        text = mutated(rng)
        try:
            name = fate(text)
        except Exception as problem:
            raise AssertionError(f"seed {seed}, statement {number}: {text!r}") from problem
        fates[name] = fates.get(name, 0) + 1
    # The damage is neither so small nor so great that nothing is tried.
    assert fates["read"] > EACH / 20
    assert fates["BadSyntax"] > EACH / 4
    assert fates["Unsupported"] > 5


def test_ten_thousand():
    assert ROUNDS * EACH >= 10_000


def test_several_statements_fare_as_each_alone():
    rng = random.Random(7)
    for _ in range(300):
        texts = [mutated(rng) for _ in range(3)]
        try:
            found = parse_many(";".join(texts))
        except StatementError as error:
            assert type(error) in TYPED
            continue
        assert parse_many(";\n".join(generate(tree) for tree in found)) == found
