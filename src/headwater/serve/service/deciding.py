"""What the service does next, as functions of values: who starts, who gets or gives up devices, what an end means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headwater.serve.service.values import MOST_DEATHS, State, Submission, Wish

DONE, ALL_FAILED, MISUSED, RUNS_ALONE, INTERRUPTED = 0, 1, 2, 75, 130
"""The statuses of `headwater run`, and of a study that cannot train with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A study that runs or waits, and its devices."""

    id: str
    is_running: bool
    num_told: int = 0
    num_held: int = 0


class What(Enum):
    """What is done to a study."""

    START = "start"
    GIVE = "give"
    """It is told how many devices it has from now on, more or fewer than before."""
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    what: What
    id: str
    num_devices: int = 0


def decide_steps(claims: Sequence[Claim], shares: Mapping[str, int], num_devices: int) -> list[Step]:
    """Return how the shares come about: nothing is given that another still has.

    What is to be given up leaves at a report, so whoever is to get it does so when this is asked again.
    """
    steps: list[Step] = []
    taken = 0
    for claim in claims:
        share = shares.get(claim.id, 0)
        if claim.is_running:
            if share == 0:
                steps.append(Step(What.YIELD, claim.id))
            elif share < claim.num_told:
                steps.append(Step(What.GIVE, claim.id, share))
            taken += max(claim.num_held, min(share, claim.num_told))
    free = num_devices - taken
    for claim in sorted(claims, key=lambda claim: not claim.is_running):
        more = min(shares.get(claim.id, 0) - (claim.num_told if claim.is_running else 0), free)
        if more > 0:
            what = What.GIVE if claim.is_running else What.START
            steps.append(Step(what, claim.id, (claim.num_told if claim.is_running else 0) + more))
            free -= more
    return steps


def count_wanted(submission: Submission, num_devices: int) -> int:
    """Return how many devices a study could use: no more than it may have, or has trials left to train."""
    most = num_devices if submission.max_devices is None else min(submission.max_devices, num_devices)
    asked = submission.options.get("trials")
    most = max(min(most, asked), 1) if isinstance(asked, int) else most
    progress = submission.progress
    statuses, total = progress.get("statuses"), progress.get("num_trials")
    if progress.get("stage") is not None or not isinstance(statuses, dict) or not isinstance(total, int):
        return most
    left = total - sum(count for status, count in statuses.items() if status != "running" and isinstance(count, int))
    return max(min(most, left), 1)


def decide_end(submission: Submission, status: int | None, tail: str, *, has_progressed: bool) -> dict[str, Any]:
    """Return what changes in a submission whose runner has ended with a status, None where nobody knows it.

    Args:
        submission: As it was.
        status: As `headwater run` ends, or minus the signal that killed it.
        tail: The end of what it has printed.
        has_progressed: Whether an epoch was reported since it was started.
    """
    idle: dict[str, Any] = {"wish": Wish.NONE, "wished": None, "num_devices": 0}  # Any: columns
    if status == DONE:
        return {**idle, "state": State.DONE, "reason": "", "num_deaths": 0}
    if status in (ALL_FAILED, MISUSED):
        told = tail.strip() or "it has printed nothing"
        return {**idle, "state": State.FAILED, "reason": f"it ended with status {status}: {told}"}
    if submission.wish is Wish.STOP:
        return {**idle, "state": State.STOPPED, "reason": submission.reason}
    if submission.wish is Wish.PAUSE:
        return {**idle, "state": State.PAUSED, "reason": submission.reason}
    if submission.wish is Wish.YIELD:
        return {**idle, "state": State.QUEUED, "reason": "waits for devices, which others have now"}
    if status == RUNS_ALONE:
        return {**idle, "state": State.QUEUED, "reason": "it cannot train with others", "num_deaths": 1}
    num_deaths = 1 if has_progressed else submission.num_deaths + 1
    how = "in a way that nobody saw" if status is None else f"by signal {-status}" if status < 0 else f"with {status}"
    if num_deaths >= MOST_DEATHS:
        reason = f"its runner has died {num_deaths} times without any progress, the last time {how}: {tail.strip()}"
        return {**idle, "state": State.FAILED, "reason": reason, "num_deaths": num_deaths}
    return {**idle, "state": State.QUEUED, "reason": f"its runner has died {how}", "num_deaths": num_deaths}


def decide_limit(submission: Submission, now_s: float, user_budget_left_s: float | None) -> str | None:
    """Return why a study must end now; None where it need not."""
    if submission.deadline is not None and now_s >= submission.deadline:
        return "its deadline has passed"
    if submission.budget_device_s is not None and submission.device_seconds >= submission.budget_device_s:
        return f"its budget of {submission.budget_device_s:g} device-seconds is used up"
    if user_budget_left_s is not None and user_budget_left_s <= 0:
        return f"the budget of user {submission.user} is used up"
    return None
