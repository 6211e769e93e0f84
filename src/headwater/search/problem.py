"""What a study asks of its searcher, and what builds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from headwater.search.protocol import Searcher
from headwater.settings import set_whole
from headwater.space import Config, Space
from headwater.trials import Arrival, Constraint, TrialRecord


class ResultOrder(StrEnum):
    """In which order a searcher deals with results."""

    VIRTUAL = "virtual"
    """As they would come if every epoch took equally long: the same answer on any number of devices."""
    ARRIVAL = "arrival"
    """As they come: nothing waits, and the answer depends on what was fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a study asks of its searcher."""

    space: Space
    metric: str
    mode: str
    """Whether "min" or "max" of the metric is wanted."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Further metrics that count as much, each with its mode; most searches know of none."""
    constraints: tuple[Constraint, ...] = ()
    """What trials must keep to; most searches know of none."""
    seed: int = 0
    num_trials: int | None = None
    """How many trials at most; None for as many as the space has."""
    max_epochs: int | None = None
    """How many epochs a trial trains at most; None leaves the end to the training function."""
    points: Mapping[int, Config] = field(default_factory=dict)
    """Configurations that the user wants tried, by the numbers of the trials that have them."""
    known: tuple[TrialRecord, ...] = ()
    """What the record holds already, when a study is resumed."""
    order: ResultOrder = ResultOrder.VIRTUAL
    arrivals: tuple[Arrival, ...] = ()
    """In which order segments of the known trials ended."""

    def __post_init__(self) -> None:
        set_whole(self, "num_trials", 1)
        set_whole(self, "max_epochs", 1)

    @property
    def given(self) -> dict[int, Config]:
        """The configurations that trials have whatever the search makes of it: points, and what the record holds."""
        return {**self.points, **{record.number: record.config for record in self.known}}


Build: TypeAlias = Callable[[Problem], Searcher]
"""A way of searching with its settings, still without a space."""
