"""Where the states of lanes wait, how often they are put there, and which of them are never used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from headwater.errors import StoreError
from headwater.store import StatesPlace
from headwater.train import state_store as module
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.engines import LaneState
from headwater.train.state_store import SAVING_SHARE, StateStore

STATE = LaneState(3, models=[{"weight": torch.arange(6.0).reshape(2, 3), "none": torch.ones(0)}])


class Clock:
    """A time that passes only when told, and by a second with every state that is written."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def encode_slowly(state: LaneState, study: str, trial: int) -> bytes:
        clock.now += 1.0
        return b""

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "encode_state", encode_slowly)
    return clock


def place_in(folder: Path | str, study: str = "mine", kept: tuple[int, int] | None = None) -> StatesPlace:
    return StatesPlace(url=str(folder), study=study, kept=kept)


def test_saving_takes_no_more_than_its_share_of_the_time(clock: Clock, tmp_path: Path) -> None:
    store = StateStore(place_in(tmp_path), "auto")
    num_saved = 0
    for epoch in range(1, 1001):
        clock.now += 0.5
        if store.is_due(epoch):
            with store.saving():
                store.put(0, LaneState(epoch, models=[{"weight": torch.ones(1)}]))
            num_saved += 1
    assert num_saved / clock.now == pytest.approx(SAVING_SHARE, rel=0.1)


def test_a_trial_is_saved_after_every_so_many_epochs(tmp_path: Path) -> None:
    assert [epoch for epoch in range(1, 8) if StateStore(place_in(tmp_path), 3).is_due(epoch)] == [3, 6]


@pytest.mark.parametrize("store", [StateStore(None, "auto"), StateStore(place_in("nowhere"), None)])
def test_without_a_folder_or_an_interval_nothing_is_due(store: StateStore) -> None:
    assert not store.is_due(1)


@pytest.mark.parametrize("url", ["{}/states", "file://{}/states", "memory://{}/states"])
def test_a_state_comes_back_from_every_kind_of_place(tmp_path: Path, url: str) -> None:
    place = place_in(url.format(tmp_path))
    first = StateStore(place)
    first.put(4, STATE)
    first.put(4, LaneState(5, models=STATE.models))
    first.put(7, STATE)
    first.drop(7)
    again = StateStore(place)
    assert list(again) == [4]
    assert again[4].epoch == 5
    assert torch.equal(again[4].models[0]["weight"], STATE.models[0]["weight"])


def test_a_place_without_a_driver_is_explained() -> None:
    with pytest.raises(StoreError, match=r"nonsense://there.* cannot be listed: Protocol not known: nonsense"):
        StateStore(place_in("nonsense://there"))


def test_a_state_of_another_study_is_refused(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path, "other")).put(0, STATE)
    with pytest.raises(StoreError, match="of trial 0 of the study with the id 'other'"):
        StateStore(place_in(tmp_path))[0]


def test_a_state_of_another_trial_is_refused(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path)).put(0, STATE)
    (tmp_path / "0.safetensors").rename(tmp_path / "1.safetensors")
    with pytest.raises(StoreError, match="it is of trial 0"):
        StateStore(place_in(tmp_path))[1]


def test_a_state_that_the_record_does_not_know_of_is_refused(tmp_path: Path) -> None:
    store = StateStore(place_in(tmp_path))
    store.put(0, STATE)
    assert store.find_epoch(0, 3) == 3
    with pytest.raises(StoreError, match="of epoch 3, where the record ends with 2"):
        store.find_epoch(0, 2)


def test_any_changed_byte_is_noticed() -> None:
    content = encode_state(STATE, "mine", 0)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x11
        with pytest.raises(StoreError):
            decode_state(bytes(damaged), "mine", 0)


def test_any_missing_end_is_noticed() -> None:
    content = encode_state(STATE, "mine", 0)
    for length in range(len(content)):
        with pytest.raises(StoreError):
            decode_state(content[:length], "mine", 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        (2**63).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        (22).to_bytes(8, "little") + b'{"__metadata__": [[]]}',
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        json.dumps({"a": 1}).encode(),
    ],
)
def test_what_is_no_state_is_refused(content: bytes) -> None:
    with pytest.raises(StoreError):
        decode_state(content, "mine", 0)


def test_the_record_names_the_kept_state_before_the_one_before_goes(tmp_path: Path) -> None:
    files: list[list[str]] = []
    store = StateStore(
        place_in(tmp_path), None, lambda *_: files.append(sorted(path.name for path in tmp_path.iterdir()))
    )
    store.keep(1, LaneState(2))
    store.keep(1, LaneState(4))
    assert files == [["best-1-2.safetensors"], ["best-1-2.safetensors", "best-1-4.safetensors"]]
    assert [path.name for path in tmp_path.iterdir()] == ["best-1-4.safetensors"]


def test_the_kept_state_is_the_recorded_one_or_none(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path)).keep(1, LaneState(2))
    assert StateStore(place_in(tmp_path, kept=(1, 2))).load_kept().epoch == 2
    for kept in ((1, 3), (2, 2)):
        with pytest.raises(StoreError, match="cannot be used"):
            StateStore(place_in(tmp_path, kept=kept)).load_kept()
    with pytest.raises(StoreError, match="no weights were kept"):
        StateStore(place_in(tmp_path)).load_kept()


def test_a_reader_never_sees_a_part_of_a_file(tmp_path: Path) -> None:
    """What is being written has another name, which nobody takes for a state."""
    (tmp_path / "0.safetensors.abc.part").write_bytes(b"half")
    (tmp_path / "x.safetensors").write_bytes(b"half")
    assert list(StateStore(place_in(tmp_path))) == []
