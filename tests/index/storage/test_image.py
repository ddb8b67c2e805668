"""An image is read as it was written, or not at all."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from promising.errors import DataDamaged, NewerFormat, StorageFull
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import Disk
from promising.index.storage.image import ALIGNMENT, TOP, VERSION, read_image, write_image

PATH = Path("some.image")
TREE: Any = {
    "rows": np.arange(17),
    "$array": {"$bytes": b"abc", "$$": 1},
    "zones": [
        {"counts": np.arange(12, dtype=np.uint16).reshape(3, 4), "name": "Ünï\0code", "open": True},
        {"counts": np.zeros((0, 5), np.float32), "name": "", "open": None},
    ],
    "floats": [0.1, -0.0, math.inf, -math.inf, math.nan],
    "bytes": [b"", b"\0" * 70, b"x"],
    "large": 1 << 200,
    "scalar": np.array(2.5),
    "none": {},
}


class Memory(Disk):
    """A disk of one file."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        return self.data[offset:] if length < 0 else self.data[offset : offset + length]

    def write_whole(self, path: Path, parts: Any) -> int:
        self.data = b"".join(parts)
        return len(self.data)


def written(tree: Any) -> bytes:
    memory = Memory()
    assert write_image(memory, PATH, tree) == len(memory.data)
    return memory.data


def read(data: bytes) -> Any:
    return read_image(Memory(data), PATH)


def same(one: Any, other: Any) -> bool:
    """Alike in type and bits."""
    if isinstance(one, np.ndarray):
        alike = isinstance(other, np.ndarray) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return isinstance(other, float) and struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and bool(one == other)


dtypes = st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes())
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | arrays
    | arrays.map(np.transpose)
)
keys = st.text(max_size=5) | st.sampled_from(["$", "$array", "$bytes", "$float", "$$array"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


@given(st.dictionaries(keys, values, max_size=5))
def test_a_tree_comes_back(tree):
    data = written(tree)
    assert same(read(data), tree)
    assert written(tree) == data


def test_a_tree_comes_back_from_a_real_disk(tmp_path):
    path = tmp_path / "a.image"
    assert write_image(Disk(), path, TREE) == path.stat().st_size
    assert same(read_image(Disk(), path), TREE)
    assert path.read_bytes() == written(TREE)


def test_a_nan_keeps_its_bits():
    (odd,) = struct.unpack("<d", bytes.fromhex("010000000000f4ff"))
    assert struct.pack("<d", read(written({"x": odd}))["x"]).hex() == "010000000000f4ff"


def test_arrays_are_aligned_in_the_file_and_cannot_be_written():
    data = written({str(n): np.full(n, 1, np.uint8) for n in range(1, 200, 13)})
    start = np.frombuffer(data, np.uint8).ctypes.data
    for array in read(data).values():
        assert (array.ctypes.data - start) % ALIGNMENT == 0
        assert not array.flags.writeable
    assert len(data) % ALIGNMENT == 0


def test_every_flipped_bit_is_found():
    data = bytearray(written(TREE))
    for byte in range(len(data)):
        for bit in range(8):
            data[byte] ^= 1 << bit
            with pytest.raises(DataDamaged, match=r"some\.image"):
                read(bytes(data))
            data[byte] ^= 1 << bit


def test_every_cut_and_any_addition_is_found():
    data = written(TREE)
    for length in range(len(data)):
        with pytest.raises(DataDamaged, match=r"some\.image"):
            read(data[:length])
    with pytest.raises(DataDamaged, match="something was added"):
        read(data + b"\0")


def test_damage_names_the_part():
    data = bytearray(written({"zones": [{"counts": np.full(100, 7)}, {"counts": np.full(100, 8)}]}))
    data[-9] ^= 1
    with pytest.raises(DataDamaged, match=r"some\.image: zones\[1\]\.counts \(800 bytes from byte \d+\)"):
        read(bytes(data))
    data = bytearray(written({"sketch": b"abc"}))
    data[-ALIGNMENT] ^= 1
    with pytest.raises(DataDamaged, match="its byte strings"):
        read(bytes(data))


def test_a_newer_format_is_told_from_damage():
    data = written({"a": 1})
    magic, version, length, total, _ = TOP.unpack_from(data)
    top = TOP.pack(magic, version + 1, length, total, 0)[:-4]
    newer = top + crc32c(top, data[TOP.size :]).to_bytes(4, "little") + data[TOP.size :]
    with pytest.raises(NewerFormat, match=f"format {VERSION + 1}; this release reads up to {VERSION}"):
        read(newer)


def test_another_file_is_no_image():
    with pytest.raises(DataDamaged, match="is no image: it starts with b'PAR1PAR1'"):
        read(b"PAR1" * 100)


def test_a_missing_file_is_damage(tmp_path):
    with pytest.raises(DataDamaged, match=r"gone\.image"):
        read_image(Disk(), tmp_path / "gone.image")


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    class Full(Disk):
        def write(self, handle: Any, parts: Any) -> None:
            super().write(handle, [b"".join(parts)[:100]])
            raise StorageFull("no space")

    path = tmp_path / "a.image"
    write_image(Disk(), path, {"a": 1})
    with pytest.raises(StorageFull):
        write_image(Full(), path, TREE)
    assert read_image(Disk(), path) == {"a": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["a.image"]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"a": {"b": (1, 2)}}, r"cannot hold tuple \(a\.b\)"),
        ({"a": [np.int64(1)]}, r"cannot hold int64 \(a\[0\]\)"),
        ({"a": np.array(["x", 1], object)}, r"cannot hold an array of object \(a\)"),
        ({"a": {1: 2}}, r"a string, not int \(a\)"),
        ({1: 2}, r"a string, not int \(the root\)"),
        (7j, r"cannot hold complex \(the root\)"),
    ],
)
def test_what_an_image_cannot_hold_is_refused(tree, said):
    memory = Memory()
    with pytest.raises(TypeError, match=said):
        write_image(memory, PATH, tree)
    assert memory.data == b""


def test_the_header_is_plain_json():
    data = written({"a": np.arange(3, dtype=np.int16), "b": b"xy"})
    length = TOP.unpack_from(data)[2]
    header = json.loads(data[TOP.size : TOP.size + length])
    assert header["tree"] == {"a": {"$array": 0}, "b": {"$bytes": [0, 2]}}
    assert header["arrays"][0][:2] == ["<i2", [3]]
    start = TOP.size + length + ALIGNMENT  # the byte strings come first
    assert start % ALIGNMENT == 0
    assert np.frombuffer(data, "<i2", 3, start).tolist() == [0, 1, 2]


HEADERS = {
    "no JSON": b"{",
    "no UTF-8": b'{"tree": "\xff"}',
    "a list": b"[]",
    "no arrays": b'{"tree": {}, "bytes": [0, 0]}',
    "an array of what is none": b'{"tree": {}, "bytes": [0, 0], "arrays": [["<", [1], 0]]}',
    "an array of a comma": b'{"tree": {}, "bytes": [0, 0], "arrays": [[",", [1], 0]]}',
    "an array of objects": b'{"tree": {}, "bytes": [0, 0], "arrays": [["|O", [1], 0]]}',
    "an array of fewer than none": b'{"tree": {}, "bytes": [0, 0], "arrays": [["<i8", [-1], 0]]}',
    "an array that is not there": b'{"tree": {"a": {"$array": 7}}, "bytes": [0, 0], "arrays": []}',
    "a tree that is a number": b'{"tree": 1, "bytes": [0, 0], "arrays": []}',
    "deep": b'{"tree": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_nobody_writes_is_damage_although_its_checksum_agrees(name):
    """A package of a load has images, and is made elsewhere."""
    header = HEADERS[name]
    top = TOP.pack(b"ptimage\n", VERSION, len(header), TOP.size + len(header), 0)[:-4]
    data = top + crc32c(top, header).to_bytes(4, "little") + header
    with pytest.raises(DataDamaged, match="the header is not that of an image"):
        read(data)
