"""Kernels of the string functions. Characters are code points."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from promising.query.scalar.compiled import Value
from promising.query.scalar.types import ARROW

_TEXT: Final = ARROW["string"]
# Unicode space separators, which exclude tabs and line ends.
SPACES: Final = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_FARTHEST: Final = 2**40


def trim(text: Value) -> Value:
    return pc.utf8_trim(text, SPACES)


def slicer(start: int, length: int | None) -> Callable[[Value], Value]:
    """SUBSTRING from `start`, counted from 1, or from the end if negative.

    A negative length takes the characters before the start. Positions outside the string are empty.
    """
    low, high = reach(start, length)
    return lambda text: pc.utf8_slice_codeunits(text, start=low, stop=high)


def reach(start: int, length: int | None = None) -> tuple[int, int | None]:
    """The equivalent slice, from 0, or from the end if `start` is negative."""
    first = max(-_FARTHEST, min(start if start < 0 else start - 1, _FARTHEST))
    low, high = first, None
    if length is not None:
        length = max(-_FARTHEST, min(length, _FARTHEST))
        low, high = min(first, first + length), max(first, first + length)
    if start >= 0:
        low, high = max(low, 0), None if high is None else max(high, 0)
    elif high is not None and high >= 0:
        high = None
    return low, high


def join(left: Value, right: Value) -> Value:
    return pc.binary_join_element_wise(left, right, pa.scalar("", _TEXT))


def join_all(*texts: Value) -> Value:
    """Concatenation; NULL counts as empty."""
    empty = pa.scalar("", _TEXT)
    filled = [pc.fill_null(text, empty) for text in texts]
    return filled[0] if len(filled) == 1 else pc.binary_join_element_wise(*filled, empty)


def starts_with(text: Value, prefix: Value) -> Value:
    if isinstance(prefix, pa.Scalar) and prefix.is_valid:
        return pc.starts_with(text, prefix.as_py())
    # No byte of UTF-8 is 255, so strings with this prefix lie between it and it followed by 255.
    binary = pa.large_binary()
    text, prefix = text.cast(binary), prefix.cast(binary)
    beyond = pc.binary_join_element_wise(prefix, pa.scalar(b"\xff", binary), pa.scalar(b"", binary))
    return pc.and_(pc.greater_equal(text, prefix), pc.less(text, beyond))
