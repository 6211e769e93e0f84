"""`trial.keep_best`: of each lane the weights that it had when its value was best, whatever group it trained in."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.train.lab import require_equal_states, run, run_alone, run_done
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.search import PBT
from headwater.train import Trial
from headwater.train.best_weights import choose_weights
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.engines import LaneState
from headwater.trials import Decision, Outcome, Report

NUM_EPOCHS = 6
X = torch.linspace(-1, 1, 24, dtype=torch.float64).view(8, 3)
CONFIGS: list[dict[str, Any]] = [{"lr": 0.05 * (number + 1), "peak": peak} for number, peak in enumerate((2, 0, 5, 3))]
"""At which epoch, counted from 0, each trial is best."""


def grow(trial: Trial, offer: Callable[..., None]) -> None:
    """Train a model whose weights and buffers change at every epoch."""
    model = trial.prepare_model(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for epoch in trial.epochs(NUM_EPOCHS):
        optimizer.zero_grad()
        loss = (model(X) - X.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        distance = (epoch - trial.config["peak"]) ** 2
        offer(trial, model, distance)
        trial.report(loss=distance)


def keep_nearest(trial: Trial) -> None:
    grow(trial, lambda trial, model, distance: trial.keep_best(model, distance))


def weights_by_epoch(config: dict[str, Any], number: int = 0) -> list[dict[str, Tensor]]:
    """Return what a trial alone has learnt after each epoch."""
    seen: list[dict[str, Tensor]] = []

    def train(trial: Trial) -> None:
        grow(trial, lambda _, model, __: seen.append({k: v.clone() for k, v in model.state_dict().items()}))

    run_alone(train, config, number)
    return seen


def require_weights(state: LaneState, expected: dict[str, Tensor]) -> None:
    (weights,) = choose_weights(state)
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-12, atol=1e-12)


def test_each_lane_keeps_the_weights_of_its_own_best_epoch() -> None:
    notes = run_done(keep_nearest, CONFIGS)
    for number, config in enumerate(CONFIGS):
        require_equal_states(notes.states[number], run_alone(keep_nearest, config, number).states[number])
        require_weights(notes.states[number], weights_by_epoch(config, number)[config["peak"]])
        assert notes.states[number].bests[0]["epoch"] == config["peak"] + 1


def test_lanes_that_leave_do_not_take_the_weights_of_others_along() -> None:
    def leave(report: Report) -> Decision:
        return Decision.STOP if (report.number, report.epoch) in ((0, 2), (1, 3)) else Decision.CONTINUE

    notes = run_done(keep_nearest, CONFIGS, decide=leave)
    for number, epoch in ((0, 1), (1, 0), (2, 5), (3, 3)):
        require_weights(notes.states[number], weights_by_epoch(CONFIGS[number], number)[epoch])


@pytest.mark.parametrize("always_fuse", [True, False])
def test_what_was_best_before_a_pause_is_best_after_it(always_fuse: bool) -> None:
    def pause(report: Report) -> Decision:
        return Decision.STOP if report.epoch == 3 else Decision.CONTINUE

    before = run_done(keep_nearest, CONFIGS, decide=pause)
    saved = {
        number: decode_state(encode_state(state, "s", number), "s", number) for number, state in before.states.items()
    }
    for numbers in ([0, 2], [1], [3]):
        configs = {number: CONFIGS[number] for number in numbers}
        states = [saved[number] for number in numbers]
        after = run_done(keep_nearest, configs, states=states, always_fuse=always_fuse or len(numbers) > 1)
        for number in numbers:
            require_weights(after.states[number], weights_by_epoch(CONFIGS[number], number)[CONFIGS[number]["peak"]])


def keep_in_an_if(trial: Trial) -> None:
    """Keep the weights of every epoch that is nearer to the peak, by a condition that lanes answer differently."""
    model = trial.prepare_model(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    scale = torch.ones((), dtype=torch.float64) * trial.config["peak"]
    least = 100.0
    for epoch in trial.epochs(NUM_EPOCHS):
        optimizer.zero_grad()
        (model(X) - X.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        distance = (epoch - scale).square().item()
        if distance < least:
            least = distance
            trial.keep_best(model, -float(epoch), mode="min")
            trial.note(nearest=epoch, distance=distance)
        trial.report(loss=distance)


def test_lanes_keep_weights_and_notes_in_an_if_that_they_answer_differently() -> None:
    together = run(keep_in_an_if, CONFIGS)
    assert together.outcome is Outcome.DONE, together.reason
    for number, config in enumerate(CONFIGS):
        alone = run_alone(keep_in_an_if, config, number)
        require_equal_states(together.notes.states[number], alone.states[number])
        require_weights(together.notes.states[number], weights_by_epoch(config, number)[config["peak"]])
        assert together.notes.states[number].bests[0]["epoch"] == config["peak"] + 1


def test_notes_of_an_if_are_those_of_the_lanes_that_take_it() -> None:
    space = {"peak": hw.choice([2, 0, 5, 3]), "lr": hw.choice([0.05])}
    study = hw.Study(keep_in_an_if, space=space, metric="loss", lanes=4, search="grid", executor="inline", storage=None)
    result = study.run()
    assert [trial.notes for trial in result.trials] == [()] * 4
    assert [trial.attributes for trial in result.trials] == [
        {"nearest": trial.config["peak"], "distance": 0.0} for trial in result.trials
    ]


def note_a_model(trial: Trial, model: nn.Module) -> None:
    trial.note(model=model)


def note_a_list(trial: Trial, model: nn.Module) -> None:
    trial.note(values=[1.0])


def keep_by_another_method(trial: Trial, model: nn.Module) -> None:
    trial.keep(best=1.0)


@pytest.mark.parametrize("act", [note_a_model, note_a_list, keep_by_another_method])
def test_lanes_part_where_one_side_of_an_if_keeps_anything_else(act: Callable[[Trial, nn.Module], None]) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(3, 1).double())
        for _ in trial.epochs(1):
            if (torch.ones(()) * trial.config["peak"]).item() > 2:
                act(trial, model)
            trial.report(loss=1.0)

    assert run(train, CONFIGS).outcome is Outcome.APART


def test_values_that_are_not_finite_are_never_the_best() -> None:
    def train(trial: Trial) -> None:
        def offer(trial: Trial, model: nn.Module, distance: Any) -> None:
            trial.keep_best(model, torch.where(distance > 3, math.nan, -math.inf if trial.seed == 0 else distance))

        grow(trial, lambda trial, model, distance: offer(trial, model, torch.as_tensor(1.0) * distance))

    notes = run_done(train, [{"lr": 0.1, "peak": 2}, {"lr": 0.2, "peak": 90}])
    assert notes.states[0].bests[0]["epoch"] == 3
    assert notes.states[1].bests == [], "its last weights are all it has"
    require_weights(notes.states[1], weights_by_epoch({"lr": 0.2, "peak": 90}, 1)[-1])


def test_a_mode_of_its_own_goes_before_that_of_the_study() -> None:
    notes = run_done(
        lambda trial: grow(trial, lambda trial, model, distance: trial.keep_best(model, distance, mode="max")), CONFIGS
    )
    assert [notes.states[number].bests[0]["epoch"] for number in range(4)] == [6, 6, 1, 1], "of equals, the first"


def test_each_of_several_models_has_a_best_of_its_own() -> None:
    def train(trial: Trial) -> None:
        first, second = (trial.prepare_model(nn.Linear(1, 1)) for _ in range(2))
        for epoch in trial.epochs(3):
            for model in (first, second):
                nn.init.constant_(model.weight, float(epoch))
            trial.keep_best(second, -epoch if epoch < 2 else 5)
            trial.report(loss=trial.config["lr"])

    state = run_done(train, [{"lr": 0.1}, {"lr": 0.2}]).states[1]
    assert [weights["weight"].item() for weights in choose_weights(state)] == [2.0, 1.0]


@pytest.mark.parametrize("always_fuse", [True, False])
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda trial, model: trial.keep_best(nn.Linear(1, 1), 0.0), "Linear that is no model of the trial's"),
        (lambda trial, model: trial.keep_best(model, 0.0, mode="best"), "must be 'min' or 'max'"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_a_line(
    call: Callable[[Trial, nn.Module], None], text: str, always_fuse: bool
) -> None:
    done = run(lambda trial: call(trial, trial.prepare_model(nn.Linear(1, 1))), [{"lr": 0.1}], always_fuse=always_fuse)
    assert done.outcome is Outcome.RAISED
    assert text in done.ending.error.splitlines()[-1]


class Stop(BaseException):
    """As if the process had been killed."""


class Peaking:
    """A training function whose accuracy is best in the middle; its weight counts the epochs."""

    def __init__(self, cut_at: int | None = None) -> None:
        self.cut_at = cut_at

    def __call__(self, trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1, bias=False))
        for epoch in trial.epochs(NUM_EPOCHS):
            if epoch == self.cut_at:
                raise Stop
            nn.init.constant_(model.weight, float(epoch))
            accuracy = 1.0 - 0.1 * abs(epoch - 2) - trial.config["lr"]
            trial.keep_best(model, accuracy)
            trial.report(accuracy=accuracy)


def peaking(storage: str | Path | None = None, **settings: Any) -> hw.Study:
    space = {"lr": hw.choice([0.3, 0.1, 0.2])}
    return hw.Study(Peaking(), space=space, metric="accuracy", mode="max", storage=storage, search="grid", **settings)


@pytest.mark.parametrize(
    "settings",
    [{"lanes": 1}, {"lanes": 3}, {"lanes": 3, "judge": "best"}, {"lanes": 1, "executor": "processes", "devices": 2}],
)
def test_the_result_hands_out_the_best_weights_of_the_best_trial(settings: dict[str, Any]) -> None:
    result = peaking(**settings).run()
    assert result.best.config["lr"] == 0.1
    assert result.load_best_model().weight.item() == 2.0


def test_the_best_weights_of_an_early_stopped_trial_are_handed_out() -> None:
    result = peaking(lanes=3, max_epochs=4).run()
    assert result.load_best_model().weight.item() == 2.0


def test_the_command_saves_the_best_weights_and_says_of_which_epoch(tmp_path: Path) -> None:
    storage = tmp_path / "a.db"
    peaking(storage, lanes=3, name="one").run()
    target = tmp_path / "best.safetensors"
    done = CliRunner().invoke(app, ["best", "--save", str(target), "--storage", str(storage)])
    assert done.exit_code == 0, done.output
    assert load_file(target)["weight"].item() == 2.0
    assert "weights of trial 1 of study one, of its epoch 3, written to" in " ".join(done.stderr.split())


def test_a_study_that_was_killed_still_has_the_best_weights_from_before(tmp_path: Path) -> None:
    study = peaking(tmp_path / "a.db", lanes=3, name="one", save_every=1)
    assert isinstance(study.train, Peaking)
    study.train.cut_at = 4
    with pytest.raises(Stop):
        study.run()
    study.train.cut_at = None
    assert study.resume().load_best_model().weight.item() == 2.0


def test_trials_that_take_over_others_go_on_from_their_best() -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1, bias=False))
        for epoch in trial.epochs(NUM_EPOCHS):
            nn.init.constant_(model.weight, float(epoch))
            trial.keep_best(model, abs(epoch - 1))
            trial.report(loss=1 - 0.01 * trial.number)

    study = hw.Study(
        train, space={"lr": hw.uniform(0.1, 0.2)}, metric="loss", storage=None, search=PBT(interval=2, population=4),
        max_epochs=NUM_EPOCHS, lanes=4,
    )  # fmt: skip
    result = study.run(6)
    assert result.best.history[0].epoch > 2, "the best is a copy, which has not trained the best epoch itself"
    assert result.load_best_model().weight.item() == 1.0


def test_trials_of_a_pack_keep_their_own() -> None:
    data = TensorDataset(X.float(), X.float().sum(1))

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(lambda: nn.Linear(3, 1))
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"], shuffle=True)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for epoch in trial.epochs(5):
            for x, y in loader:
                optimizer.zero_grad()
                (model(x).squeeze(1) - y).square().mean().backward()
                optimizer.step()
            trial.keep_best(model, abs(epoch - 2))
            trial.report(loss=abs(epoch - 2) + trial.config["lr"])

    def run_with(packing: str | None) -> Tensor:
        space = {"lr": hw.loguniform(1e-3, 0.5), "batch_size": hw.choice([2, 4, 8])}
        study = hw.Study(train, space=space, metric="loss", storage=None, packing=packing, lanes=1)
        weight: Tensor = study.run(9).load_best_model().weight
        return weight

    torch.testing.assert_close(run_with("random"), run_with(None), rtol=0, atol=0)
