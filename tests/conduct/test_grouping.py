"""Which lanes train as one: learnt from every ending, for the rest of the study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from tests.train.lab import Notebook, open_lanes
from torch import nn

from headwater.conduct.grouping import MAX_FORKS, MOST_BESIDE, Grouper
from headwater.conduct.packing import Packer
from headwater.conduct.waiting import WaitingLanes
from headwater.plan import MAX_LANES
from headwater.space import Space
from headwater.train import Trial
from headwater.train.profiling import profile_lanes
from headwater.train.running import TrainingSetup, run_group
from headwater.trials import (
    Ending,
    KindProfile,
    Lane,
    Learnt,
    Measured,
    Measurement,
    Outcome,
    Profile,
    Purpose,
    Question,
    Recipe,
    TrialGroup,
)
from headwater.trials.recipes import Key


class Study:
    """A study without a searcher or a record: lanes that wait, and a device that trains or measures them."""

    def __init__(self, function: Callable[[Trial], Any], num_lanes: int | None = 16) -> None:
        self.remarks: list[tuple[str, tuple[int, ...]]] = []
        self.groups: list[tuple[int, ...]] = []
        """The groups as they were tried, in order."""
        self.finished: list[tuple[int, ...]] = []
        """Those of them that came to their end."""
        self.done: list[int] = []
        self.failed: dict[int, str] = {}
        self.recorded: list[Profile] = []
        self._setup = TrainingSetup(function)
        self.grouper = Grouper(num_lanes, self._tell, self.recorded.append)
        self._waiting = WaitingLanes(self.grouper, Packer(None, Space({"lr": 0.1}), Random(0), self._tell))

    def train(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Train these configurations until each is done or has failed."""
        self._waiting.add(open_lanes(dict(enumerate(configs))))
        while work := self._waiting.take():
            if work.purpose is Purpose.PROFILE:
                profile, ending = profile_lanes(self._setup, work.groups[0].lanes, share=math.inf)
                numbers = () if ending is None else tuple(lane.number for lane in ending.lanes)
                self._waiting.take_finding(work, Measured(key=0, finding=profile, ending=ending, numbers=numbers))
                continue
            (group,) = work.groups
            self.groups.append(group.numbers)
            ending = run_group(self._setup, group, Notebook())
            if ending.outcome is Outcome.DONE:
                self.grouper.acquit(ending.lanes)
                self.finished.append(self.groups[-1])
                self.done += [lane.number for lane in ending.lanes]
            elif ending.outcome is Outcome.RAISED and len(ending.lanes) == 1:
                self.failed[ending.lanes[0].number] = ending.error
            else:
                self._waiting.part(ending)

    def _tell(self, text: str, lanes: Sequence[Lane]) -> None:
        self.remarks.append((text, tuple(lane.number for lane in lanes)))


def build(trial: Trial) -> None:
    """A width, an activation and a branch: all that makes lanes part."""
    layers = [nn.Linear(2, trial.config.get("width", 4)), getattr(nn, trial.config.get("act", "ReLU"))()]
    if trial.config.get("lr", 0.1) > 0.5:
        layers.append(nn.Identity())
    trial.prepare_model(nn.Sequential(*layers))(torch.ones(1, 2))
    trial.report(loss=1.0)


def test_lanes_that_agree_train_as_one() -> None:
    study = Study(build)
    study.train([{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}])
    assert study.groups == [(0, 1, 2)]
    assert study.done == [0, 1, 2]
    assert study.remarks == []


def test_groups_have_at_most_the_number_of_lanes() -> None:
    study = Study(build, num_lanes=2)
    study.train([{"lr": 0.1}] * 5)
    assert study.groups == [(0, 1), (2, 3), (4,)]


def test_a_group_may_have_more_lanes_than_are_tried_without_being_asked_for() -> None:
    study = Study(build, num_lanes=2 * MAX_LANES)
    study.train([{"lr": 0.1}] * (2 * MAX_LANES + 1))
    assert [len(numbers) for numbers in study.finished] == [2 * MAX_LANES, 1]


def test_large_groups_are_measured_again_only_where_lanes_have_doubled() -> None:
    study = Study(build, num_lanes=None)
    lanes = open_lanes({number: {"lr": 0.1} for number in range(600)})
    sizes = [Measurement(num_lanes=1 << power, seconds_per_lane_step=0.5**power) for power in range(9)]
    profile = Profile(num_lanes=256, reason="fastest", measurements=tuple(sizes))
    _, (work,) = study.grouper.sort(lanes[:300])
    study.grouper.take_profile(work, profile, None)
    assert study.grouper.sort(lanes[:511])[1] == []
    assert [len(work.waiting) for work in study.grouper.sort(lanes[:512])[1]] == [512]


def test_lanes_part_by_what_the_code_asks_for_one_thing_after_the_other() -> None:
    configs = [
        {"width": width, "act": act, "lr": lr} for width in (4, 8) for act in ("ReLU", "GELU") for lr in (0.1, 0.2, 0.9)
    ]
    study = Study(build)
    study.train(configs)
    assert sorted(study.done) == list(range(12))
    assert sorted(study.finished) == [(0, 1), (2,), (3, 4), (5,), (6, 7), (8,), (9, 10), (11,)]
    labels = [text.split("`")[1] for text, _ in study.remarks]
    assert labels == ["width", "act", "lr > 0.5"]


def test_what_was_learnt_is_remembered_for_trials_to_come() -> None:
    study = Study(build)
    study.train([{"width": 4}, {"width": 8}])
    study.groups.clear()
    study.train([{"width": 4}, {"width": 16}, {"width": 4}, {"width": 32}])
    assert study.groups == [(0, 2), (1,), (3,)]


def test_a_predicate_sorts_values_that_were_never_seen() -> None:
    study = Study(build)
    study.train([{"lr": 0.1}, {"lr": 0.9}])
    study.groups.clear()
    study.train([{"lr": 0.2}, {"lr": 0.8}, {"lr": 0.3}, {"lr": 0.7}])
    assert study.groups == [(0, 2), (1, 3)]


def test_an_exception_is_hunted_down_to_its_lane_while_the_others_finish() -> None:
    def train(trial: Trial) -> None:
        rate = trial.prepare_model(nn.Linear(1, 1)).weight.sum() * 0 + trial.config["lr"]
        if bool((rate == 0.3).item() == 1.5) or 0.3 in getattr(trial.config["lr"], "values", (trial.config["lr"],)):
            raise ValueError("no trial likes 0.3")
        trial.report(loss=rate)

    study = Study(train)
    study.train([{"lr": lr} for lr in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)])
    assert sorted(study.done) == [0, 1, 3, 4, 5, 6]
    assert study.failed.keys() == {2}
    assert "ValueError: no trial likes 0.3" in study.failed[2]
    assert study.groups == [(0, 1, 2, 3, 4, 5, 6), (0, 1, 2, 3), (0, 1), (2, 3), (2,), (3,), (4, 5, 6)]
    assert all("halves" in text for text, _ in study.remarks)


def test_when_all_lanes_fail_each_of_them_does() -> None:
    def train(trial: Trial) -> None:
        raise ValueError("never")

    study = Study(train)
    study.train([{"lr": 0.1}] * 3)
    assert study.failed.keys() == {0, 1, 2}


def branch(trial: Trial) -> None:
    """Takes another way where what the model computes is large, as often as the configuration says."""
    model = trial.prepare_model(nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0).mul_(trial.config["x"])
        loss, ways = model(torch.ones(1)).sum(), []
        for bound in trial.config["bounds"]:
            if loss > bound:
                ways += [bound]
    trial.report(loss=loss)


def test_lanes_that_compute_different_answers_fork_and_start_again() -> None:
    study = Study(branch)
    study.train([{"x": x, "bounds": (3.5,)} for x in range(6)])
    assert study.groups == [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3), (4, 5)]
    assert sorted(study.done) == list(range(6))
    assert study.remarks[0][0].startswith("lanes part by what they computed")
    assert study.remarks[0][1] == (0, 1, 2, 3, 4, 5)


def test_lanes_that_fork_too_often_train_apart() -> None:
    study = Study(branch)
    study.train([{"x": x, "bounds": tuple(x + 0.5 for x in range(9))} for x in range(8)])
    assert sorted(study.done) == list(range(8))
    assert any("lanes train apart" in text for text, _ in study.remarks)
    assert sum(len(group) > 1 for group in study.groups) <= 2**MAX_FORKS


def test_a_value_that_lanes_computed_and_the_code_needs_as_a_number_sets_them_apart() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        with torch.no_grad():
            model.bias.fill_(1.0).mul_(trial.config["x"])
            size = int(model.bias.item())
        nn.Linear(size, 1)
        trial.report(loss=1.0)

    study = Study(train)
    study.train([{"x": x} for x in (1, 2, 3)])
    assert sorted(study.done) == [0, 1, 2]
    assert study.groups[1:] == [(0,), (1,), (2,)]


def test_lanes_that_cannot_run_as_one_say_why_once_and_train_apart_for_good() -> None:
    def train(trial: Trial) -> None:
        trial.prepare_model(nn.Linear(1, 1)).weight.detach().numpy()
        trial.report(loss=1.0)

    study = Study(train)
    study.train([{"lr": 0.1}] * 3)
    assert study.groups == [(0, 1, 2), (0,), (1,), (2,)]
    study.groups.clear()
    study.train([{"lr": 0.1}] * 2)
    assert study.groups == [(0,), (1,)]
    assert len(study.remarks) == 1
    assert "numpy" in study.remarks[0][0]


def test_lanes_at_different_epochs_are_not_put_together() -> None:
    fresh, paused = open_lanes({0: {"lr": 0.1}, 1: {"lr": 0.1}}), open_lanes({2: {"lr": 0.1}}, start_epoch=3)
    groups, _ = Study(build).grouper.sort((*fresh, *paused))
    assert [group.numbers for group in groups] == [(0, 1), (2,)]


def test_the_number_of_lanes_is_measured_once_where_none_is_given() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        trial.report(loss=1.0)

    study = Study(train, num_lanes=None)
    study.train([{"lr": 0.001 * (number + 1)} for number in range(8)])
    assert sorted(study.done) == list(range(8))
    assert len(study.groups) < 8
    (profile,) = study.grouper.profiles
    assert study.recorded == [profile]
    assert profile.label == "all trials"
    assert study.grouper.seconds_alone(open_lanes({0: {"lr": 0.001}})[0]) == profile.seconds_alone
    assert "lanes in a group (all trials)" in study.remarks[0][0]


def know(profile: Profile) -> Grouper:
    """Return a grouper that goes by what an earlier study has measured."""
    learnt = Learnt(profiles=(KindProfile(kind=(), num_asked=profile.largest, profile=profile),))
    return Grouper(None, lambda text, lanes: None, lambda profile: None, learnt=learnt)


def test_lanes_of_other_studies_may_come_along_where_the_largest_size_was_the_best() -> None:
    sizes = [Measurement(num_lanes=size, seconds_per_lane_step=0.4 / size) for size in (1, 8)]
    (lane,) = open_lanes({0: {"lr": 0.1}})
    best = Profile(num_lanes=8, reason="", measurements=tuple(sizes))
    worse = Measurement(num_lanes=16, seconds_per_lane_step=0.3)
    assert know(best).count_most(lane) == MOST_BESIDE * 8
    assert know(replace(best, measurements=(*sizes, worse))).count_most(lane) == 8
    assert know(replace(best, num_lanes=1)).count_most(lane) == 1


def test_fewer_lanes_than_were_measured_as_one_train_as_one_too() -> None:
    sizes = (
        Measurement(num_lanes=1, seconds_per_lane_step=0.4),
        Measurement(num_lanes=16, seconds_per_lane_step=0.07),
    )
    grouper = know(Profile(num_lanes=16, reason="", measurements=sizes))
    lanes = open_lanes({number: {"lr": 0.1} for number in range(8)})
    groups, unknown = grouper.sort(lanes)
    assert [len(group) for group in groups] == [8]
    assert not unknown


@pytest.mark.parametrize(("num_lanes", "share"), [(1, 0.5), (2, 0.25), (3, 0.2), (9, 0.1)])
def test_the_share_of_loading_is_known_for_groups_between_those_that_were_measured(
    num_lanes: int, share: float
) -> None:
    measured = [
        Measurement(num_lanes=1, seconds_per_lane_step=0.2, peak_bytes=None, loading_s=0.1),
        Measurement(num_lanes=2, seconds_per_lane_step=0.2, peak_bytes=None, loading_s=0.1),
        Measurement(num_lanes=4, seconds_per_lane_step=0.15, peak_bytes=None, loading_s=0.1),
        Measurement(num_lanes=8, seconds_per_lane_step=0.125, peak_bytes=None, loading_s=0.1),
    ]
    grouper = know(Profile(num_lanes=8, reason="", measurements=tuple(measured)))
    lanes = tuple(Lane(number=number, config={}, seed=0) for number in range(num_lanes))
    assert grouper.find_loading_share(TrialGroup(lanes=lanes)) == pytest.approx(share)
    assert make_grouper().find_loading_share(TrialGroup(lanes=lanes)) is None


def test_what_the_code_asks_for_while_it_is_measured_is_learnt_too() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, trial.config["width"]))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=0.1)
        loader = trial.prepare_data_loader(torch.utils.data.TensorDataset(torch.ones(10_000, 2)))  # worth measuring
        for _ in trial.epochs(1):
            for step, (x,) in enumerate(loader):
                model(x).sum().backward()
                optimizer.step()
                if step == 10:
                    break
            trial.report(loss=1.0)

    study = Study(train, num_lanes=None)
    study.train([{"width": width} for width in (2, 3, 2, 3)])
    assert sorted(study.done) == [0, 1, 2, 3]
    assert all(set(group) in ({0, 2}, {1, 3}, {0}, {1}, {2}, {3}) for group in study.groups)
    assert {profile.label for profile in study.recorded} == {"width = 2", "width = 3"}


def test_lanes_that_raise_only_in_each_others_company_train_apart() -> None:
    def train(trial: Trial) -> None:
        if len(trial.lanes) > 1:
            raise RuntimeError("not with others")
        trial.report(loss=1.0)

    study = Study(train)
    study.train([{"lr": 0.1}] * 4)
    assert sorted(study.done) == [0, 1, 2, 3]
    assert study.failed == {}
    study.groups.clear()
    study.train([{"lr": 0.1}] * 4)
    assert study.groups == [(0,), (1,), (2,), (3,)]
    reason = "lanes train apart: the function raises for lanes in a group only: RuntimeError: not with others"
    assert [text for text, _ in study.remarks].count(reason) == 1


def test_what_was_learnt_holds_for_the_groups_that_wait() -> None:
    study = Study(build, num_lanes=2)
    study.train([{"width": width} for width in (4, 8, 4, 8)])
    assert study.groups == [(0, 1), (0, 2), (1, 3)]


def make_grouper() -> Grouper:
    """Return one that knows that lanes part by their widths, and then by their depths."""
    recipes = tuple(Recipe(name, Key((name,))) for name in ("width", "depth"))
    return Grouper(16, lambda text, lanes: None, lambda profile: None, learnt=Learnt(recipes=recipes))


def run_out(grouper: Grouper, lanes: Sequence[Lane]) -> list[int]:
    """Have a group run out of memory, and return the sizes of those that come of it."""
    return [len(group) for group in grouper.part(Ending(outcome=Outcome.OUT_OF_MEMORY, lanes=tuple(lanes)))]


def sort(grouper: Grouper, lanes: Sequence[Lane]) -> list[int]:
    return [len(group) for group in grouper.sort(lanes)[0]]


def test_groups_of_a_kind_that_ran_out_of_memory_are_halved_and_others_are_not() -> None:
    grouper = make_grouper()
    wide, narrow = (open_lanes({n: {"width": width, "depth": 1} for n in range(5)}) for width in (8, 2))
    assert run_out(grouper, wide) == [3, 2]
    assert sort(grouper, wide) == [3, 2]
    assert sort(grouper, narrow) == [5]


def test_what_is_known_of_more_since_was_of_a_kind_that_ran_out_of_memory() -> None:
    grouper = Grouper(16, lambda text, lanes: None, lambda profile: None)
    lanes = open_lanes({n: {"width": 8} for n in range(5)})
    run_out(grouper, lanes)
    grouper.part(
        Ending(outcome=Outcome.PARTED, lanes=tuple(lanes), question=Question(Recipe("width", Key(("width",))), "why"))
    )
    assert sort(grouper, lanes) == [3, 2]


def test_a_trial_that_does_not_fit_alone_takes_the_blame_for_its_groups() -> None:
    grouper = make_grouper()
    lanes = open_lanes({n: {"width": 8, "depth": 1} for n in range(4)})
    assert run_out(grouper, lanes) == [2, 2]
    assert run_out(grouper, lanes[2:]) == [1, 1]
    grouper.excuse(lanes[3])
    assert sort(grouper, lanes) == [4]
