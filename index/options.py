"""The sizes of a summary, and their maximum memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from promising.errors import BadOptions, BadStructure, CeilingTooLow
from promising.index.geometry import PARTS, Geometry
from promising.index.kernels.open_zone import ROW, SIGNED, WINDOW
from promising.summaries.cells import CellKind
from promising.summaries.counts import USUAL, CountsKind, counts_kind

STRUCTURES = ("none", "time", "grid", "adaptive")
AUTO = "auto"  # the cheapest of them: index/auto_structure.py
TUPLES = 1 << 22  # in G_1, that the sketches of a stream without a limit are sized for
GROUP = 64  # zones that share the words of a bit-sliced filter


@dataclass(frozen=True)
class Options:
    """What `OPTIONS (...)` can set.

    buckets, depth, width: value buckets, and rows and columns of each cell's count-sketch. `time` has one bucket.
    maxlength: maximum tuples of a zone of `G_1`.
    tolerance: a zone is cut when the standard error of its estimates exceeds this many tuples.
    effect: a zone is cut when the squared distance of its last tuples from its reference exceeds chance and this
        fraction of the reference's F2.
    filter_bits: bits of a zone's filter in `G_1`; `coarse_bits` in `G_2..G_m`. `probes` of them are set per key.
    postings: whether the rows of every key are stored; without them, cells and filters find tuples.
    ceiling: maximum bytes of the summary; None for the sum of the sizes.
    """

    buckets: int = 64
    depth: int = 5
    width: int = 64
    maxlength: int = 16384
    tolerance: float = 32.0
    effect: float = 0.2
    filter_bits: int = 1 << 16
    coarse_bits: int = 1 << 18
    probes: int = 2
    postings: bool = True
    ceiling: int | None = None

    def __post_init__(self) -> None:
        for name in ("buckets", "depth", "width", "maxlength", "filter_bits", "coarse_bits", "probes"):
            if not isinstance(getattr(self, name), int):
                raise BadOptions(f"{name} must be a whole number, got {getattr(self, name)!r}")
        if not isinstance(self.postings, bool):
            raise BadOptions(f"postings must be on or off, got {self.postings!r}")
        for name, least, most in (
            ("buckets", 1, 4096),
            ("width", 2, 1 << 16),
            ("filter_bits", 64, 1 << 24),
            ("coarse_bits", 64, 1 << 26),
        ):
            value = getattr(self, name)
            if not least <= value <= most or value & (value - 1):
                raise BadOptions(f"{name} must be a power of two from {least} to {most}, got {value}")
        if self.depth % 2 == 0 or not 1 <= self.depth <= 15:
            raise BadOptions(f"depth must be odd, from 1 to 15 (an estimate is a median), got {self.depth}")
        if not WINDOW <= self.maxlength <= 32767:
            raise BadOptions(f"maxlength must be from {WINDOW} to 32767 (counts have 16 bits), got {self.maxlength}")
        if not 1 <= self.probes <= 4:
            raise BadOptions(f"probes must be from 1 to 4, got {self.probes}")
        if not self.tolerance > 0 or not self.effect > 0:
            raise BadOptions(f"tolerance and effect must be positive, got {self.tolerance} and {self.effect}")
        for name in ("filter_bits", "coarse_bits"):
            if getattr(self, name) < 8 * self.buckets:
                raise BadOptions(f"{name} must be at least 8 for each of the {self.buckets} buckets")


@dataclass(frozen=True)
class Sizes:
    """The fixed dimensions of a summary, derived from options, geometry and stream.

    The ceiling is the sum of everything that can be held at once. In a stream without a limit it covers the first four
    lines, with up to `TUPLES` tuples in `G_1`; what more tuples add is stated per tuple and per key:

        zones of G_1       zones * (counts + bucket borders, tuples, F2 and measures) + groups * filter words
        the open zone      rows, keys, sizes; and per block of G_1 a future zone of G_2 and its late tuples
        G_2 .. G_m         at most 2 * rate + 2 zones each; with KEEP, as many more as it has of the last
        pyramids           a third as many nodes as zones, none larger than a zone's filter
        postings           4 bytes per tuple, and the directory at its fullest, with the one it grew from; unless off
        cells              4 bytes per tuple, and with EXACT the counts of its key
    """

    structure: str
    buckets: int
    counts: CountsKind[Any]
    maxlength: int
    slots: int  # of a cell's filter in G_1
    coarse_slots: int  # of a cell's filter in G_2..G_m
    probes: int
    groups: int  # filter groups of 64 zones in G_1
    zones: int  # zones of G_1 before cutting for error and behaviour stops
    tuples: int  # that the zones of G_1 are for
    postings: bool
    measures: int  # bytes of a zone's measures at most
    sketches: int  # bytes of the ceiling for sketches, filters and measures
    ceiling: int

    @classmethod
    def of(
        cls,
        structure: str,
        options: Options,
        geometry: Geometry,
        max_tuples: int | None,
        lateness: int,
        kinds: Sequence[CellKind[Any]] = (),
        using: str = USUAL,
    ) -> "Sizes":
        """max_tuples: the limit of the stream, if it has one. kinds: what its zones measure. using: for its key."""
        if structure not in STRUCTURES:
            raise BadStructure(f"unknown STRUCTURE {structure!r}; it is one of {', '.join((*STRUCTURES, AUTO))}")
        buckets = 1 if structure in ("none", "time") else options.buckets
        counts = counts_kind(using)(buckets, options.depth, options.width)
        blocks = lateness // geometry.granularity + 4
        if blocks > 1 << 16:
            raise BadOptions(
                f"a lateness of {lateness} microseconds spans {blocks} blocks of the granularity"
                f" ({geometry.granularity}); use a granularity nearer to the lateness"
            )
        for what, bits in (("filter_bits", options.filter_bits), ("coarse_bits", options.coarse_bits)):
            if options.probes * cls.lg(bits // buckets) > 64:
                raise BadOptions(
                    f"{options.probes} probes into {bits // buckets:,} slots need more bits than the 64 of a hash;"
                    f" lower probes or {what}, or have more buckets"
                )
        covered = TUPLES if max_tuples is None else max_tuples
        needed = covered // options.maxlength + 3 * blocks
        zones = 2 * needed + GROUP
        groups = -(-zones // GROUP) + blocks
        coarse_zones = geometry.most_zones
        measures = sum(kind.ceiling(buckets if kind.grain == "cell" else 1) + 64 for kind in kinds)
        fine = (
            groups * GROUP * (counts.zone_bytes("sealed") + buckets * 16 + 280 + measures)
            + groups * options.filter_bits * 8
        )
        coarse_zone = counts.zone_bytes("zone") + options.coarse_bits // 8 + buckets * 16 + 536 + PARTS * 8 + measures
        opened = (
            options.maxlength * 32 + WINDOW * 8 + ROW * 4 * SIGNED + blocks * (coarse_zone + options.maxlength * 40)
        )
        coarse = coarse_zones * coarse_zone
        pyramids = groups * GROUP * options.filter_bits // 8 // 3
        directory = (1 << (covered * 2 + 256).bit_length()) * 50 + covered * 4 if options.postings else 0
        tuples = 0 if max_tuples is None else covered * (4 + counts.tuple_bytes) + directory
        sketches = fine + opened + coarse + pyramids + 256 * 200 if structure != "none" else 4096
        ceiling = sketches + tuples if structure != "none" else sketches
        if options.ceiling is not None:
            if ceiling > options.ceiling:
                raise CeilingTooLow(
                    f"these sizes need up to {ceiling:,} bytes ({ceiling - sketches:,} for tuples, {sketches:,} for"
                    f" sketches and filters) but the ceiling is {options.ceiling:,}: lower buckets, depth, width,"
                    " filter_bits or the stream's max_tuples, or raise the ceiling"
                )
            ceiling = options.ceiling
        return cls(
            structure=structure,
            buckets=buckets,
            counts=counts,
            maxlength=options.maxlength,
            slots=options.filter_bits // buckets,
            coarse_slots=options.coarse_bits // buckets,
            probes=options.probes,
            groups=groups,
            zones=zones,
            tuples=covered,
            postings=options.postings,
            measures=measures,
            sketches=sketches,
            ceiling=ceiling,
        )

    @classmethod
    def auto(
        cls,
        now: str,
        options: Options,
        geometry: Geometry,
        max_tuples: int | None,
        lateness: int,
        kinds: Sequence[CellKind[Any]] = (),
        using: str = USUAL,
    ) -> "Sizes":
        """Sizes of an `auto` summary with the structure `now`: the ceiling is the largest of all structures."""
        if not options.postings:
            raise BadOptions(
                "STRUCTURE auto compares structures that have postings: with postings = off, name one, such as"
                " STRUCTURE adaptive"
            )
        every = {name: cls.of(name, options, geometry, max_tuples, lateness, kinds, using) for name in STRUCTURES}
        return replace(
            every[now],
            sketches=max(sizes.sketches for sizes in every.values()),
            ceiling=max(sizes.ceiling for sizes in every.values()),
        )

    @property
    def tuple_bytes(self) -> int:
        """What a tuple adds: its posting, if any, its place in a cell and, beyond `tuples` in `G_1`, its part of two
        zones."""
        zone = self.counts.zone_bytes("sealed") + self.buckets * (16 + self.slots // 8) + 280 + self.measures
        node = self.buckets * self.slots // 8 // 3
        row = (8 if self.postings else 4) + self.counts.tuple_bytes
        return row + -(-2 * (zone + node) // self.maxlength) if self.structure != "none" else 0

    @property
    def key_bytes(self) -> int:
        """What a distinct key adds at most: four lines of the directory, half of them while it doubles."""
        return 200 if self.postings and self.structure != "none" else 0

    @property
    def shift(self) -> int:
        return 64 - self.lg(self.buckets)

    @staticmethod
    def lg(n: int) -> int:
        return n.bit_length() - 1
