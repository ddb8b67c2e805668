"""Which tests a run takes: `--tier quick`, `--tier deep`, or all of them.

A test is quick unless it has the mark `deep`, which says why, or starts Spark without the mark `smoke`. The deep
tier runs those, and all tests with random examples once more, with more of them. Longer runs are commands of their own:
`make test-long`.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

QUICK, DEEP, ALL = "quick", "deep", "all"
_scale = 1.0


def examples(usual: int) -> int:
    """Random examples of a test that usually takes so many: fewer of them in the quick tier, more in the deep one."""
    return max(int(usual * _scale), min(usual, 5))


def begin(tier: str, plain: bool) -> None:
    """To be called before any test is imported. plain: kernels are plain Python, a hundred times slower."""
    global _scale  # noqa: PLW0603  # decorators of tests read it while they are imported
    _scale = {QUICK: 0.25, DEEP: 2.0, ALL: 1.0}[tier]
    # Deadlines measure the machine, not the code. A failure prints the blob that repeats it.
    slow = [HealthCheck.too_slow] if plain else []
    settings.register_profile(
        "house",
        deadline=None,
        print_blob=True,
        max_examples=examples(20 if plain else 100),
        suppress_health_check=slow,
    )
    settings.load_profile("house")


def choose(tier: str, items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of a tier, and the others."""
    if tier == ALL:
        return items, []
    taken = [item for item in items if (tier == QUICK) != _is_deep(item) or (tier == DEEP and _is_random(item))]
    kept = set(taken)
    return taken, [item for item in items if item not in kept]


def counted(items: list[pytest.Item]) -> Counter[str]:
    """How many tests there are, by tier."""
    return Counter(DEEP if _is_deep(item) else QUICK for item in items)


def _is_deep(item: pytest.Item) -> bool:
    for mark in item.iter_markers("deep"):
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str):
            raise pytest.UsageError(f"{item.nodeid}: the mark `deep` wants one sentence that says why")
        return True
    return item.get_closest_marker("spark") is not None and item.get_closest_marker("smoke") is None


def _is_random(item: pytest.Item) -> bool:
    return item.get_closest_marker("hypothesis") is not None
