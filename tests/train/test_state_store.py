"""The states of lanes, as workers write and load them: a wrong one is never returned."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from headwater.errors import StoreError, TrialError
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.engines import LaneState
from headwater.train.state_store import StateStore
from headwater.trials import StatesPlace

STATE = LaneState(3, models=[{"weight": torch.arange(6.0).reshape(2, 3), "none": torch.ones(0)}])


def place_in(folder: Path | str, study: str = "mine", kept: tuple[int, int] | None = None) -> StatesPlace:
    return StatesPlace(url=str(folder), study=study, kept=kept)


@pytest.mark.parametrize("url", ["{}/states", "file://{}/states", "memory://{}/states"])
def test_a_state_comes_back_from_every_kind_of_place(tmp_path: Path, url: str) -> None:
    place = place_in(url.format(tmp_path))
    first = StateStore(place)
    first.put(4, STATE)
    first.put(4, LaneState(5, models=STATE.models))
    loaded = StateStore(place).load(4, 5)
    assert loaded.epoch == 5
    assert StateStore(place).load(4, 3).epoch == 3
    assert torch.equal(loaded.models[0]["weight"], STATE.models[0]["weight"])


def test_numbers_of_numpy_come_back_as_numbers() -> None:
    group = {"nesterov": np.bool_(True), "lr": np.float64(0.1), "momentum": np.float32(0.9), "step": np.int64(3)}
    state = LaneState(3, optimizers=[{"param_groups": [group]}])
    (loaded,) = decode_state(encode_state(state, "mine", 0), "mine", 0).optimizers
    assert loaded["param_groups"] == [{"nesterov": True, "lr": 0.1, "momentum": float(np.float32(0.9)), "step": 3}]


TENSORS = {
    "rows": torch.arange(12.0).reshape(3, 4).T,
    "view": torch.arange(12, dtype=torch.int16)[1::3],
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "half": torch.arange(3).half(),
    "brain": torch.arange(3).bfloat16(),
    "eighth": torch.arange(3.0).to(torch.float8_e5m2),
    "mask": torch.tensor([True, False]),
    "none": torch.ones(0, 3),
    "negative": torch.tensor([1 + 2j]).conj().imag,
    "complex": torch.tensor([1 + 2j]).conj(),
}


def test_tensors_come_back_with_their_types_and_numbers_from_wherever_they_lie() -> None:
    (loaded,) = decode_state(encode_state(LaneState(3, models=[TENSORS]), "mine", 0), "mine", 0).models
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].tolist() == tensor.tolist()


def test_a_file_of_a_state_is_one_of_safetensors(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path)).put(0, LaneState(3, models=[TENSORS]))
    found = load_file(tmp_path / "0-3.safetensors")
    assert found["/models/0/rows"].tolist() == TENSORS["rows"].tolist()
    assert len(found) == len(TENSORS)


def test_tensors_that_no_file_can_hold_are_named() -> None:
    with pytest.raises(TrialError, match=r"at /models/0/weight holds a torch\.sparse_coo tensor of torch\.float32"):
        encode_state(LaneState(3, models=[{"weight": torch.eye(3).to_sparse()}]), "mine", 0)


def test_a_state_is_copied_once() -> None:
    state = LaneState(3, models=[{"weight": torch.zeros(1 << 22)}])
    tracemalloc.start()
    try:
        content = encode_state(state, "mine", 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * len(content)


def test_a_state_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"4-2\.safetensors"):
        StateStore(place_in(tmp_path)).load(4, 2)


def test_a_state_of_another_study_is_refused(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path, "other")).put(0, STATE)
    with pytest.raises(StoreError, match="of trial 0 of the study with the id 'other'"):
        StateStore(place_in(tmp_path)).load(0, 3)


def test_a_state_of_another_trial_is_refused(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path)).put(0, STATE)
    (tmp_path / "0-3.safetensors").rename(tmp_path / "1-3.safetensors")
    with pytest.raises(StoreError, match="it is of trial 0"):
        StateStore(place_in(tmp_path)).load(1, 3)


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


def test_the_kept_state_is_the_recorded_one_or_none(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path)).keep(1, LaneState(2))
    assert StateStore(place_in(tmp_path, kept=(1, 2))).load_kept().epoch == 2
    for kept in ((1, 3), (2, 2)):
        with pytest.raises(StoreError, match="cannot be used"):
            StateStore(place_in(tmp_path, kept=kept)).load_kept()
    with pytest.raises(StoreError, match="no weights were kept"):
        StateStore(place_in(tmp_path)).load_kept()


def test_kept_weights_under_the_name_of_another_epoch_are_refused(tmp_path: Path) -> None:
    StateStore(place_in(tmp_path)).keep(1, LaneState(2))
    (tmp_path / "best-1-2.safetensors").rename(tmp_path / "best-1-3.safetensors")
    with pytest.raises(StoreError, match="are of epoch 2, where the record has 3"):
        StateStore(place_in(tmp_path, kept=(1, 3))).load_kept()
