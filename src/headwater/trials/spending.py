"""What a run on nodes that are paid for takes and costs, beside its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SPENDING = "spending"
"""The key of the fact that holds it,"""
NODE_STAYS = "node stays"
"""and of the one that holds which nodes there were when, written anew where that has changed,"""
PRICES = "price over deadline"
"""and of the one that holds what the whole would cost at the least by other deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStay:
    """A node that was held, in seconds from the beginning of the run."""

    node: str
    begin_s: float
    end_s: float | None = None
    """None while it is held."""
    dollars_per_hour: float = 0.0
    minimum_s: float = 0.0
    """For so long it is charged at least."""
    launch_dollars: float = 0.0
    is_spot: bool = False
    is_lost: bool = False
    """Whether nobody gave it back: it was taken, or died."""

    def cost_until(self, at_s: float) -> float:
        """Return what must be paid for it if it goes at this time, or went before."""
        if at_s < self.begin_s:
            return 0.0
        end_s = at_s if self.end_s is None else min(at_s, self.end_s)
        return max(end_s - self.begin_s, self.minimum_s) * self.dollars_per_hour / 3600 + self.launch_dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpending:
    """One stage of a search, as it was planned and as it went."""

    num_trials: int
    num_epochs: int
    planned_nodes: int
    planned_s: float
    planned_dollars: float
    num_nodes: int = 0
    """The most that were held."""
    seconds: float | None = None
    """None while it has not ended."""
    cost_dollars: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Where a run stands: what is spent, what it will come to, and what was planned."""

    seconds: float
    cost_dollars: float
    num_nodes: int
    forecast_s: float | None = None
    """What the whole is to take, by what is known now; None where there is no plan."""
    forecast_dollars: float | None = None
    planned_s: float | None = None
    planned_dollars: float | None = None
    deadline_s: float | None = None
    budget_dollars: float | None = None
    stage: int = 0
    """Which stage it is in, counted from 0."""
    num_replanned: int = 0
    """How often it fell behind and was planned anew."""
    earlier_s: float = 0.0
    """What runs of the study before this one took; all other figures are those of this one."""
    earlier_dollars: float = 0.0
    """What they cost; it counts towards the budget."""
    stages: tuple[StageSpending, ...] = ()
    spot_dollars: float | None = None
    """What of the cost went to spot instances; None where none is asked for."""
    num_lost: int = 0
    """How many nodes were taken back, or died."""
    stays: tuple[NodeStay, ...] = ()
    """Which nodes there were when; the record has them in a fact of their own."""
    prices: tuple[tuple[float, float], ...] = ()
    """The least price by each of some deadlines, as (seconds, dollars); likewise."""

    @property
    def total_dollars(self) -> float:
        """What the study has cost in all its runs."""
        return self.earlier_dollars + self.cost_dollars

    @property
    def total_s(self) -> float:
        """What they took."""
        return self.earlier_s + self.seconds

    def as_json(self) -> dict[str, Any]:  # Any: JSON values
        """Return it as the record has it, without the stays of nodes and the prices."""
        value = asdict(self)
        del value["stays"], value["prices"]
        return value

    def list_stays(self) -> list[dict[str, Any]]:  # Any: as above
        """Return the stays of nodes as the record has them."""
        return [asdict(stay) for stay in self.stays]

    def list_facts(self, before: Spending | None = None) -> Iterator[tuple[str, Any]]:  # Any: as above
        """Yield what the record is to have, by the keys of its facts; what has not changed is left out."""
        if self.stays != (() if before is None else before.stays):
            yield NODE_STAYS, self.list_stays()
        if self.prices != (() if before is None else before.prices):
            yield PRICES, [list(point) for point in self.prices]
        yield SPENDING, self.as_json()

    @classmethod
    def from_json(
        cls,
        value: dict[str, Any],  # Any: as above
        stays: Sequence[dict[str, Any]] = (),
        prices: Sequence[tuple[float, float]] = (),
    ) -> Spending:
        """Read it back from a record.

        Raises:
            TypeError: It is none.
        """
        parts = {
            "stages": tuple(StageSpending(**stage) for stage in value.get("stages", ())),
            "stays": tuple(NodeStay(**stay) for stay in stays),
            "prices": tuple((deadline_s, dollars) for deadline_s, dollars in prices),
        }
        return cls(**{**value, **parts})

    def describe(self) -> str:
        """Say it in a line."""
        parts = [f"${self.cost_dollars:.2f} spent in {self.seconds:.0f} s"]
        if self.forecast_dollars is not None and self.forecast_s is not None:
            parts.append(f"${self.forecast_dollars:.2f} in {self.forecast_s:.0f} s foreseen")
        if self.planned_dollars is not None and self.planned_s is not None:
            parts.append(f"${self.planned_dollars:.2f} in {self.planned_s:.0f} s planned")
        if self.earlier_dollars:
            parts.append(f"${self.earlier_dollars:.2f} in {self.earlier_s:.0f} s in earlier runs")
        if self.spot_dollars is not None:
            parts.append(f"${self.spot_dollars:.2f} of it for spot nodes")
        return ", ".join(parts)
