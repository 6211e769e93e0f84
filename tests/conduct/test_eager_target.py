"""Which trial the target could start with while the search goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.execute.simulation import list_gpus, never_called
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.conduct.eager_target import EagerChoice
from headwater.conduct.protocol import Conductor
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.space import Config
from headwater.store import StudyInfo, open_store, read_spans
from headwater.trials import Device, Lane, Objective, Placement, Report, Status, Surrogate, TrialRecord


def make_choice(num_trials: int | None = 4, share: float = 0.5, mode: str = "min") -> EagerChoice:
    choice = EagerChoice(Objective("loss", mode), num_trials, share)
    choice.on_start([Lane(number=number, config={"lr": number}, seed=0) for number in range(4)])
    return choice


def end(choice: EagerChoice, number: int, loss: float, status: Status = Status.COMPLETED) -> None:
    choice.on_reports([Report(number=number, epoch=1, metrics={"loss": loss})])
    choice.on_end(number, status)


def test_it_is_too_early_until_a_share_of_the_trials_has_ended() -> None:
    choice = make_choice()
    end(choice, 0, 0.5)
    assert choice.find() is None
    end(choice, 1, 0.6)
    assert choice.find() == (0, {"lr": 0})


@pytest.mark.parametrize(("mode", "best"), [("min", 2), ("max", 1)])
def test_the_best_of_those_that_completed_is_taken(mode: str, best: int) -> None:
    choice = make_choice(mode=mode)
    for number, loss in ((0, 0.5), (1, 0.6), (2, 0.4)):
        end(choice, number, loss)
    assert choice.find() == (best, {"lr": best})


def test_of_equals_the_first_is_taken_so_that_nothing_starts_again() -> None:
    choice = make_choice()
    for number in (1, 0, 2):
        end(choice, number, 0.5)
    found = choice.find()
    assert found is not None
    assert found[0] == 0


@pytest.mark.parametrize("status", [Status.PAUSED, Status.STOPPED, Status.FAILED])
def test_a_trial_that_was_not_trained_to_its_end_counts_as_ended_but_is_never_taken(status: Status) -> None:
    choice = make_choice()
    end(choice, 0, 0.1, status)
    end(choice, 1, 0.5, status)
    assert choice.find() is None
    end(choice, 2, 0.9)
    assert choice.find() == (2, {"lr": 2})


def train_many(losses: Sequence[float], *, wobble: float) -> EagerChoice:
    """Return a choice among trials of two epochs, the last of which moves each of them up or down."""
    choice = EagerChoice(Objective("loss", "min"), len(losses), 0.5)
    choice.on_start([Lane(number=number, config={"lr": number}, seed=0) for number in range(len(losses))])
    for number, loss in enumerate(losses):
        before = loss + 0.1 + (wobble if number % 2 else -wobble)
        choice.on_reports([Report(number=number, epoch=1, metrics={"loss": before})])
        end(choice, number, loss)
    return choice


def records_of(losses: Sequence[float], *, wobble: float) -> list[TrialRecord]:
    trials = [
        TrialRecord(
            number=number,
            config={"lr": number},
            status=Status.COMPLETED,
            history=(
                Report(number=number, epoch=1, metrics={"loss": loss + 0.1 + (wobble if number % 2 else -wobble)}),
                Report(number=number, epoch=2, metrics={"loss": loss}),
            ),
        )
        for number, loss in enumerate(losses)
    ]
    return sorted(trials, key=lambda trial: trial.value("loss"))


@pytest.mark.parametrize(("wobble", "chosen"), [(0.02, 7), (0.005, 55)])
def test_a_later_trial_replaces_the_best_of_the_first_only_where_it_is_better_by_more_than_chance(
    wobble: float, chosen: int
) -> None:
    losses = [0.5 + number / 100 for number in range(64)]
    losses[7], losses[55] = 0.4, 0.39
    choice = train_many(losses, wobble=wobble)
    assert choice.is_likely
    assert choice.find() == (chosen, {"lr": chosen})
    ranked = records_of(losses, wobble=wobble)
    arranged = choice.arrange(ranked)
    assert arranged[0].number == chosen
    assert sorted(trial.number for trial in arranged) == list(range(64))
    assert ("trial 55 came later" in choice.explain(chosen)) == (chosen == 7)


def test_what_a_few_trials_show_is_not_taken_for_chance() -> None:
    losses = [0.5, 0.4, 0.6, 0.39]
    choice = train_many(losses, wobble=0.1)
    assert not choice.is_likely
    assert choice.find() == (3, {"lr": 3})
    assert choice.arrange(records_of(losses, wobble=0.1))[0].number == 3


def test_a_search_that_stops_trials_or_has_not_proposed_all_may_still_find_better_ones() -> None:
    choice = train_many([0.5] * 40, wobble=0.1)
    end(choice, 2, math.nan, Status.STOPPED)
    assert choice.is_likely
    choice.on_end(3, Status.STOPPED)
    assert not choice.is_likely
    some = EagerChoice(Objective("loss", "min"), 80, 0.5)
    some.on_start([Lane(number=number, config={}, seed=0) for number in range(60)])
    for number in range(50):
        end(some, number, 0.5)
    assert not some.is_likely


def test_what_is_not_finite_is_never_taken() -> None:
    choice = make_choice()
    for number in (0, 1, 2):
        end(choice, number, math.nan)
    assert choice.find() is None


@pytest.mark.parametrize(("num_trials", "share"), [(None, 0.5), (4, 1.0)])
def test_without_an_end_or_where_nothing_is_to_be_eager_it_stays_too_early(
    num_trials: int | None, share: float
) -> None:
    choice = make_choice(num_trials, share)
    for number in range(4):
        end(choice, number, 0.5)
    assert choice.find() is None


def test_it_knows_what_the_record_calls_the_search() -> None:
    choice = make_choice()
    with open_store(None) as store:
        choice.on_study(StudyInfo(name="mine", metric="loss", mode="min", seed=0, settings={}), store)
    assert choice.name == "mine"


def count_places(config: Config, epoch: int) -> Mapping[str, float]:
    return {"loss": float(config["place"])}


def make_study(executor: SimulatedExecutor, path: Path) -> hw.Study:
    """Return a study whose best trial is in a slow group, so that the target starts with another trial before."""
    return hw.Study(
        never_called,
        space={"place": hw.grid(list(range(64)))},
        metric="loss",
        storage=path,
        name="s",
        executor=executor,
        lanes=16,
        packing=None,
        surrogate=Surrogate(scale=2, eager=0.5, num_checked=0),
    )


TIMES = SimulatedTimes(
    epoch_s=lambda config, num_lanes, kind: 10.0 if config["place"] < 16 else 3.0, num_epochs=2, speedups={2: 1.0}
)


def test_a_target_that_takes_the_last_idle_device_does_not_end_a_search_with_lanes_that_wait(tmp_path: Path) -> None:
    executor = SimulatedExecutor(list_gpus(2), count_places, TIMES)
    result = make_study(executor, tmp_path / "s.db").run(watcher=hw.Silence())
    assert {trial.status for trial in result.trials} == {Status.COMPLETED}
    assert_no_overlap(tmp_path / "s.db")
    with open_store(tmp_path / "s.db", create=False) as store:
        studies = {span.study for span in read_spans(store)}
    assert studies == {"s", "s.target-0", "s.target-16"}, "also the target that another one replaced"


class Offering:
    """A conductor to which the device of a target is offered again at once."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    def __getattr__(self, name: str) -> Any:  # Any: whatever the conductor has
        return getattr(self._conductor, name)

    def place(self, idle: Sequence[Device]) -> Sequence[Placement]:
        placements = self._conductor.place(idle)
        taken = {name for one in placements if ".target-" in one.study for name in one.devices}
        return placements if not taken else self._conductor.place([one for one in idle if one.name in taken])


class OfferingExecutor(SimulatedExecutor):
    def run(self, conductor: Conductor) -> None:
        super().run(cast(Conductor, Offering(conductor)))


def test_the_search_is_not_placed_on_the_device_of_a_target_that_runs(tmp_path: Path) -> None:
    study = make_study(OfferingExecutor(list_gpus(2), count_places, TIMES), tmp_path / "s.db")
    with pytest.raises(AssertionError, match="handed out to 's' while a group still trains there"):
        study.run(watcher=hw.Silence())
