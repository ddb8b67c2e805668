"""The counts of zones, for comparison to the bit."""

from collections.abc import Mapping
from typing import Any

from promising.index.fine import ZonePool
from promising.index.zone import CoarseZone


def counted(zone: CoarseZone | ZonePool) -> list[bytes]:
    """Of a zone, or of every slot."""
    zones = 0 if isinstance(zone, CoarseZone) else range(64 * zone.groups)
    return _bytes(zone.kind.saved(zone.counts, zones))


def _bytes(tree: Any) -> list[bytes]:
    return [part for each in tree.values() for part in _bytes(each)] if isinstance(tree, Mapping) else [tree.tobytes()]
