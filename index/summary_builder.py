"""Builds the state of a summary: empty, from stored tuples, or from an image."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from promising.errors import BadGranularity, CeilingTooLow
from promising.index.auto_structure import FIRST
from promising.index.geometry import Geometry
from promising.index.kernels.seal import extent
from promising.index.log import TupleLog
from promising.index.measures import Kinds, kinds_of
from promising.index.options import AUTO, Options, Sizes
from promising.index.summary import Identity, SummaryState
from promising.index.unindexed import BareState
from promising.summaries.counts import USUAL

LARGEST_BATCH = 1 << 22  # tuples summarised at once


@dataclass(frozen=True)
class SummaryBuilder:
    """Builds states for summaries of the tuples in one log."""

    log: TupleLog
    lateness: int
    seed: int
    max_tuples: int | None  # the limit of the stream, in whole chunks

    def identity(
        self,
        name: str,
        key: str,
        geometry: Geometry,
        structure: str,
        options: Options,
        now: str = FIRST,
        kinds: Kinds = (),
        using: str = USUAL,
    ) -> Identity:
        """The identity of a summary; `now` is its current structure if it may change."""
        given = (options, geometry, self.max_tuples, self.lateness, kinds, using)
        sizes = Sizes.auto(now, *given) if structure == AUTO else Sizes.of(structure, *given)
        return Identity(name, key, geometry, sizes, structure == AUTO, kinds)

    def kinds(self, measures: Iterable[str]) -> Kinds:
        """The kinds of measures of this stream; `BadMeasure` says what is wrong."""
        return kinds_of(measures, self.log.schema.types, self.seed)

    def restructured(self, identity: Identity, structure: str, options: Options) -> Identity:
        """The identity of an auto summary with another structure."""
        return self._changed(identity, options, structure=structure)

    def measuring(self, identity: Identity, kinds: Kinds, options: Options) -> Identity:
        """The identity of a summary that measures something else."""
        return self._changed(identity, options, kinds=kinds)

    def kept(self, identity: Identity, keep: int | None, options: Options) -> Identity:
        """The identity of a summary whose stream keeps this long; raises `BadGranularity` if that is too short."""
        try:
            geometry = replace(identity.geometry, keep=keep)
        except BadGranularity as problem:
            raise BadGranularity(f"summary {identity.name!r}: {problem}") from None
        return self._changed(identity, options, geometry=geometry)

    def _changed(
        self,
        identity: Identity,
        options: Options,
        *,
        geometry: Geometry | None = None,
        structure: str | None = None,
        kinds: Kinds | None = None,
    ) -> Identity:
        now = structure or identity.sizes.structure
        return self.identity(
            identity.name,
            identity.key,
            geometry or identity.geometry,
            AUTO if identity.auto else now,
            options,
            now,
            identity.kinds if kinds is None else kinds,
            identity.using,
        )

    def defined(self, made: dict[str, Any]) -> tuple[Identity, Options]:
        options = Options(**made["options"])
        rate, depth = made["collapse"]
        geometry = Geometry(made["granularity"], rate, depth, made.get("keep"))
        now = made.get("now", FIRST)
        kinds, using = self.kinds(made.get("measures", ())), made.get("using", USUAL)
        return self.identity(
            made["name"], made["key"], geometry, made["structure"], options, now, kinds, using
        ), options

    def empty(self, identity: Identity, options: Options) -> SummaryState | BareState:
        """A state without tuples. Raises `CeilingTooLow` if the machine lacks the memory it may need."""
        sizes = identity.sizes
        if sizes.structure == "none":
            return BareState(identity, self.log, self.seed)
        try:
            return SummaryState(identity, options, self.log, self.seed, self.lateness)
        except MemoryError:
            raise CeilingTooLow(
                f"this machine cannot reserve the {sizes.ceiling:,} bytes these sizes need: lower buckets,"
                " depth, width, filter_bits or the stream's max_tuples, or use a granularity nearer to the"
                " lateness"
            ) from None

    def filled(
        self, identity: Identity, options: Options, watermark: int | None, floor: int | None, issued: int | None = None
    ) -> SummaryState | BareState:
        """A state of the stored tuples.

        floor: older times have aged out of the stream. issued: the last zone number of `G_1` in the previous structure,
        so that old regions are not mistaken for new ones.
        """
        state = self.empty(identity, options)
        state.floor = floor
        if isinstance(state, SummaryState) and issued is not None:
            state.fine.number_after(issued)
        if watermark is None:
            return state
        state.advance(watermark)
        rows = self.log.rows()
        if isinstance(state, BareState):
            state.accepted = len(rows)
            return state
        for start in range(0, len(rows), LARGEST_BATCH):
            part = rows[start : start + LARGEST_BATCH]
            times = self.log.when(part)
            state.insert(self.log.hashes(identity.key, part, self.seed), part, times, *extent(times))
        return state
