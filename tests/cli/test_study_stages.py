"""What a study is going to train by a plan, against what it then trains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tests.cloud.test_following import INSTANCE
from torch import nn

import headwater as hw
from headwater.cli.study_stages import follow_plan, list_job_stages, list_scales
from headwater.cloud.following import count_left, find_stage
from headwater.conduct.protocol import Conductor
from headwater.errors import PlanError
from headwater.execute import InlineExecutor
from headwater.measuring import recall_times
from headwater.plan.jobs import EpochSeconds, Job, JobStage, Part
from headwater.report import Callback
from headwater.trials import Event, Lane, Order, Report, Reported


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(9):
        optimizer.zero_grad()
        loss = model(torch.ones(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)


def make_study(search: str = "halving", max_epochs: int | None = 9) -> hw.Study:
    return hw.Study(
        train,
        space={"lr": hw.loguniform(1e-3, 0.1)},
        metric="loss",
        search=search,
        max_epochs=max_epochs,
        storage=None,
        lanes=1,
        packing=None,
        executor="inline",
    )


def outline(study: hw.Study, num_trials: int) -> list[tuple[int, int, int]]:
    stages = list_job_stages(study, num_trials)
    assert stages is not None
    return [(stage.num_trials, stage.num_epochs, stage.bracket) for stage in stages]


def test_stages_come_from_the_search() -> None:
    assert outline(make_study(), 9) == [(9, 1, 0), (3, 3, 0), (1, 5, 0)]
    assert outline(make_study("random"), 4) == [(4, 9, 0)]
    assert outline(make_study("hyperband"), 17) == [(9, 1, 0), (3, 2, 0), (1, 6, 0), (5, 3, 1), (1, 6, 1), (3, 9, 2)]
    assert list_job_stages(make_study("asha"), 9) is None
    with pytest.raises(PlanError, match="give --max-epochs"):
        list_job_stages(make_study("random", max_epochs=None), 4)


class Followed(Callback):
    """Follows in which stage of a plan a study is, as whoever sees to its nodes does."""

    def __init__(self, stages: list[JobStage]) -> None:
        self.epochs: Counter[int] = Counter()
        self._stages = stages
        self._lanes: dict[int, Lane] = {}

    def on_start(self, lanes: Sequence[Lane]) -> None:
        self._lanes |= {lane.number: lane for lane in lanes}

    def on_reports(self, reports: Sequence[Report]) -> None:
        lanes = [self._lanes[report.number] for report in reports]
        self.epochs[find_stage(self._stages, lanes)] += len(reports)


@pytest.mark.parametrize(("search", "num_trials"), [("halving", 9), ("hyperband", 17), ("hyperband", 20)])
def test_a_study_trains_stage_by_stage_what_was_planned(search: str, num_trials: int) -> None:
    study = follow_plan(make_study(search))
    stages = list_job_stages(study, num_trials)
    assert stages is not None
    followed = Followed(stages)
    result = replace(study, callbacks=[followed]).run(num_trials)
    assert followed.epochs == {place: stage.num_trials * stage.num_epochs for place, stage in enumerate(stages)}
    plain = make_study(search).run(num_trials)
    assert [(one.number, one.epochs) for one in result.trials] == [(one.number, one.epochs) for one in plain.trials]
    assert [one.metrics for one in result.trials] == [one.metrics for one in plain.trials], "only the order differs"


def test_a_lane_of_a_later_bracket_is_in_a_later_stage() -> None:
    stages = list_job_stages(make_study("hyperband"), 17)
    assert stages is not None
    lanes = [Lane(number=number, config={}, seed=0, start_epoch=2, until=3) for number in (4, 10)]
    assert [find_stage(stages, [lane]) for lane in lanes] == [1, 3]
    assert find_stage(stages, lanes) == 1, "who is behind decides"
    assert count_left(stages, 3, lanes[1:]) == 1


def test_a_surrogate_study_is_searched_checked_and_trained() -> None:
    study = replace(make_study(), surrogate=8)
    stages = list_job_stages(study, 9)
    assert stages is not None
    assert [(stage.part, stage.num_trials, stage.num_epochs, stage.scale) for stage in stages] == [
        (Part.SEARCH, 9, 1, 8),
        (Part.SEARCH, 3, 3, 8),
        (Part.SEARCH, 1, 5, 8),
        (Part.CHECK, 6, 9, 4),
        (Part.TARGET, 1, 9, 1),
    ]
    assert list_scales(study) == [8, 4]
    assert find_stage(stages, None, Part.CHECK) == 3
    assert find_stage(stages, [Lane(number=0, config={}, seed=0)], Part.TARGET) == 4
    assert list_job_stages(replace(study, surrogate="auto"), 9) is None, "its width is chosen on the way"


class Watched:
    """A conductor that notes in which stage of a plan every report is made, as whoever sees to its nodes does."""

    def __init__(self, conductor: Conductor, stages: list[JobStage], epochs: Counter[int]) -> None:
        self.brief, self.place, self.foresee = conductor.brief, conductor.place, conductor.foresee
        self.name, self.list_lanes, self.regroup = conductor.name, conductor.list_lanes, conductor.regroup
        self.is_to_end = conductor.is_to_end
        self.want_devices = conductor.want_devices
        self._conductor, self._stages, self._epochs = conductor, stages, epochs

    @property
    def part(self) -> Part:
        return self._conductor.part

    def hear(self, event: Event) -> Order | None:
        if isinstance(event, Reported):
            stage = find_stage(self._stages, self._conductor.list_lanes(), self._conductor.part)
            self._epochs[stage] += len(event.reports)
        return self._conductor.hear(event)


class WatchedExecutor:
    """Trains here, and counts epochs by stages."""

    def __init__(self, stages: list[JobStage]) -> None:
        self.epochs: Counter[int] = Counter()
        self._stages = stages
        self._executor = InlineExecutor()
        self.list_devices, self.close = self._executor.list_devices, self._executor.close

    def run(self, conductor: Conductor) -> None:
        self._executor.run(Watched(conductor, self._stages, self.epochs))


@pytest.fixture(scope="module")
def transferred(tmp_path_factory: pytest.TempPathFactory) -> tuple[hw.Study, list[JobStage], Counter[int]]:
    """Return a study with a surrogate that has run, its stages, and how many epochs were trained in each."""
    storage = tmp_path_factory.mktemp("transferred") / "study.db"
    surrogate = hw.Surrogate(scale=8, min_agreement=-1.0)  # what is trained besides where widths disagree has no plan
    study = follow_plan(replace(make_study(), surrogate=surrogate, storage=storage))
    stages = list_job_stages(study, 9)
    assert stages is not None
    executor = WatchedExecutor(stages)
    result = replace(study, executor=executor).run(9)
    assert result.target is not None
    return study, stages, executor.epochs


def test_search_check_and_target_are_trained_as_they_were_planned(
    transferred: tuple[hw.Study, list[JobStage], Counter[int]],
) -> None:
    _, stages, epochs = transferred
    assert epochs == {place: stage.num_trials * stage.num_epochs for place, stage in enumerate(stages)}


def test_times_of_narrow_models_come_from_the_stages_in_the_record(
    transferred: tuple[hw.Study, list[JobStage], Counter[int]],
) -> None:
    study, stages, _ = transferred
    times = recall_times(study, list_scales(study))
    assert times.epoch_seconds is not None
    job = Job(stages=stages, epoch_seconds=times.epoch_seconds, instance=INSTANCE, by_scale=times.by_scale)
    assert set(job.by_scale) == {8, 4}


def test_narrow_models_take_the_times_of_their_width() -> None:
    stages = list_job_stages(replace(make_study("random"), surrogate=8), 9)
    assert stages is not None
    times = EpochSeconds(by_devices={1: 60.0})
    with pytest.raises(PlanError, match=r"nothing says how long epochs take at 1/8 of the width; give `widths: \{8:"):
        Job(stages=stages, epoch_seconds=times, instance=INSTANCE)
    by_scale = {8: EpochSeconds(by_devices={1: 2.0}), 4: EpochSeconds(by_devices={1: 6.0})}
    job = Job(stages=stages, epoch_seconds=times, instance=INSTANCE, by_scale=by_scale)
    assert [job.find_times(stage).at(1) for stage in stages] == [2.0, 6.0, 60.0]
