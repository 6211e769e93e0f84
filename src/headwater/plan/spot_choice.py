"""By which rule a task has spot instances: by the odds of their past, or by uniform progress where that says little."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headwater.plan.spot import Market, SpotRule, SpotState, SpotTask, follow_progress, must_pay
from headwater.plan.spot_history import SpotHistory
from headwater.plan.spot_odds import AGES, Prices, SpotOdds, SpotPolicy, Zone

SWITCHES_SPARED = 2
"""Odds decide where the deadline leaves more steps of the history beside the training than so many switches take: with
fewer, a table of whole steps is dearer than uniform progress."""
MOST_CELLS = 50_000_000
"""A table of odds has no more cells, one byte each: where it would, its steps are longer than those of the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotChoice:
    """What decides when a task has spot instances."""

    odds: SpotOdds | None
    """None: uniform progress does."""
    told: str
    """Which of them does, and why."""

    def make_rule(self, task: SpotTask, prices: Prices) -> SpotRule:
        """Work out the rule, which takes some seconds at most."""
        return follow_progress if self.odds is None else follow_odds(SpotPolicy(task, [self.odds], prices))


def choose_rule(history: SpotHistory, task: SpotTask, num_nodes: int) -> SpotChoice:
    """Choose by what a task goes that needs so many instances at once."""
    num_spare = int((task.deadline_s - task.work_s) / history.step_s)
    least = 1 + SWITCHES_SPARED * max(1, math.ceil(task.switch_s / history.step_s))
    if num_spare < least:
        return _keep_pace(
            f"beside the training the deadline leaves {num_spare} of the history's steps of {history.step_s:g} s, and "
            f"odds need {least}"
        )
    factor = _choose_factor(history.step_s, task)
    there, step_s = history.is_there(num_nodes, factor), factor * history.step_s
    nodes = "1 instance" if num_nodes == 1 else f"{num_nodes} instances at once"
    seen = f"{nodes} could be had in {sum(there)} of {len(there)} steps of {step_s:g} s ({history.source})"
    if len(set(there)) == 1:
        return _keep_pace(f"{seen}, which does not tell how they come and go")
    return SpotChoice(odds=SpotOdds.fit(there, step_s), told=f"spot nodes are chosen by odds: {seen}")


def follow_odds(policy: SpotPolicy) -> SpotRule:
    """Return the rule of a table of odds, which gives way to the deadline as uniform progress does."""

    def follow(task: SpotTask, state: SpotState, *, step_s: float = 0.0) -> Market:
        if state.done_s >= task.work_s:
            return Market.WAIT
        if must_pay(task, state, step_s):
            return Market.ON_DEMAND
        return policy.decide(task, state, [Zone(is_available=state.is_available, age_s=state.age_s)])[0]

    return follow


def _keep_pace(why: str) -> SpotChoice:
    return SpotChoice(odds=None, told=f"spot nodes are chosen by uniform progress, not by odds: {why}")


def _choose_factor(step_s: float, task: SpotTask) -> int:
    """Return how many steps of a history are one of the table, so that it is not too large."""
    factor = 1
    while _count_cells(factor * step_s, task) > MOST_CELLS:
        factor += 1 + factor // 10
    return factor


def _count_cells(step_s: float, task: SpotTask) -> float:
    num_modes = 1 + 2 * max(1, math.ceil(task.switch_s / step_s))
    return task.deadline_s / step_s * task.work_s / step_s * num_modes * 2 * len(AGES)
