"""Studies with surrogates, from the search to the target, on a real if small problem."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.spans import assert_no_overlap
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.errors import StudyError
from headwater.report.reading import read_study
from headwater.store import open_store
from headwater.trials import Result, Status

torch.manual_seed(0)
INPUTS = torch.randn(256, 8)
TARGETS = (INPUTS @ torch.randn(8, 4)).argmax(1)
DATA = TensorDataset(INPUTS[:192], TARGETS[:192])
WIDTH = 64


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(
        nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
    )
    loader = trial.prepare_data_loader(DATA, batch_size=32, shuffle=True)
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            trial.report(loss=F.cross_entropy(model(INPUTS[192:]), TARGETS[192:]))


SURROGATE = hw.Surrogate(scale=4, min_width=4, num_checked=4, eager=False)
STUDY = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-4, 1.0)},
    metric="loss",
    storage=None,
    executor="inline",
    surrogate=SURROGATE,
)


def watched(num_epochs: int, watch: Callable[[int, int], None]) -> Callable[[hw.Trial], None]:
    """Return a training function that tells the width of its model and the epoch before each report."""

    def train_watched(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for epoch in trial.epochs(num_epochs):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(INPUTS), TARGETS)
            loss.backward()
            optimizer.step()
            watch(len(next(model.parameters())), epoch)
            trial.report(loss=loss)

    return train_watched


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def outline(result: Result) -> list[tuple[int, dict[str, object], float]]:
    return [(trial.number, dict(trial.config), trial.value("loss")) for trial in (*result.trials, result.best)]


def test_the_best_surrogate_configuration_trains_the_target() -> None:
    result = STUDY.run(num_trials=8)
    assert result.target is not None
    assert result.best is result.target
    assert result.target.config == result.ranked[0].config
    assert result.target.status is Status.COMPLETED
    assert result.trust is not None
    assert result.trust.scale == 4
    assert len(result.trust.values) == 4


class Net(nn.Module):
    """A model with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(self.first(x).relu())
        return answer


def train_net(trial: hw.Trial) -> None:
    model = trial.prepare_model(Net())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for _ in trial.epochs(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.detach())


def test_models_of_the_users_own_classes_are_narrowed_in_lanes_as_alone() -> None:
    together, alone = (replace(STUDY, train=train_net, lanes=lanes).run(num_trials=4) for lanes in (4, 1))
    values = [[trial.value("loss") for trial in result.trials] for result in (together, alone)]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_the_target_can_be_loaded_and_computes_what_was_reported() -> None:
    result = STUDY.run(num_trials=4)
    model = result.load_best_model()
    assert model[2].weight.shape == (WIDTH, WIDTH)
    with torch.no_grad():
        loss = F.cross_entropy(model(INPUTS[192:]), TARGETS[192:]).item()
    assert loss == pytest.approx(result.best.value("loss"), rel=1e-5)


def test_a_study_without_a_surrogate_has_a_best_model_too(tmp_path: Path) -> None:
    result = replace(STUDY, surrogate=None, storage=tmp_path / "study.db").run(num_trials=4)
    with torch.no_grad():
        loss = F.cross_entropy(result.load_best_model()(INPUTS[192:]), TARGETS[192:]).item()
    assert loss == pytest.approx(result.best.value("loss"), rel=1e-5)


def test_the_record_has_every_stage_and_a_resumed_study_repeats_none(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db")
    result = study.run(num_trials=6)
    with open_store(tmp_path / "study.db") as store:
        stored = read_study(store, None, "")
        names = [info.name for info in store.studies()]
    assert names[0] == stored.info.name == "train-1"
    assert stored.target_study == names[-1] == f"train-1.target-{result.ranked[0].number}"
    assert stored.result.target is not None
    assert any("rank agreement" in note.text for note in stored.notes)
    again = study.resume()
    assert outline(again) == outline(result)
    assert again.num_lane_steps == 0
    assert_no_overlap(tmp_path / "study.db")


def test_what_does_not_transfer_is_tuned_on_the_target_near_the_answer() -> None:
    space = {"lr": hw.loguniform(1e-4, 1.0), "dropout": hw.uniform(0.0, 0.9)}
    study = replace(STUDY, space=space, surrogate=replace(SURROGATE, num_retuned=3, num_checked=0))
    result = study.run(num_trials=4)
    best = result.ranked[0]
    assert result.best.config["lr"] == best.config["lr"]
    assert abs(result.best.config["dropout"] - best.config["dropout"]) < 0.45
    with pytest.raises(StudyError, match="depth"):
        replace(study, surrogate=replace(SURROGATE, untransferable=("depth",))).run(num_trials=2)


def test_a_poor_ranking_falls_back_to_wider_models() -> None:
    told: list[str] = []

    class Listener:
        def start(self, study: str, metric: str, num_trials: int | None) -> None:
            told.append(study)

        def pulse(self, pulse: object) -> None:
            pass

        def tell(self, text: str) -> None:
            told.append(text)

        def end(self) -> None:
            pass

    def disagree(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, WIDTH), nn.Linear(WIDTH, 4)))
        for _ in trial.epochs(1):
            model(INPUTS)
            trial.report(loss=trial.config["lr"] * (1 if model[0].out_features == WIDTH // 4 else -1))

    result = replace(STUDY, train=disagree).run(num_trials=8, watcher=Listener())
    assert any("ranking at 1/4 is poor" in text for text in told)
    assert result.trust is not None
    assert result.trust.scale == 2
    assert result.trust.agreement == pytest.approx(1.0)
    few = sorted(trial.config["lr"] for trial in result.trials)[:4]
    assert result.best.config["lr"] == few[-1]


def test_a_ranking_in_doubt_is_looked_at_more_closely_before_wider_models_are_trained(tmp_path: Path) -> None:
    wide = {0: 5, 2: 0, 5: 2}  # the four that are looked at first agree by 0.4, all eight by 0.55

    def differ(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, WIDTH), nn.Linear(WIDTH, 4)))
        for _ in trial.epochs(1):
            model(INPUTS)
            place = trial.config["place"]
            trial.report(loss=place if model[0].out_features == WIDTH // 4 else wide.get(place, place))

    study = replace(STUDY, train=differ, space={"place": hw.grid(list(range(8)))}, storage=tmp_path / "s.db", lanes=1)
    result = study.run()
    assert result.trust is not None
    assert result.trust.agreement == pytest.approx(1 - 6 * 38 / (8 * 63))
    assert len(result.trust.values) == 8
    assert result.best.config == {"place": 0}
    with open_store(tmp_path / "s.db") as store:
        assert not any(".at-2-" in info.name and "best" in info.name for info in store.studies())
        assert any("with more of them" in note.text for note in read_study(store, None, "").notes)


def test_wider_models_are_judged_by_how_the_same_configurations_stand_there() -> None:
    full = {11: 2, 9: 4, 7: 0, 4: 1, 2: 3, 0: 5}  # agrees with 1/2 by 0.37, which leaves it in doubt

    def turn_round(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, WIDTH), nn.Linear(WIDTH, 4)))
        for _ in trial.epochs(1):
            model(INPUTS)
            place, width = trial.config["place"], int(model[0].out_features)  # type: ignore[arg-type]  # a Linear
            trial.report(loss={WIDTH // 4: place, WIDTH // 2: -place, WIDTH: full.get(place, 0)}[width])

    surrogate = replace(SURROGATE, num_checked=6)
    study = replace(STUDY, train=turn_round, space={"place": hw.grid(list(range(12)))}, surrogate=surrogate)
    result = study.run()
    assert result.trust is not None
    assert (result.trust.scale, result.trust.other_scale) == (2, 1)
    assert [one for one, _ in result.trust.values] == [-place for place in (0, 2, 4, 7, 9, 11)]
    assert result.best.config == {"place": 3}  # the best of the first quarter at 1/2


def test_a_target_that_raises_is_told_and_the_search_is_kept(tmp_path: Path) -> None:
    def fail_when_wide(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, WIDTH), nn.Linear(WIDTH, 4)))
        for _ in trial.epochs(1):
            model(INPUTS)
            if model[0].out_features == WIDTH:
                raise ValueError("too wide")
            trial.report(loss=trial.config["lr"])

    study = replace(STUDY, train=fail_when_wide, storage=tmp_path / "s.db")
    with pytest.raises(StudyError, match=r"ValueError: too wide.*headwater show fail_when_wide-1\.target-"):
        study.run(num_trials=4)
    with open_store(tmp_path / "s.db") as store:
        stored = read_study(store, "fail_when_wide-1", "")
    assert stored.result.target is None
    assert len(stored.result.ranked) == 4
    assert any("ValueError: too wide" in note.text for note in stored.notes)
    assert any("rank agreement" in note.text for note in stored.notes)


@pytest.mark.parametrize("part", [1, 2], ids=["target", "check"])
def test_a_stage_after_the_search_can_be_interrupted_and_gone_on_with(tmp_path: Path, part: int) -> None:
    flag = tmp_path / "interrupted"

    def watch(width: int, epoch: int) -> None:
        if epoch == 2 and width == WIDTH // part and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGINT)

    study = replace(STUDY, train=watched(5, watch), storage=tmp_path / "s.db", lanes=1)
    cut = study.run(num_trials=4)
    assert flag.exists()
    assert cut.was_interrupted
    assert cut.target is None
    assert cut.trust is None
    result = study.resume()
    assert not result.was_interrupted
    whole = replace(study, storage=None).run(num_trials=4)
    assert result.trust == whole.trust
    assert result.best.epochs == 5
    assert result.best.value("loss") == pytest.approx(whole.best.value("loss"), rel=1e-5)


def test_auto_takes_a_scale_and_says_why() -> None:
    result = replace(STUDY, surrogate=replace(SURROGATE, scale="auto")).run(num_trials=4)
    assert result.trust is not None
    assert result.trust.scale in (16, 8, 4, 2)


@pytest.mark.parametrize("surrogate", [0, -2, "half", 2.5])
def test_a_senseless_scale_is_refused(surrogate: object) -> None:
    with pytest.raises(StudyError, match="scale"):
        replace(STUDY, surrogate=surrogate)  # type: ignore[arg-type]  # that is the point
