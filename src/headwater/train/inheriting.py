"""Going on from what another trial has learnt, with hyperparameters of one's own (population based training)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from headwater.torch_private import INNER_SCHEDULERS, STEP_COUNT

StateDict: TypeAlias = Mapping[str, Any]

_PROGRESS = ("last_epoch", STEP_COUNT, "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i")
"""What a scheduler's state says of where it stands; the rest are its settings."""


def own_optimizer(state: StateDict, built: StateDict) -> StateDict:
    """Keep the momenta of an inherited optimizer, but the settings of the one that was just built.

    A rate that a schedule had brought down stays down by the same factor.
    """
    groups = [_own_group(learnt, own) for learnt, own in zip(state["param_groups"], built["param_groups"], strict=True)]
    return {**state, "param_groups": groups}


def _own_group(learnt: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    group = {**learnt, **own, "params": learnt["params"]}
    if learnt.get("initial_lr"):
        initial = own.get("initial_lr", own["lr"])  # a scheduler may have begun already
        group |= {"lr": initial * learnt["lr"] / learnt["initial_lr"], "initial_lr": initial}
    return group


def own_scheduler(state: StateDict, built: StateDict) -> StateDict:
    """Keep how far an inherited scheduler has come, but the settings of the one that was just built."""
    merged = {**built, **{key: state[key] for key in _PROGRESS if key in state}}
    for key in (INNER_SCHEDULERS, "schedulers"):
        if key in state:
            pairs = zip(state[key], built[key], strict=True)
            merged[key] = [own_scheduler(learnt, own) for learnt, own in pairs]
    return merged
