"""What a study with surrogates sees in the first steps of its function, before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
import torch.nn.functional as F
from tests.clocks import JumpingClock
from tests.scale.test_shrinking_heads import X_NTI, ByHand
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.conduct.transfer_steps import NUM_STARTS
from headwater.errors import CannotScaleError, StudyError
from headwater.report.reading import read_study
from headwater.scale.traces import find_trained
from headwater.space import Space
from headwater.store import open_store
from headwater.train.running import TrainingSetup
from headwater.train.start_check import check_start, choose_scales, list_possible_scales
from headwater.trials import Deadline, Lane, StartCheck

_GENERATOR = torch.Generator().manual_seed(0)
LEFT, RIGHT = torch.randn(2, 96, 8, generator=_GENERATOR)
ANSWERS = ((LEFT * RIGHT).sum(1) > 0).float()
DATA = TensorDataset(LEFT, RIGHT, ANSWERS)
WIDTH = 256


def stack(outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs))


class Towers(nn.Module):
    """Answers by the product of two towers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = stack(WIDTH), stack(WIDTH)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        answer: Tensor = (self.one(left) * self.other(right)).sum(-1)
        return answer


class VectorHead(nn.Module):
    """Answers by a vector of its own."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.body = stack(WIDTH)
        self.vector = nn.Parameter(start * torch.randn(WIDTH) / WIDTH**0.5)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        answer: Tensor = (self.body(left) * self.vector).sum(-1)
        return answer


class Sound(nn.Module):
    """Answers by a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = stack(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        answer: Tensor = self.head(self.body(left).relu()).squeeze(-1)
        return answer


def train_with(build: Callable[[], nn.Module], num_epochs: int = 3) -> Callable[[hw.Trial], None]:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(build())
        loader = trial.prepare_data_loader(DATA, batch_size=48)
        optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
        for _ in trial.epochs(num_epochs):
            for left, right, answers in loader:
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(model(left, right), answers)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss.detach())

    return train


SURROGATE = hw.Surrogate(scale=8, num_checked=0, eager=False)


def study_of(
    build: Callable[[], nn.Module], surrogate: hw.Surrogate = SURROGATE, storage: Path | None = None
) -> hw.Study:
    space = {"lr": hw.loguniform(1e-4, 1e-2)}
    return hw.Study(train_with(build), space=space, metric="loss", storage=storage, surrogate=surrogate, lanes=2)


def look(study: hw.Study, surrogate: hw.Surrogate, deadline: Deadline) -> StartCheck:
    """Look at first steps, as a worker does."""
    assert isinstance(study.space, Space)
    rng = Random(study.seed)
    lanes = [Lane(number=n, config=study.space.sample(rng), seed=study.seed + n) for n in range(NUM_STARTS)]
    start = check_start(TrainingSetup(study.train, deadline=deadline), surrogate, lanes)
    most = study.max_epochs
    return start if start.num_passes is None or most is None else replace(start, num_passes=min(start.num_passes, most))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("build", [Towers, VectorHead, lambda: VectorHead(0.0)], ids=["towers", "vector", "zeros"])
def test_a_model_whose_output_goes_with_the_width_is_noticed(build: Callable[[], nn.Module]) -> None:
    start = look(study_of(build), SURROGATE, Deadline.start())
    assert start.drift is not None
    assert start.drift.drifting == ("model",)
    assert "roles={'NAME': 'readout'}" in start.describe()[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_sound_model_keeps_its_sizes(seed: int) -> None:
    start = look(replace(study_of(Sound), seed=seed), SURROGATE, Deadline.start())
    assert start.drift is not None
    assert start.drift.scales == (8, 4, 2)
    assert start.drift.drifting == ()
    assert "keep their size" in start.describe()[0]


def test_what_was_seen_is_in_the_record_and_seen_once(tmp_path: Path) -> None:
    study = study_of(Towers, storage=tmp_path / "study.db")
    result = study.run(num_trials=2)
    shown = CliRunner().invoke(app, ["show", "--storage", str(tmp_path / "study.db")]).output
    assert " ".join(shown.split()).count("activations drift with the width") == 1
    with open_store(tmp_path / "study.db") as store:
        assert any("activations drift with the width" in note.text for note in read_study(store, None, "").notes)
    assert study.resume().start == result.start


def test_a_drift_can_be_a_refusal(tmp_path: Path) -> None:
    study = study_of(Towers, replace(SURROGATE, on_drift="refuse"), tmp_path / "study.db")
    with pytest.raises(CannotScaleError, match=r"`model` as width.*surrogate=None"):
        study.run(num_trials=2)
    with open_store(tmp_path / "study.db") as store:
        assert store.studies() == []


def test_nobody_has_to_look() -> None:
    start = look(study_of(Towers), replace(SURROGATE, on_drift=None), Deadline.start())
    assert start == StartCheck()


def test_a_role_that_is_given_makes_a_vector_a_readout() -> None:
    surrogate = replace(SURROGATE, roles={"vector": "readout"}, on_drift="refuse")
    start = look(study_of(VectorHead, surrogate), surrogate, Deadline.start())
    assert start.drift is not None
    assert start.drift.drifting == ()


def test_a_study_goes_on_with_the_roles_that_it_began_with(tmp_path: Path) -> None:
    surrogate = hw.Surrogate(scale=8, at=8, roles={"vector": "readout"})
    study = study_of(VectorHead, surrogate, tmp_path / "study.db")
    study.run(num_trials=1)
    with pytest.raises(StudyError, match="vector as readout"):
        replace(study, surrogate=replace(surrogate, roles={})).resume()


def test_the_look_keeps_to_its_part_of_the_time() -> None:
    clock = JumpingClock()

    def build() -> nn.Module:
        clock.jump(1.0)
        return Towers()

    deadline = Deadline.start(20.0, clock)
    start = look(study_of(build), SURROGATE, deadline)
    assert start.drift is None
    assert deadline.seconds_taken <= 2.0 + 3.0  # a tenth of the time, and the start under way: it builds three models


@pytest.mark.parametrize(("scale", "scales"), [(16, (16, 8, 4)), (8, (8, 4, 2)), (4, (4, 2, 1)), (2, (4, 2, 1))])
def test_three_widths_are_looked_at(scale: int, scales: tuple[int, ...]) -> None:
    assert choose_scales(scale) == scales


def test_scales_at_which_a_model_has_no_surrogate_are_left_out() -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(ByHand(num_heads=4))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in trial.epochs(1):
            loss = model(X_NTI).square().mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.detach())

    study = replace(study_of(Sound), train=train)
    lane = Lane(number=0, config={"lr": 1e-3}, seed=0)
    surrogate = hw.Surrogate(scale="auto", min_width=4)
    assert list_possible_scales(TrainingSetup(study.train), surrogate, lane) == (4, 2)


def test_data_of_which_each_epoch_sees_a_part_are_not_seen_often() -> None:
    """As with `islice(loader, 2)`."""

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(Sound())
        loader = trial.prepare_data_loader(DATA, batch_size=len(DATA) // 16)
        optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
        for _ in trial.epochs(20):
            for left, right, answers in islice(loader, 2):
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(model(left, right), answers)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss.detach())

    start = look(replace(study_of(Sound), train=train), SURROGATE, Deadline.start())
    assert start.num_passes == 3  # two and a half
    assert not start.sees_data_often


@pytest.mark.parametrize(("num_epochs", "max_epochs", "is_often"), [(3, None, False), (7, None, True), (7, 3, False)])
def test_data_that_the_target_sees_often_are_noticed(num_epochs: int, max_epochs: int | None, is_often: bool) -> None:
    study = replace(study_of(Sound), train=train_with(Sound, num_epochs), max_epochs=max_epochs)
    start = look(study, SURROGATE, Deadline.start())
    assert start.sees_data_often is is_often
    assert any("7 times through its data" in text and "may not carry over" in text for text in start.describe()) is (
        is_often
    )


def trained_state(build: Callable[[], nn.Module], num_steps: int = 60) -> dict[str, Tensor]:
    """The weights of a model after some training."""
    torch.manual_seed(9)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(num_steps):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(LEFT, RIGHT), ANSWERS).backward()
        optimizer.step()
    return model.state_dict()


def test_pretrained_weights_are_refused_with_the_way_out() -> None:
    state = trained_state(Sound)

    def build() -> nn.Module:
        model = Sound()
        model.load_state_dict(state)
        model.head = nn.Linear(WIDTH, 1)  # a new head on an old body
        return model

    study = study_of(build)
    with pytest.raises(CannotScaleError, match=r"`body.*pretrained weights.*prepare_frozen.*surrogate=None"):
        study.run(num_trials=2)
    surrogate = replace(SURROGATE, allow_pretrained=True)
    assert replace(study, surrogate=surrogate).run(num_trials=2).target is not None


def test_weights_that_are_loaded_after_a_model_is_prepared_are_noticed() -> None:
    state = trained_state(Sound)

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(Sound())
        model.load_state_dict(state)
        trial.report(loss=model(LEFT, RIGHT).mean())

    with pytest.raises(CannotScaleError, match="pretrained weights"):
        replace(study_of(Sound), train=train).run(num_trials=2)


@pytest.mark.parametrize("kind", ["default", "orthogonal", "normal", "fixed seed", "one for all"])
def test_fresh_weights_are_taken_as_such(kind: str) -> None:
    shared = Sound()

    def build() -> nn.Module:
        if kind == "one for all":
            return shared
        if kind == "fixed seed":
            torch.manual_seed(0)
        model = Sound()
        for module in model.modules():
            if isinstance(module, nn.Linear) and kind in ("orthogonal", "normal"):
                nn.init.orthogonal_(module.weight) if kind == "orthogonal" else nn.init.normal_(module.weight, std=0.1)
        return model

    assert look(study_of(build), replace(SURROGATE, on_drift=None), Deadline.start()) == StartCheck()


def test_blocks_of_different_spread_are_taken_for_what_they_are_drawn_anew() -> None:
    def build() -> nn.Module:
        model = Sound()
        with torch.no_grad():
            model.body.get_parameter("2.weight")[: WIDTH // 2] *= 5
        return model

    assert find_trained(build())
    assert look(study_of(build), replace(SURROGATE, on_drift=None), Deadline.start()) == StartCheck()
