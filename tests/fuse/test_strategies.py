"""Which way to compute something is chosen by time, once, and for good."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.train.lab import Notebook
from torch import Tensor, nn

from headwater.fuse.strategies import NUM_BORROWINGS, NUM_LAPS, Strategies, rehearse
from headwater.train import Trial
from headwater.train.running import TrainingSetup, run_group
from headwater.trials import ChosenWay, Lane, Learnt, Outcome, TrialGroup


class Stopwatch:
    """A clock on which ways take as long as they say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs: list[str] = []

    def way(self, name: str, *seconds: float) -> Callable[[], None]:
        """Return a way that takes the first of the times on its first run, and so on; the last for ever."""
        left = list(seconds)

        def run() -> None:
            self.runs.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run

    def read(self) -> float:
        return self.now


def test_the_fastest_way_is_chosen_and_measured_once() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    ways = {"slow": watch.way("slow", 2.0), "fast": watch.way("fast", 5.0, 1.0)}
    assert [strategies.choose("key", ways) for _ in range(3)] == ["fast"] * 3
    assert watch.runs == ["slow", "fast"] * 3
    assert strategies.seconds == {("key", 1): {"slow": 2.0, "fast": 1.0}}


def test_short_ways_are_timed_more_often_so_that_a_disturbance_does_not_decide() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    ways = {"slow": watch.way("slow", 1.5e-3), "fast": watch.way("fast", *[3e-3] * 3, 1e-3)}
    assert strategies.choose("key", ways) == "fast"
    assert 6 < len(watch.runs) < 20


def test_a_hopeless_way_is_run_once() -> None:
    watch = Stopwatch()
    Strategies(clock=watch.read).choose("key", {"good": watch.way("good", 1.0), "bad": watch.way("bad", 9.0)})
    assert watch.runs.count("bad") == 1


def test_another_size_borrows_until_it_has_come_often() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    strategies.choose("key", {"a": watch.way("a", 1.0), "b": watch.way("b", 2.0)}, size=64)
    last_batch = {"a": watch.way("a", 2.0), "b": watch.way("b", 1.0)}
    choices = [strategies.choose("key", last_batch, size=5) for _ in range(NUM_BORROWINGS + 2)]
    assert choices == ["a"] * NUM_BORROWINGS + ["b"] * 2
    assert strategies.choose("key", last_batch, size=100) == "a"


def test_a_preset_way_is_taken_unmeasured() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read, preset=["unknown", "b"])
    assert strategies.choose("key", {"a": watch.way("a", 1.0), "b": watch.way("b", 2.0)}) == "b"
    assert not watch.runs


def test_the_only_way_is_not_measured() -> None:
    watch = Stopwatch()
    assert Strategies(clock=watch.read).choose("key", {"only": watch.way("only", 1.0)}) == "only"
    assert not watch.runs


class Model:
    """What takes steps."""


def run_race(watch: Stopwatch, strategies: Strategies, model: Model, seconds: dict[str, float]) -> list[str]:
    """Take steps in which two layers ask for the way and somebody else goes along; return the ways gone."""
    ways = []
    for _ in range(2 * NUM_LAPS + 3):
        ways.append(strategies.race(model, list(seconds), "first layer", "kind"))
        assert strategies.race(model, list(seconds), "second layer", "other kind") == ways[-1]
        assert strategies.race(model, list(seconds)) == ways[-1]
        watch.now += seconds[ways[-1]]
    return ways


@pytest.mark.parametrize("best", ["a", "b"])
def test_a_race_is_won_by_the_way_with_the_shortest_steps(best: str) -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    seconds = {"a": 2.0, "b": 2.0, best: 1.0}
    ways = run_race(watch, strategies, Model(), seconds)
    assert ways == ["a", "b"] * NUM_LAPS + [best] * 3
    assert strategies.race(Model(), ["a", "b"], "layer of a model like it", "kind") == best
    assert strategies.race(Model(), ["a", "b"], "layer of another", "other kind") == "a"
    assert next(iter(strategies.seconds.values())) == pytest.approx(seconds)


def test_a_race_does_not_count_steps_of_another_size() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    model = Model()
    for kind, step in [("whole", 5.0), ("rest", 0.1), ("whole", 4.0), ("rest", 0.1)] * NUM_LAPS * 2 + [("whole", 5.0)]:
        watch.now += step * (2 if strategies.race(model, ["a", "b"], "layer", kind) == "a" else 1)
    assert next(iter(strategies.seconds.values())) == pytest.approx({"a": 10.0, "b": 4.0})


def test_a_race_goes_on_behind_another_leader_when_the_first_is_gone() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    model = Model()
    strategies.race(model, ["a", "b"], "layer", "kind")
    assert run_race(watch, strategies, model, {"a": 2.0, "b": 1.0})[-1] == "b"


def test_there_is_no_race_where_results_must_not_depend_on_time() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    torch.use_deterministic_algorithms(True)
    try:
        assert set(run_race(watch, strategies, Model(), {"a": 2.0, "b": 1.0})) == {"a"}
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_was_measured_can_go_to_another_process() -> None:
    strategies = Strategies()
    strategies.choose("key", {"a": lambda: None, "b": lambda: None}, size=64)
    strategies.race(Model(), ["a", "b"], "layer", "kind")
    moved = pickle.loads(pickle.dumps(strategies))
    assert moved.seconds == strategies.seconds
    assert moved.choose("key", {}, size=64) in {"a", "b"}
    assert moved.race(Model(), ["a", "b"], "layer", "kind") == "a"


def test_ways_chosen_elsewhere_are_adopted_without_measuring() -> None:
    elsewhere, watch = Stopwatch(), Stopwatch()
    measured, strategies = Strategies(clock=elsewhere.read), Strategies(clock=watch.read)
    key = ("linear", (2, 3), torch.float32)
    measured.choose(key, {"a": elsewhere.way("a", 2.0), "b": elsewhere.way("b", 1.0)}, size=64)
    run_race(elsewhere, measured, Model(), {"a": 2.0, "b": 1.0})
    strategies.adopt(Learnt.from_json(Learnt(strategies=measured.export()).to_json()).strategies)
    ways = {"a": watch.way("a", 1.0), "b": watch.way("b", 2.0)}
    assert [strategies.choose(key, ways, size) for size in (64, 100, 5)] == ["b"] * 3
    assert run_race(watch, strategies, Model(), {"a": 1.0, "b": 2.0}) == ["b"] * (2 * NUM_LAPS + 3)
    assert not watch.runs
    assert set(strategies.export()) == set(measured.export())


def test_what_was_adopted_and_not_used_yet_is_handed_on() -> None:
    ways = (ChosenWay(key="'key'", magnitude=3, way="a"), ChosenWay(key="'key'", magnitude=9, way="b"))
    strategies = Strategies()
    strategies.adopt(ways)
    assert strategies.export() == ways


def test_an_adopted_way_that_is_not_on_offer_is_measured() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    strategies.adopt([ChosenWay(key="'key'", magnitude=1, way="gone")])
    assert strategies.choose("key", {"a": watch.way("a", 2.0), "b": watch.way("b", 1.0)}) == "b"
    assert watch.runs


def test_an_adopted_size_lends_its_way_until_another_has_come_often() -> None:
    watch = Stopwatch()
    strategies = Strategies(clock=watch.read)
    strategies.adopt([ChosenWay(key="'key'", magnitude=7, way="a")])
    ways = {"a": watch.way("a", 2.0), "b": watch.way("b", 1.0)}
    choices = [strategies.choose("key", ways, size=5) for _ in range(NUM_BORROWINGS + 1)]
    assert choices == ["a"] * NUM_BORROWINGS + ["b"]


def test_a_preset_way_comes_before_an_adopted_one() -> None:
    strategies = Strategies(preset=["b"])
    strategies.adopt([ChosenWay(key="'key'", magnitude=1, way="a")])
    assert strategies.choose("key", {"a": lambda: None, "b": lambda: None}) == "b"


def test_lanes_of_another_process_choose_as_the_first_did_and_measure_nothing() -> None:
    def read_no_clock() -> float:
        raise AssertionError("something was measured")

    first = Strategies()
    train_lanes(first)
    assert {key[0] for key, _ in first.choices if isinstance(key, tuple)} >= {"convolution", "linear"}
    second = Strategies(clock=read_no_clock)
    second.adopt(Learnt.from_json(Learnt(strategies=first.export()).to_json()).strategies)
    train_lanes(second)
    assert second.choices
    assert second.choices.items() <= first.choices.items()
    assert set(second.export()) == set(first.export())


def train_lanes(strategies: Strategies) -> None:
    """Train three lanes of a small model until all races are over."""

    def train(trial: Trial) -> None:
        readout = nn.Linear(144, 2)
        model = trial.prepare_model(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), readout))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in range(2 * NUM_LAPS + 4):
            optimizer.zero_grad()
            loss = model(torch.ones(5, 1, 8, 8)).square().mean() + readout(torch.ones(3, 144)).sum()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())

    lanes = tuple(Lane(number=number, config={"lr": 0.1 * number}, seed=0) for number in range(1, 4))
    ending = run_group(TrainingSetup(train, strategies=strategies), TrialGroup(lanes=lanes), Notebook())
    assert ending.outcome is Outcome.DONE, ending


def test_a_rehearsal_touches_no_gradient() -> None:
    weight = torch.ones(3, requires_grad=True)
    rehearse(lambda weight: weight.square(), [weight])()
    assert weight.grad is None


def test_a_rehearsal_goes_back_only_where_gradients_are_wanted() -> None:
    hooked: list[Tensor] = []

    def run(weight: Tensor) -> Tensor:
        y = F.relu(weight)
        if y.requires_grad:
            y.register_hook(hooked.append)
        return y

    weight = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        rehearse(run, [weight])()
    assert not hooked
    rehearse(run, [weight])()
    assert len(hooked) == 1
