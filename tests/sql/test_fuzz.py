"""Damaged statements: each is a typed error with its place, or a statement that round-trips. Nothing else comes out."""

import random

import pytest

from promising.errors import BadClause, BadSyntax, StatementError, Unsupported
from promising.query.sql import generate, parse, parse_many
from tests.fuzz.sql_mutations import SEEDS, mutated

TYPED = (BadSyntax, Unsupported, BadClause)
ROUNDS, EACH = 20, 500


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
        text = mutated(rng, rng.choice(SEEDS))
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
        texts = [mutated(rng, rng.choice(SEEDS)) for _ in range(3)]
        try:
            found = parse_many(";".join(texts))
        except StatementError as error:
            assert type(error) in TYPED
            continue
        assert parse_many(";\n".join(generate(tree) for tree in found)) == found
