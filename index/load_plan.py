"""The description of a stream that an external loader needs to prepare tuples for it."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from promising.index.admission import Retention
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING, END
from promising.index.measures import Measures, kinds_of
from promising.index.options import Options, Sizes
from promising.summaries.counts import USUAL


@dataclass(frozen=True)
class LoadPlan:
    """A stream when a load was planned.

    types: of its columns, in order; `time` is the event time, `keys` must not be null.
    latest: no tuple may be later; oldest: older tuples have been removed; room: tuples that fit.
    summaries: their definitions. keep: how long tuples are retained; None: for ever.
    now: the clock, which the watermark does not pass.
    """

    stream: str
    types: dict[str, str]
    time: str
    keys: tuple[str, ...]
    seed: int
    watermark: int | None
    lateness: int
    latest: int
    oldest: int | None
    room: int
    capacity: int
    summaries: list[dict[str, Any]]
    keep: int | None = None
    now: int = END

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "LoadPlan":
        found = json.loads(text)
        return cls(**{**found, "keys": tuple(found["keys"])})

    def shaped(self, latest: int | None) -> "Shape":
        """The layout of tuples of which the last is dated `latest`: by their future zones."""
        known = [self.watermark, None if latest is None else min(latest - self.lateness, self.now)]
        watermark = max((w for w in known if w is not None), default=None)
        made = [Summed.of(definition, self) for definition in self.summaries]
        by = Retention(self.keep, {one.geometry for one in made}, self.oldest)
        oldest = self.oldest if watermark is None else by.oldest(watermark)
        ordering = max((one for one in made if one.structured), key=lambda one: (one.reach, one.name), default=None)
        if ordering is None or watermark is None:
            return Shape(watermark, oldest, None, 1, 64, [(BEGINNING, END)])
        sizes = ordering.sizes
        return Shape(
            watermark,
            oldest,
            ordering.key,
            sizes.buckets,
            sizes.shift,
            ordering.zones(watermark),
        )


@dataclass(frozen=True)
class Shape:
    """The layout of a load.

    oldest: earlier tuples are omitted, as they would age out at once. key, buckets, shift: a tuple's bucket is the hash
    of its key without the last `shift` bits. zones: (from, length), descending; a time is in the zone `time // length *
    length` of the first that begins at or before it.
    """

    watermark: int | None
    oldest: int | None
    key: str | None
    buckets: int
    shift: int
    zones: list[tuple[int, int]]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Shape":
        found = json.loads(text)
        return cls(**{**found, "zones": [(first, length) for first, length in found["zones"]]})


@dataclass(frozen=True)
class Summed:
    """One summary's definition, as far as its sums need it."""

    name: str
    key: str
    geometry: Geometry
    sizes: Sizes
    definition: dict[str, Any]
    measures: Measures

    @classmethod
    def of(cls, definition: dict[str, Any], plan: LoadPlan) -> "Summed":
        rate, depth = definition["collapse"]
        geometry = Geometry(definition["granularity"], rate, depth, definition.get("keep"))
        options = Options(**{**definition["options"], "ceiling": None})  # the stream has checked it
        using = definition.get("using", USUAL)
        sizes = Sizes.of(definition["structure"], options, geometry, None, plan.lateness, using=using)
        kinds = kinds_of(definition.get("measures", ()), plan.types, plan.seed)
        return cls(definition["name"], definition["key"], geometry, sizes, definition, Measures(kinds, sizes.buckets))

    @property
    def structured(self) -> bool:
        return self.sizes.structure != "none"

    @cached_property
    def reach(self) -> int:
        return self.geometry.asked

    def zones(self, watermark: int) -> list[tuple[int, int]]:
        return self.geometry.zones(watermark)
