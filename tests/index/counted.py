"""The counts of zones, for comparison to the bit."""

from collections.abc import Mapping
from typing import Any

from promising.index.fine import ZonePool
from promising.index.zone import CoarseZone


def counted(zone: CoarseZone | ZonePool) -> list[bytes]:
    """Of a zone, or of every slot."""
    zones = 0 if isinstance(zone, CoarseZone) else range(64 * zone.groups)
    return saved_bytes(zone.kind.saved(zone.counts, zones))


def saved_bytes(tree: Any) -> list[bytes]:
    """Of a tree of arrays."""
    inside = tree.values() if isinstance(tree, Mapping) else ()
    return [part for each in inside for part in saved_bytes(each)] if inside else [tree.tobytes()]
