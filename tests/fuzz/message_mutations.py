"""Protobuf messages with fields that say something else, found by reflection; and their bytes, damaged."""

import math
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from tests.fuzz.byte_mutations import mutated

INTS = {
    Field.TYPE_INT32: (32, True),
    Field.TYPE_SINT32: (32, True),
    Field.TYPE_SFIXED32: (32, True),
    Field.TYPE_INT64: (64, True),
    Field.TYPE_SINT64: (64, True),
    Field.TYPE_SFIXED64: (64, True),
    Field.TYPE_UINT32: (32, False),
    Field.TYPE_FIXED32: (32, False),
    Field.TYPE_UINT64: (64, False),
    Field.TYPE_FIXED64: (64, False),
}
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e18, 1e19, 1e308, math.inf, -math.inf, math.nan]
TEXTS = [
    *[
        "",
        " ",
        "s",
        "S",
        "s_k",
        "watch",
        "names",
        "nobody",
        "a b",
        '"',
        "'",
        "s;",
        "--",
        "\0",
        "é",
        "e\u0301",
        "😀",
        "\u202e",
    ],
    *["s" * 200, "x" * 70_000, "(" * 1000, "../../etc/passwd", "%s", "{}", "k", "ts", "1", "NaN", "[]"],
]
MANY = 300  # of a repeated field


def value(rng: random.Random, field: Any) -> Any:
    """A value of a field's type, mostly at an end of its range."""
    if field.type in INTS:
        bits, signed = INTS[field.type]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        near = [0, 1, 2, 7, 1000, 1 << 20, 1 << 31, 1_000_000_000, -1, -1_000_000_000, 253_402_300_800, 1 << 61]
        return min(max(rng.choice([low, low + 1, high - 1, high, *near, *near]), low), high)
    if field.type in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT):
        return rng.choice(FLOATS)
    if field.type == Field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == Field.TYPE_ENUM:
        return rng.choice([*(known.number for known in field.enum_type.values), -1, 77, (1 << 31) - 1])
    if field.type == Field.TYPE_STRING:
        return rng.choice(TEXTS)
    return rng.choice([b"", b"\0", rng.randbytes(rng.choice((1, 8, 100, 3000)))])


def change(rng: random.Random, message: Message) -> None:
    """Give one field, at any depth, another value, or none, or more."""
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field: Any = rng.choice(list(fields))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entries = getattr(message, field.name)
        key, content = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        entries[value(rng, key)] = value(rng, content)
    elif field.is_repeated:
        _lengthen(rng, getattr(message, field.name), field)
    elif field.message_type is not None:
        if rng.random() < 0.2:
            message.ClearField(field.name)
        else:
            inner = getattr(message, field.name)
            inner.SetInParent()
            change(rng, inner)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, value(rng, field))


def _lengthen(rng: random.Random, found: Any, field: Any) -> None:
    way = rng.randrange(4)
    if way == 0 and len(found):
        del found[rng.randrange(len(found))]
    elif way == 1 and len(found):
        for _ in range(rng.choice((1, MANY))):
            found.append(found[rng.randrange(len(found))])
    elif field.message_type is not None:
        change(rng, found.add() if way == 2 or not len(found) else found[rng.randrange(len(found))])
    elif way == 2 or not len(found):
        found.append(value(rng, field))
    else:
        found[rng.randrange(len(found))] = value(rng, field)


UNKNOWN = [b"\xf8\x7f\x01", b"\xfa\x7f\x03abc", b"\xfb\x7f\xfc\x7f", b"\xfa\x7f\xff\xff\xff\xff\x07", b"\x00", b"\x0b"]


def damaged(rng: random.Random, message: Message, other: Message) -> bytes:
    """The bytes of a message, by fields or by bytes. other: one of the same type, to be mixed in."""
    made = type(message)()
    made.CopyFrom(message)
    if rng.random() < 0.7:
        for _ in range(rng.choice((1, 1, 2, 3))):
            change(rng, made)
    data = bytes(made.SerializeToString())
    way = rng.random()
    if way < 0.1:
        data += bytes(other.SerializeToString())  # each field twice, and both sides of a choice
    elif way < 0.2:
        data += rng.choice(UNKNOWN)
    elif way < 0.4 and data:
        data, _ = mutated(rng, data)
    return data
