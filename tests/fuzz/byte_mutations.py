"""Damage to bytes, as disks, networks and attackers do it; of files, messages and tokens alike."""

import random
import struct
from collections.abc import Callable, Sequence

PAGE = 512
SIZES = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}

Mutation = Callable[[random.Random, bytearray], str]
"""Changes bytes, at least one of them given, in place; returns what was done, in words."""


def flip(rng: random.Random, data: bytearray) -> str:
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    data[at] ^= 1 << bit
    return f"bit {bit} of byte {at} of {len(data)} flipped"


def truncate(rng: random.Random, data: bytearray) -> str:
    at = rng.randrange(len(data))
    had = len(data)
    del data[at:]
    return f"cut off at byte {at} of {had}"


def zero(rng: random.Random, data: bytearray) -> str:
    start = rng.randrange(len(data)) // PAGE * PAGE
    data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    return f"zeros from byte {start} on for {PAGE}"


def number(rng: random.Random, data: bytearray) -> str:
    """An aligned number becomes another: an extreme, or a near one."""
    size = rng.choice([size for size in SIZES if size <= len(data)])
    at = rng.randrange(len(data) - size + 1) // size * size
    (was,) = struct.unpack_from(SIZES[size], data, at)
    most = 1 << 8 * size
    near = was + rng.choice((-8, -2, -1, 1, 2, 8))
    value = rng.choice((0, 1, most - 1, most >> 1, (most >> 1) - 1, rng.randrange(most), near, near)) % most
    struct.pack_into(SIZES[size], data, at, value)
    return f"{value} instead of {was} in {size} bytes from byte {at} on"


def span(rng: random.Random, data: bytearray) -> tuple[int, int]:
    """The start and length of some bytes, mostly few and aligned."""
    start = rng.randrange(len(data)) // rng.choice((1, 8, 8)) * rng.choice((1, 8))
    start = min(start, len(data) - 1)
    return start, rng.choice((1, 4, 8, 16, 64, rng.randint(1, len(data))))


def remove(rng: random.Random, data: bytearray) -> str:
    start, length = span(rng, data)
    del data[start : start + length]
    return f"{length} bytes from byte {start} on removed"


def repeat(rng: random.Random, data: bytearray) -> str:
    start, length = span(rng, data)
    data[start:start] = data[start : start + length]
    return f"{length} bytes from byte {start} on repeated"


def move(rng: random.Random, data: bytearray) -> str:
    start, length = span(rng, data)
    taken = data[start : start + length]
    del data[start : start + length]
    to = rng.randint(0, len(data))
    data[to:to] = taken
    return f"{length} bytes from byte {start} on moved to byte {to}"


def noise(rng: random.Random, data: bytearray) -> str:
    start, length = span(rng, data)
    some = rng.randbytes(min(length, 64))
    data[start : start + len(some)] = some
    return f"{len(some)} random bytes from byte {start} on"


ALL: Sequence[Mutation] = (flip, flip, flip, number, number, number, truncate, zero, remove, repeat, move, noise)


def mutated(rng: random.Random, data: bytes, ways: Sequence[Mutation] = ALL) -> tuple[bytes, str]:
    """With one damage or a few, and what they were."""
    changed, done = bytearray(data), []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        if changed:
            done.append(rng.choice(ways)(rng, changed))
    return bytes(changed), "; ".join(done)
