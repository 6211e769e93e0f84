"""Studies that pack: the same trials with the same numbers as one after the other, and every example loaded once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.spans import assert_no_overlap
from torch import Tensor, nn
from torch.utils.data import Dataset

import headwater as hw
from headwater.errors import AllTrialsFailedError, StudyError, TrialError
from headwater.report import Silence
from headwater.trials import Status

SIZES = (10, 20, 25, 50)
SPACE = {"lr": hw.loguniform(1e-3, 1.0), "batch_size": hw.choice(SIZES)}
PACKINGS = ["cost", "knn", "random", "batch_size"]


class Slow(Dataset[Any]):
    """Data that take far longer to load than to train on."""

    def __init__(self) -> None:
        self.x = torch.randn(100, 6, generator=torch.Generator().manual_seed(0))
        # Outside of Python: an attribute would belong to each trial, and go back with it when it goes on after a pause.
        self._log = os.memfd_create("loaded")

    @property
    def num_loaded(self) -> int:
        return os.fstat(self._log).st_size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        os.write(self._log, b".")
        for _ in range(40):
            torch.zeros(10).sum()
        return self.x[index] + 0.1 * torch.randn(6), (self.x[index].sum() > 0).long()

    def __len__(self) -> int:
        return len(self.x)


class Told(Silence):
    """Keeps what a study says."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, text: str) -> None:
        self.texts.append(text)


def study_of(data: Dataset[Any], **options: Any) -> hw.Study:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2)))
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"], shuffle=True)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
        if trial.config["lr"] > 1000:
            raise ValueError("far too large")
        for _ in trial.epochs(9):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            trial.report(loss=total / len(loader))

    settings = {"space": SPACE, "metric": "loss", "storage": None, "lanes": 1, "max_epochs": 9}
    return hw.Study(train, **{**settings, **options})


def outcome(result: hw.Result) -> list[tuple[int, str, list[float]]]:
    return [
        (trial.number, trial.status.value, [report.metrics["loss"] for report in trial.history])
        for trial in result.trials
    ]


@pytest.mark.parametrize("search", ["random", "asha", "hyperband", "tpe"])
@pytest.mark.parametrize("packing", PACKINGS)
def test_every_way_of_packing_gives_what_one_after_the_other_gives(search: str, packing: str) -> None:
    alone = study_of(Slow(), search=search, packing=None).run(num_trials=13)
    packed = study_of(Slow(), search=search, packing=packing).run(num_trials=13)
    assert outcome(packed) == outcome(alone)


def test_lanes_inside_a_pack_give_the_same_but_for_rounding() -> None:
    alone = outcome(study_of(Slow(), search="hyperband", packing=None).run(num_trials=13))
    packed = outcome(study_of(Slow(), search="hyperband", lanes="auto").run(num_trials=13))
    for (number, status, losses), (other, other_status, others) in zip(packed, alone, strict=True):
        assert (number, status) == (other, other_status)
        assert losses == pytest.approx(others, rel=1e-4)


def test_what_is_loaded_serves_all() -> None:
    apart, together = Slow(), Slow()
    study_of(apart, packing=None).run(num_trials=8)
    told = Told()
    study_of(together).run(num_trials=8, watcher=told)
    assert apart.num_loaded == 8 * 9 * 100
    assert together.num_loaded < 2 * 9 * 100, "one pass for all, and some steps to measure"
    assert any("8 groups train as a pack: loading their data once should save" in text for text in told.texts)


def test_trials_that_are_promoted_join_those_that_train() -> None:
    data = Slow()
    study_of(data, search="hyperband").run(num_trials=13)
    assert data.num_loaded < 2 * 9 * 100, "the brackets go side by side through nine passes"


def test_nothing_is_packed_where_loading_costs_nothing() -> None:
    def train(trial: hw.Trial) -> None:
        for epoch in trial.epochs(3):
            trial.report(loss=trial.config["lr"] + epoch)

    told = Told()
    hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1).run(num_trials=5, watcher=told)
    assert not [text for text in told.texts if "pack" in text]


def test_a_trial_that_raises_in_a_pack_fails_alone() -> None:
    space = {"lr": hw.choice([0.1, 0.2, 5000.0]), "batch_size": hw.choice(SIZES)}
    alone = study_of(Slow(), space=space, packing=None).run(num_trials=10)
    result = study_of(Slow(), space=space).run(num_trials=10)
    assert outcome(result) == outcome(alone)
    failed = [trial for trial in result.trials if trial.status is Status.FAILED]
    assert failed
    assert all("far too large" in (trial.error or "") for trial in failed)


@pytest.mark.parametrize("packing", ["cost", "knn"])
def test_a_study_that_is_stopped_in_a_pack_is_resumed_as_if_it_had_not_been(packing: str, tmp_path: Path) -> None:
    whole = study_of(Slow(), packing=packing).run(num_trials=6)

    class Stop(hw.Callback):
        num_reports = 0

        def on_reports(self, reports: Any) -> None:
            self.num_reports += len(reports)
            if self.num_reports == 20:
                raise KeyboardInterrupt

    settings: dict[str, Any] = {"packing": packing, "storage": tmp_path / "study.db", "name": "one"}
    with pytest.raises(KeyboardInterrupt):
        study_of(Slow(), callbacks=[Stop()], **settings).run(num_trials=6)
    assert outcome(study_of(Slow(), **settings).resume()) == outcome(whole)


def test_a_target_that_is_reached_ends_the_pack_with_everything_saved(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"storage": tmp_path / "study.db", "name": "one"}
    result = study_of(Slow(), **settings).run(num_trials=6, target=0.68)
    assert result.ended_early is not None
    assert "reached the target" in result.ended_early
    whole = study_of(Slow(), packing=None).run(num_trials=6)
    assert outcome(study_of(Slow(), **settings).resume()) == outcome(whole)
    assert_no_overlap(tmp_path / "study.db")


def test_time_is_billed_to_the_trial_that_took_it() -> None:
    result = study_of(Slow()).run(num_trials=6)
    assert all(trial.seconds > 0 for trial in result.trials)
    assert sum(trial.seconds for trial in result.trials) <= result.seconds


@pytest.mark.parametrize("packing", ["nearest", 3, True])
def test_an_unknown_way_of_packing_is_refused(packing: object) -> None:
    with pytest.raises(StudyError, match="it must be one of 'cost', 'knn', 'random', 'batch_size', None"):
        study_of(Slow(), packing=packing)


def test_packing_by_batch_size_needs_a_batch_size() -> None:
    with pytest.raises(StudyError, match="needs a key batch_size in the space"):
        study_of(Slow(), packing="batch_size", space={"lr": hw.uniform(0, 1)})


def test_a_function_that_changes_the_data_set_trains_alone() -> None:
    data = Slow()

    def train(trial: hw.Trial) -> None:
        data.x = torch.full((100, 6), trial.config["lr"])
        model = trial.prepare_model(nn.Linear(6, 2))
        optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"])
        for _ in trial.epochs(2):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                total += x.sum().item()
            trial.report(loss=total)

    told = Told()
    runs = [
        hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1, packing=packing).run(5, watcher=told)
        for packing in (None, "cost")
    ]
    assert outcome(runs[0]) == outcome(runs[1])
    assert any("not as packs: the function changes `data.x`" in text for text in told.texts)


def of_one_model(data: Dataset[Any], model: nn.Module) -> Callable[[hw.Trial], None]:
    def train(trial: hw.Trial) -> None:
        trial.prepare_model(model)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"])
        for _ in trial.epochs(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss)

    return train


def test_a_function_whose_model_lives_outside_it_trains_alone() -> None:
    train, told = of_one_model(Slow(), nn.Linear(6, 2)), Told()
    runs = [
        hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1, packing=packing).run(5, watcher=told)
        for packing in (None, "cost")
    ]
    assert outcome(runs[0]) == outcome(runs[1])
    assert any("not as packs: the function trains a Linear that lives outside it" in text for text in told.texts)


def test_units_of_one_model_are_refused() -> None:
    train = of_one_model(Slow(), nn.Linear(6, 2))
    pack = hw.pack([hw.Unit(train, {"lr": 0.1, "batch_size": size}, name=f"by {size}") for size in (10, 20)])
    with pytest.raises(
        StudyError, match="unit 'by 20' cannot train in a pack: the function trains a Linear that lives"
    ):
        list(pack.run())


def test_a_function_that_reads_in_a_thread_of_its_own_is_told_so() -> None:
    data = Slow()

    def train(trial: hw.Trial) -> None:
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"])
        failures: list[BaseException] = []

        def read() -> None:
            try:
                list(loader)
            except TrialError as error:
                failures.append(error)

        reader = Thread(target=read)
        reader.start()
        reader.join()
        for failure in failures:
            raise failure
        trial.report(loss=1.0)

    study = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1, packing="random")
    with pytest.raises(AllTrialsFailedError) as raised:
        study.run(num_trials=4)
    assert all("in a thread of its own" in (trial.error or "") for trial in raised.value.result.trials)


def test_variables_of_the_function_last_as_long_as_nothing_pauses() -> None:
    """The last lanes of a group could train faster alone, but would start the function again."""

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(6, 1))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        total = 0.0
        for _ in trial.epochs(4):
            for _ in range(5):
                optimizer.zero_grad()
                loss = ((model(torch.ones(2, 6)) - 1) ** 4).mean()
                loss.backward()
                optimizer.step()
                total += 1.0
            trial.report(loss=loss, total=total)

    space = {"lr": hw.grid([0.001, *(1e3 + place for place in range(7))])}
    result = hw.Study(train, space=space, search="grid", metric="loss", storage=None).run()
    assert [report.metrics["total"] for report in result.trials[0].history] == [5.0, 10.0, 15.0, 20.0]


class Noisy(Dataset[Any]):
    """A data set of the module whose examples depend on an attribute."""

    def __init__(self) -> None:
        self.noise = 0.0
        self.scale = Scale()

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.scale(torch.full((6,), index / 96)) + self.noise * torch.randn(6), index % 2


class Scale:
    """A transform with a setting."""

    factor = 1.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


NOISY = Noisy()
OFFSET = 0.0


def set_noise(trial: hw.Trial) -> None:
    NOISY.noise = trial.config["lr"]


def set_transform(trial: hw.Trial) -> None:
    NOISY.scale.factor = trial.config["lr"]


def set_class(trial: hw.Trial) -> None:
    Scale.factor = trial.config["lr"]


def set_global(trial: hw.Trial) -> None:
    global OFFSET  # noqa: PLW0603 - as a user writes it
    OFFSET = trial.config["lr"]


@pytest.mark.parametrize("when", ["start", "epoch"])
@pytest.mark.parametrize("change", [set_noise, set_transform, set_class, set_global])
def test_objects_of_the_module_that_a_function_changes_are_its_own_in_a_pack(
    change: Callable[[hw.Trial], None], when: str
) -> None:
    def train(trial: hw.Trial) -> None:
        if when == "start":
            change(trial)
        model = trial.prepare_model(nn.Linear(6, 2))
        optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
        loader = trial.prepare_data_loader(NOISY, batch_size=trial.config["batch_size"])
        for _ in trial.epochs(2):
            if when == "epoch":
                change(trial)
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                total += x.sum().item() + OFFSET
            trial.report(loss=total + NOISY[3][0].sum().item())

    def run(packing: str | None) -> object:
        vars(NOISY.scale).clear()
        study = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1, packing=packing, executor="inline")
        return outcome(study.run(5))

    assert run("cost") == run(None)
