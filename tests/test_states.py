"""States belong to a record: one that is missing, damaged or another's is never used, and a trial that needs it starts
again with a note."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.search import PBT
from headwater.store import open_store
from headwater.trials import Result, Status


class Stop(BaseException):
    """As if the process had been killed."""


class Machine:
    """A training function that can be cut short, and notes from which epoch and weights it goes on.

    The notes are in a file: variables and attributes are put back where a trial goes on.
    """

    def __init__(self, cut_at: int | None = None) -> None:
        self.cut_at = cut_at
        self.log = Path(tempfile.mkdtemp()) / "begun"
        self.log.touch()

    @property
    def begun(self) -> list[tuple[int, float]]:
        """From which epoch and weight each call went on."""
        pairs = [line.split() for line in self.log.read_text().splitlines()]
        return [(int(epoch), float(weight)) for epoch, weight in pairs]

    def __call__(self, trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1, bias=False))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        size_before = self.log.stat().st_size  # a file that it read back would keep it from going on
        for epoch in trial.epochs(6):
            if self.log.stat().st_size == size_before:
                with self.log.open("a") as log:
                    print(epoch, model.weight.item(), file=log)
            if epoch == self.cut_at:
                raise Stop
            optimizer.zero_grad()
            loss = (model(torch.ones(1, 1)) - 3).square().sum()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.item())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study_of(machine: Machine, storage: str = "a.db", lr: float = 0.1, **settings: object) -> hw.Study:
    return hw.Study(machine, space={"lr": lr}, metric="loss", storage=storage, name="one", save_every=1, **settings)  # type: ignore[arg-type]  # any of the settings


def cut_short(study: hw.Study) -> None:
    assert isinstance(study.train, Machine)
    study.train.cut_at = 3
    with pytest.raises(Stop):
        study.run()
    study.train.cut_at = None
    study.train.log.write_text("")


def notes_of(storage: str | Path) -> str:
    with open_store(storage, create=False) as store:
        return "\n".join(note.text for note in store.notes(store.study().id))


def losses(result: Result) -> list[float]:
    return [report.metrics["loss"] for report in result.trials[0].history]


def find_state(place: Path) -> Path:
    (path,) = place.rglob("0-*.safetensors")
    return path


def alone(lr: float = 0.1) -> list[float]:
    return losses(hw.Study(Machine(), space={"lr": lr}, metric="loss", storage=None).run())


def test_a_study_goes_on_from_its_own_state(place: Path) -> None:
    study = study_of(Machine())
    cut_short(study)
    result = study.resume()
    assert study.train.begun[-1][0] == 3  # type: ignore[attr-defined]  # a Machine
    assert losses(result) == alone()


def test_a_state_of_another_study_in_its_place_is_never_used(place: Path) -> None:
    first, other = study_of(Machine()), study_of(Machine(), "b.db", lr=0.4)
    cut_short(first)
    cut_short(other)
    theirs, mine = sorted(place.rglob("0-*.safetensors"), reverse=True)
    shutil.copy(theirs, mine)
    assert losses(first.resume()) == alone()
    assert "trial 0 starts again from the beginning: the state" in notes_of("a.db")
    assert "of the study with the id" in notes_of("a.db")


@pytest.mark.parametrize("harm", ["missing", "damaged", "empty", "old"])
def test_a_trial_whose_state_cannot_be_used_starts_again_with_a_note(place: Path, harm: str) -> None:
    study = study_of(Machine())
    cut_short(study)
    state = find_state(place)
    content = bytearray(state.read_bytes())
    if harm == "missing":
        state.unlink()
    elif harm == "damaged":
        content[-1] ^= 1
        state.write_bytes(content)
    elif harm == "empty":
        state.write_bytes(b"")
    else:
        state.write_bytes(bytes(content).replace(b"state 3", b"state 1"))
    result = study.resume()
    assert [epoch for epoch, _ in study.train.begun] == [0]  # type: ignore[attr-defined]  # a Machine
    assert losses(result) == alone()
    assert "trial 0 starts again from the beginning" in notes_of("a.db")


def test_states_are_found_from_every_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(Machine(), str(place / "a.db"), states="elsewhere")
    cut_short(study)
    assert find_state(place).is_relative_to(place / "elsewhere")
    (place / "sub").mkdir()
    monkeypatch.chdir(place / "sub")
    replace(study, states=None).resume()
    assert study.train.begun[-1][0] == 3  # type: ignore[attr-defined]  # a Machine


def test_a_record_that_is_moved_with_its_states_goes_on(place: Path) -> None:
    study = study_of(Machine(), "old/a.db")
    (place / "old").mkdir()
    cut_short(study)
    (place / "old").rename(place / "new")
    replace(study, storage="new/a.db").resume()
    assert study.train.begun[-1][0] == 3  # type: ignore[attr-defined]  # a Machine


@pytest.mark.parametrize("states", [None, "shared"])
def test_a_copy_of_a_record_leaves_the_states_of_the_original_alone(place: Path, states: str | None) -> None:
    study = study_of(Machine(), states=states)
    cut_short(study)
    before = {path: path.read_bytes() for path in place.rglob("*.safetensors")}
    shutil.copy("a.db", "copy.db")
    copy = replace(study, storage="copy.db")
    assert losses(copy.resume()) == alone()
    assert [epoch for epoch, _ in study.train.begun] == [0]  # type: ignore[attr-defined]  # a Machine
    assert {path: path.read_bytes() for path in before} == before
    study.train.log.write_text("")  # type: ignore[attr-defined]  # a Machine
    assert losses(study.resume()) == alone()
    assert study.train.begun[-1][0] == 3  # type: ignore[attr-defined]  # a Machine


def test_a_link_to_a_record_has_the_same_states(place: Path) -> None:
    study = study_of(Machine())
    cut_short(study)
    (place / "link.db").symlink_to("a.db")
    replace(study, storage="link.db").resume()
    assert study.train.begun[-1][0] == 3  # type: ignore[attr-defined]  # a Machine


def test_a_new_study_of_the_same_name_does_not_see_what_a_lost_one_left(place: Path) -> None:
    study = study_of(Machine())
    cut_short(study)
    (place / "a.db").unlink()
    study.run()
    assert {epoch for epoch, _ in study.train.begun} == {0}  # type: ignore[attr-defined]  # a Machine


def test_a_record_that_is_older_than_its_states_is_not_skipped_ahead_in(place: Path) -> None:
    study = study_of(Machine())
    cut_short(study)
    with open_store("a.db") as store, store._writing("") as connection:
        connection.exec_driver_sql("DELETE FROM reports WHERE epoch > 1")
    assert losses(study.resume()) == alone()
    assert "is of epoch 3, where the record ends with 1" in notes_of("a.db")


@pytest.mark.parametrize("url", ["memory://{}", "file://{}/there"])
def test_states_can_lie_at_a_url(place: Path, url: str) -> None:
    study = study_of(Machine(), states=url.format(place))
    cut_short(study)
    result = replace(study, states=None).resume()
    assert study.train.begun[-1][0] == 3  # type: ignore[attr-defined]  # a Machine
    assert result.load_best_model().weight.item() == pytest.approx(3, abs=1)


def test_the_weights_of_the_best_are_saved_or_refused_never_anothers(place: Path) -> None:
    study_of(Machine()).run()
    study_of(Machine(), "b.db", lr=0.4).run()
    assert CliRunner().invoke(app, ["best", "--storage", "a.db", "--save", "mine"]).exit_code == 0
    mine, theirs = sorted(place.rglob("best-0-6.safetensors"))
    shutil.copy(theirs, mine)
    result = CliRunner().invoke(app, ["best", "--storage", "a.db", "--save", "wrong"])
    assert result.exit_code == 2
    assert "of the study with the id" in result.stderr
    assert not (place / "wrong").exists()
    assert list(load_file(place / "mine")) == ["weight"]


def test_a_copy_in_pbt_never_inherits_an_older_state(place: Path) -> None:
    """The parent's state is put back to an earlier epoch between the generations."""
    kept: dict[str, bytes] = {}

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        for epoch in trial.epochs(4):
            for path in place.rglob("[0-9]*.safetensors"):
                number = path.name.partition("-")[0]
                if epoch <= 1:
                    kept.setdefault(number, path.read_bytes())
                else:
                    path.write_bytes(kept.get(number, path.read_bytes()))
            trial.report(loss=model(torch.ones(1)).item())

    study = hw.Study(
        train,
        space={"lr": hw.uniform(0.1, 1)},
        metric="loss",
        storage="a.db",
        search=PBT(interval=1, population=4, max_epochs=4),
        lanes=1,
    )
    result = study.run(num_trials=8)
    assert "cannot be used: it is of epoch 1" in notes_of("a.db")
    assert all(trial.status is not Status.FAILED for trial in result.trials)
