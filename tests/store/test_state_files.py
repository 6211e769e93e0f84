"""The saved states of a study as its conductor sees them: a wrong one is never gone on from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.errors import StoreError
from headwater.store import StateFiles
from headwater.train.engines import LaneState
from headwater.train.state_store import StateStore
from headwater.trials import StatesPlace


def place_in(folder: Path | str, study: str = "mine") -> StatesPlace:
    return StatesPlace(url=str(folder), study=study)


def put(folder: Path | str, number: int, epoch: int, study: str = "mine") -> None:
    """Write a state as a worker does."""
    StateStore(place_in(folder, study)).put(number, LaneState(epoch, models=[{"weight": torch.full((2,), epoch)}]))


@pytest.mark.parametrize("url", ["{}/states", "file://{}/states", "memory://{}/states"])
def test_what_workers_have_written_is_found_in_every_kind_of_place(tmp_path: Path, url: str) -> None:
    place = place_in(url.format(tmp_path))
    put(place.url, 4, 5)
    put(place.url, 7, 3)
    files = StateFiles(place)
    assert list(files) == [4, 7]
    assert files.find_epoch(4, 5) == 5
    files.drop(7)
    files.drop(7)
    assert list(StateFiles(place)) == list(files) == [4]


def test_a_place_without_a_driver_is_explained() -> None:
    with pytest.raises(StoreError, match=r"nonsense://there.* cannot be listed: Protocol not known: nonsense"):
        StateFiles(place_in("nonsense://there"))


def test_what_is_still_being_written_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "0-1.safetensors.abc.part").write_bytes(b"half")
    (tmp_path / "x.safetensors").write_bytes(b"half")
    assert list(StateFiles(place_in(tmp_path))) == []


def test_a_state_that_the_record_does_not_know_of_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 0, 3)
    files = StateFiles(place_in(tmp_path))
    assert files.find_epoch(0, 3) == 3
    with pytest.raises(StoreError, match="of epoch 3, where the record ends with 2"):
        files.find_epoch(0, 2)


def test_a_state_whose_report_was_never_recorded_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    put(tmp_path, 0, 2)
    put(tmp_path, 0, 3)
    assert StateFiles(place_in(tmp_path)).find_epoch(0, 2) == 2


def test_when_a_state_is_recorded_those_before_it_go(tmp_path: Path) -> None:
    files = StateFiles(place_in(tmp_path))
    for epoch in (2, 3):
        put(tmp_path, 0, epoch)
        files.add({0: epoch})
    assert [path.name for path in tmp_path.iterdir()] == ["0-3.safetensors"]


def test_a_state_that_is_missing_or_of_another_study_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 0, 3, "other")
    files = StateFiles(place_in(tmp_path))
    with pytest.raises(StoreError, match="of trial 0 of the study with the id 'other'"):
        files.find_epoch(0, 3)
    with pytest.raises(StoreError, match="there is no state of it"):
        files.find_epoch(1, 3)


def test_a_copy_is_the_new_trials_own_and_says_that_it_is_inherited(tmp_path: Path) -> None:
    put(tmp_path, 0, 3)
    files = StateFiles(place_in(tmp_path))
    files.inherit(5, parent=0, since=3)
    assert files.find_epoch(5, 3) == 3
    copy, original = (StateStore(place_in(tmp_path)).load(number, 3) for number in (5, 0))
    assert (copy.is_inherited, original.is_inherited) == (True, False)
    assert torch.equal(copy.models[0]["weight"], original.models[0]["weight"])


def test_nothing_is_inherited_from_another_epoch_or_from_nobody(tmp_path: Path) -> None:
    put(tmp_path, 0, 3)
    files = StateFiles(place_in(tmp_path))
    with pytest.raises(StoreError, match="at epoch 2, of which there is epoch 3"):
        files.inherit(5, parent=0, since=2)
    with pytest.raises(StoreError, match="no state of trial 1"):
        files.inherit(5, parent=1, since=2)
    assert list(files) == [0]


def test_the_record_names_the_kept_state_before_the_one_before_goes(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    files = StateFiles(place_in(tmp_path), lambda *_: seen.append(sorted(path.name for path in tmp_path.iterdir())))
    for epoch in (2, 4):
        StateStore(place_in(tmp_path)).keep(1, LaneState(epoch))
        files.set_kept(1, epoch)
    assert seen == [["best-1-2.safetensors"], ["best-1-2.safetensors", "best-1-4.safetensors"]]
    assert [path.name for path in tmp_path.iterdir()] == ["best-1-4.safetensors"]


def test_a_saved_state_is_kept_as_the_best_unless_it_is_damaged(tmp_path: Path) -> None:
    put(tmp_path, 3, 2)
    files = StateFiles(place_in(tmp_path))
    files.keep_saved(3)
    assert files.kept == (3, 2)
    place = StatesPlace(url=str(tmp_path), study="mine", kept=files.kept)
    assert StateStore(place).load_kept().epoch == 2
    (tmp_path / "4-2.safetensors").write_bytes(b"damaged")
    files.add({4: 2})
    files.keep_saved(4)
    assert files.kept == (3, 2)
