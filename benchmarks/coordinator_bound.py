"""A mean completion that no way of sharing beats, however much it knows, by a linear programme.

Its unknowns are how many devices of each kind each stage has in each minute. Of every stage the programme knows the
mean time of its work, which lies half the shortest duration of the stage after its begin and before its end at least;
stages follow one another. Devices can be divided, nothing is lost when they change hands, and all arrivals are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

SLOT_S = 60.0
HOUR_S = 3600.0
"""What the programme counts in, so that its numbers are about 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStage:
    """A stage of a study: so many devices at most, so much work in all, and how long it takes at least."""

    most_devices: int
    work: float
    shortest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStudy:
    """A study: when it comes, how fast it is on each kind of device, and its stages in order."""

    arrival_s: float
    rates: Mapping[str, float]
    stages: Sequence[BoundStage]


@dataclass(slots=True)
class Rows:
    """Rows of a sparse matrix, and what each is at most, or equal to."""

    places: list[tuple[int, int]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def add(self, terms: Sequence[tuple[int, float]], limit: float) -> None:
        row = len(self.limits)
        self.places += [(row, column) for column, _ in terms]
        self.values += [value for _, value in terms]
        self.limits.append(limit)


Terms: TypeAlias = list[tuple[int, float]]
"""Columns, and what each counts for."""


@dataclass(slots=True)
class Programme:
    """The programme, as it is made study by study. Its first columns are the hours from arrival to end."""

    counts: Mapping[str, int]
    slot_s: float
    num_slots: int
    num_columns: int
    most: Rows = field(default_factory=Rows)
    equal: Rows = field(default_factory=Rows)
    in_slot: dict[tuple[str, int], Terms] = field(default_factory=dict)

    def add_study(self, place: int, study: BoundStudy) -> None:
        before: Terms = []
        before_s = 0.0
        for stage in study.stages:
            mean = self.add_stage(study, stage)
            least_s = (before_s + stage.shortest_s) / 2 - self.slot_s + (0.0 if before else study.arrival_s)
            self.most.add([*before, *((column, -value) for column, value in mean)], -least_s / HOUR_S)
            before, before_s = mean, stage.shortest_s
        self.most.add([*before, (place, -1.0)], (study.arrival_s - before_s / 2) / HOUR_S)

    def add_stage(self, study: BoundStudy, stage: BoundStage) -> Terms:
        """Add what a stage has in each slot; return what makes the mean time of its work."""
        mean: Terms = []
        done: Terms = []
        for slot in range(int(study.arrival_s // self.slot_s), self.num_slots):
            own = [(self.num_columns + offset, kind) for offset, kind in enumerate(self.counts)]
            self.num_columns += len(own)
            for column, kind in own:
                share = study.rates[kind] * self.slot_s / stage.work
                done.append((column, share))
                mean.append((column, share * max(slot * self.slot_s, study.arrival_s) / HOUR_S))
                self.in_slot.setdefault((kind, slot), []).append((column, 1.0))
            self.most.add([(column, 1.0) for column, _ in own], stage.most_devices)
        self.equal.add(done, 1.0)
        return mean

    def build(self, rows: Rows) -> object:
        import numpy as np
        from scipy.sparse import csr_array

        return csr_array((rows.values, np.array(rows.places).T), shape=(len(rows.limits), self.num_columns))


def find_bound(studies: Sequence[BoundStudy], counts: Mapping[str, int], slot_s: float = SLOT_S) -> float:
    """Return the bound in seconds. Times are those at which slots begin, so it is too low rather than too high."""
    from scipy.optimize import linprog

    work = sum(stage.work for study in studies for stage in study.stages)
    slowest = sum(count * min(study.rates[kind] for study in studies) for kind, count in counts.items())
    alone_s = [sum(stage.shortest_s for stage in study.stages) for study in studies]
    until_s = max(study.arrival_s for study in studies) + work / slowest + max(alone_s)
    programme = Programme(counts, slot_s, int(until_s / slot_s) + 1, len(studies))
    for place, study in enumerate(studies):
        programme.add_study(place, study)
    for (kind, _), terms in programme.in_slot.items():
        programme.most.add(terms, counts[kind])
    num_shares = programme.num_columns - len(studies)
    answer = linprog(
        [1.0] * len(studies) + [0.0] * num_shares,
        A_ub=programme.build(programme.most),
        b_ub=programme.most.limits,
        A_eq=programme.build(programme.equal),
        b_eq=programme.equal.limits,
        bounds=[(seconds / HOUR_S, None) for seconds in alone_s] + [(0.0, None)] * num_shares,
        method="highs",
    )
    assert answer.status == 0, answer.message
    return float(answer.fun) / len(studies) * HOUR_S
