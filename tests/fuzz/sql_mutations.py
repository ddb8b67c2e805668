"""Statements that are damaged as people and programs damage them: by tokens, and by characters."""

import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "sql"
SEEDS = [
    line.strip()
    for name in ("identity.sql", "spellings.sql")
    for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()
]
TOKEN = re.compile(r"""\w+|'[^']*'|"[^"]*"|\s+|<>|<=|>=|!=|::|\|\||.""", re.DOTALL)

Mutation = Callable[[random.Random, str], str]


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


# --- by tokens ---------------------------------------------------------------------------------------------------


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


NUMBERS = [
    *["0", "-0", "1", "-1", "00", "0.1", "1e0", ".5", "2147483648", "9223372036854775807", "9223372036854775808"],
    *["-9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e18", "1e19", "1e308", "1e309"],
    *["-1e309", "1e-400", "9" * 400, "1." + "0" * 400 + "1", "1e999999999", "4.9e-324", "'NaN'::double"],
    *["'inf'::double", "NULL", "TRUE", "''", "TIMESTAMP '9999-12-31'", "INTERVAL '1e300' DAY", "0x1F", "1_000"],
]


def number(rng: random.Random, text: str) -> str:
    """A number becomes one at the end of a range, or past it; or any word does."""
    found = tokens(text)
    places = [i for i, token in enumerate(found) if token[0].isdigit()]
    if not places or rng.random() < 0.05:
        places = [i for i, token in enumerate(found) if token[0].isalnum()]
    if places:
        found[rng.choice(places)] = rng.choice(NUMBERS)
    return "".join(found)


CLAUSES = re.compile(
    r"\b(WHERE|GROUP BY|HAVING|ORDER BY|WITH (?:PREFERENCE|ERROR)|FADE|WINDOW|BUDGET|LIMIT|OPTIONS|KEEP|JOIN)\b"
)


def clause(rng: random.Random, text: str) -> str:
    """A clause is repeated, moved or taken from another statement."""
    starts = [0, *(found.start() for found in CLAUSES.finditer(text)), len(text)]
    parts = [text[one:other] for one, other in pairwise(starts)]
    other = rng.choice(SEEDS)
    found = CLAUSES.search(other)
    way = rng.randrange(3)
    if way == 0 or (way == 1 and len(parts) < 2):
        parts.insert(rng.randint(1, len(parts)), f" {rng.choice(parts[1:] or parts)} ")
    elif way == 1:
        parts.append(" " + parts.pop(rng.randrange(1, len(parts))))
    elif found is not None:
        parts.insert(rng.randint(1, len(parts)), f" {other[found.start() :]} ")
    return "".join(parts)


def widen(rng: random.Random, text: str) -> str:
    """What stands beside a comma, or a word, many times over."""
    found = tokens(text)
    commas = [i for i, token in enumerate(found) if token == "," and 0 < i < len(found) - 2]
    if not commas:
        return duplicate(rng, text)
    at = rng.choice(commas)
    return "".join([*found[:at], "".join(found[at : at + 3]) * rng.choice([2, 5, 40, 400]), *found[at:]])


# --- by characters -----------------------------------------------------------------------------------------------


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


SIGNS = [
    *[
        "\0",
        "\u00a0",
        "\u200b",
        "\u202e",
        "\ufeff",
        "é",
        "e\u0301",
        "ß",
        "İ",
        "ſ",
        "\U0001f600",
        "\U0010ffff",
        "٣",
        "²",
    ],
    *["＇", "“", "\u2028", "\r", "\t", "\x1b[31m", "/*", "*/", "--", "/* x */", "-- x\n", "/*/**/*/", "$$", "\\", "%"],
    *["'", '"', "`", ";", "(", ")", "[", "{", "::", "@", "?", ":x", "$1", "#", "~", "^", "!", "=>", "->", "*"],
]


def sign(rng: random.Random, text: str) -> str:
    """A sign that lexers fall over: of another script, a comment, a quote."""
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(SIGNS) + text[at:]


MUTATIONS: list[Mutation] = [
    *[delete, duplicate, swap, replace, nest, number, clause, widen],
    *[splice, noise, truncate, sign],
]


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice(MUTATIONS)(rng, text) or "x"
    return text
