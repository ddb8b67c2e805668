"""The settable clock."""

import pytest

from promising.testing import ManualClock


def test_stands_still_until_told() -> None:
    clock = ManualClock(7)
    assert [clock(), clock()] == [7, 7]
    clock.tick(3)
    assert clock() == 10
    clock.set(-4)
    assert clock() == -4


def test_does_not_tick_back() -> None:
    clock = ManualClock(7)
    with pytest.raises(ValueError, match="-1"):
        clock.tick(-1)
    assert clock() == 7
