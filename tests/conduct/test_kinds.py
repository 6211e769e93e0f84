"""Kinds of trials that cannot train as one share the devices by the time that each has left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.execute.simulation import list_gpus, list_histories, never_called

import headwater as hw
from headwater.conduct.grouping import Grouper
from headwater.conduct.limits import Limits
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.plan.surface import Shape, Surface
from headwater.space import Config
from headwater.stage import OpenStudy, RunSettings
from headwater.trials import Deadline, Lane, Learnt, Recipe, Result
from headwater.trials.recipes import Key

BY_BATCH = Learnt(recipes=(Recipe("batch_size", Key(("batch_size",))),))
EPOCH_S = {128: 773 / 50, 512: 370 / 50}
"""An epoch of eight lanes, as the paper on Hydro shows it."""


def time_epoch(config: Config, num_lanes: int, kind: str) -> float:
    return EPOCH_S[config["batch_size"]] * (0.6 + 0.05 * num_lanes)


def learn(config: Config, epoch: int) -> Mapping[str, float]:
    return {"loss": abs(config["lr"] - 0.3) + 1.0 / epoch}


def make_lanes(*batch_sizes: int, **settings: Any) -> list[Lane]:
    return [Lane(number=n, config={"batch_size": size}, seed=0, **settings) for n, size in enumerate(batch_sizes)]


def make_grouper(num_devices: int, surface: Surface | None) -> Grouper:
    grouper = Grouper(8, lambda text, lanes: None, lambda profile: None, learnt=BY_BATCH)
    grouper.share_among(num_devices)
    if surface is not None:
        grouper.time_by(surface)
    return grouper


def make_surface() -> Surface:
    """Return one that has seen groups of four and of eight of both kinds."""
    times = {128: {4: 13.0, 8: 15.0}, 512: {4: 6.0, 8: 7.0}}
    return Surface(
        epochs={
            (("int", size),): {Shape(num_lanes): seconds for num_lanes, seconds in known.items()}
            for size, known in times.items()
        },
        num_epochs=50,
    )


def list_groups(grouper: Grouper, lanes: list[Lane]) -> list[tuple[int, int]]:
    """Return the batch size and the number of lanes of each group, in the order in which they are placed."""
    return [(group.lanes[0].config["batch_size"], len(group)) for group in grouper.sort(lanes)[0]]


def test_kinds_get_devices_of_their_own_and_the_longest_goes_first() -> None:
    lanes = make_lanes(*[512] * 8, *[128] * 8)
    assert list_groups(make_grouper(2, make_surface()), lanes) == [(128, 8), (512, 8)]


def test_without_times_each_kind_is_cut_for_all_devices_in_order_of_arrival() -> None:
    lanes = make_lanes(*[512] * 8, *[128] * 8)
    in_order = [(512, 4), (512, 4), (128, 4), (128, 4)]
    assert list_groups(make_grouper(2, None), lanes) == in_order
    assert list_groups(make_grouper(2, Surface(num_epochs=50)), lanes) == in_order


def test_a_kind_that_nobody_can_time_comes_before_those_that_are_known() -> None:
    lanes = make_lanes(*[512] * 8, *[128] * 8, *[64] * 2)
    assert list_groups(make_grouper(2, make_surface()), lanes)[:3] == [(64, 1), (64, 1), (128, 4)]


def test_what_is_left_of_a_trial_counts_and_not_its_kind_alone() -> None:
    lanes = make_lanes(128, start_epoch=49) + make_lanes(512, until=10)
    surface = Surface(epochs={kind: {Shape(1): 10.0} for kind in [(("int", 128),), (("int", 512),)]}, num_epochs=50)
    assert list_groups(make_grouper(2, surface), lanes) == [(512, 1), (128, 1)]


def run(search: str, num_devices: int, allocation: str = "ours", time_budget_s: float | None = None) -> Result:
    """Run a study of two kinds."""
    executor = SimulatedExecutor(list_gpus(num_devices), learn, SimulatedTimes(epoch_s=time_epoch, num_epochs=9))
    study = hw.Study(
        never_called,
        space={"lr": hw.uniform(0.0, 1.0), "batch_size": hw.choice([128, 512])},
        metric="loss",
        search=search,
        allocation=allocation,
        max_epochs=9,
        storage=None,
        packing=None,
        executor=executor,
    )
    limits = Limits(num_trials=27, deadline=Deadline.start(time_budget_s, executor.clock))
    opened = OpenStudy(study, limits, RunSettings(num_devices=num_devices, learnt=BY_BATCH), is_new=True)
    opened.conductor.begin()
    executor.run(opened.conductor)
    result = opened.finish()
    opened.close()
    return result


@pytest.mark.parametrize("search", ["random", "halving", "hyperband", "asha", "bohb"])
def test_what_a_search_finds_does_not_depend_on_how_kinds_share_devices(search: str) -> None:
    assert list_histories(run(search, 4)) == list_histories(run(search, 4, "fifo"))


def test_a_study_of_two_kinds_ends_earlier_where_they_share_devices_by_time() -> None:
    shared, in_order = run("halving", 2), run("halving", 2, time_budget_s=1e6)
    assert shared.seconds < 0.9 * in_order.seconds, "with a time budget, kinds come in order"
    assert list_histories(shared) == list_histories(in_order)
