"""The simulated accelerator refuses, hides, delays and counts what a GPU does."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

MIXED = "Expected all tensors to be on the same device"


def test_it_is_torchs_accelerator_and_has_two_devices() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert torch.accelerator.device_count() == 2
    assert torch.ones(1, device="sim:1").device == torch.device("sim", 1)


def test_the_host_cannot_read_its_memory() -> None:
    tensor = torch.ones(2, device="sim")
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(tensor.data_ptr(), 4)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV


def test_fresh_memory_holds_nan() -> None:
    assert torch.empty(4, device="sim").isnan().all()


@pytest.mark.parametrize(
    "other", [torch.ones(3, 3), torch.ones(3, 3, device="sim:1")], ids=["with the host", "with the other device"]
)
def test_tensors_of_two_devices_do_not_meet(other: Tensor) -> None:
    tensor = torch.ones(3, 3, device="sim:0")
    for compute in (torch.add, torch.mm, F.mse_loss):
        with pytest.raises(RuntimeError, match=MIXED):
            compute(tensor, other)


def test_a_number_of_the_host_meets_every_tensor() -> None:
    assert (torch.ones(2, device="sim") * torch.tensor(3.0)).tolist() == [3.0, 3.0]


def test_generators_belong_to_their_device() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'sim' device type for generator but found 'cpu'"):
        torch.randn(3, device="sim", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a generator of sim:0"):
        torch.randn(3, device="sim:0", generator=torch.Generator("sim:1"))


def test_a_seed_gives_other_numbers_than_on_the_host_and_leaves_the_hosts_alone() -> None:
    torch.manual_seed(1)
    on_device = [torch.rand(4, device="sim"), F.dropout(torch.ones(64, device="sim"))]
    on_host = torch.rand(4)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(4), on_host)
    assert not torch.equal(on_device[0].cpu(), on_host)
    assert torch.equal(torch.rand(4, device="sim"), on_device[0])
    assert torch.equal(F.dropout(torch.ones(64, device="sim")), on_device[1])


def test_gradients_are_computed_by_another_thread() -> None:
    threads: list[int] = []
    weight = torch.ones(2, device="sim", requires_grad=True)
    weight.register_hook(lambda grad: threads.append(threading.get_ident()))
    torch.autograd.backward((weight * 2).sum())
    assert threads != [threading.get_ident()]
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0]


def test_more_than_its_memory_is_refused(sim: Any) -> None:
    sim.set_limit(1 << 20)
    kept = torch.ones(1 << 17, device="sim")
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        torch.ones(1 << 18, device="sim")
    assert torch.accelerator.memory_allocated() >= kept.nbytes
    assert torch.ones(1 << 18, device="sim:1").numel() == 1 << 18


def test_a_copy_to_the_host_that_need_not_block_arrives_when_somebody_synchronises() -> None:
    arrived = torch.zeros(3).pin_memory()
    arrived.copy_(torch.ones(3, device="sim"), non_blocking=True)
    event = torch.Event("sim")
    event.record()
    assert arrived.tolist() == [0.0] * 3
    assert not event.query()
    torch.accelerator.synchronize()
    assert arrived.tolist() == [1.0] * 3
    assert event.query()


def test_a_copy_from_pinned_memory_reads_it_late_and_one_from_other_memory_at_once() -> None:
    for source, arrives in ((torch.zeros(2).pin_memory(), 7.0), (torch.zeros(2), 0.0)):
        assert source.is_pinned() == (arrives == 7.0)
        copy = source.to("sim", non_blocking=True)
        source.fill_(7.0)
        assert copy.tolist() == [arrives] * 2


def test_a_loader_pins_its_batches() -> None:
    (batch,) = next(iter(DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, pin_memory=True)))
    assert batch.is_pinned()


def test_autocast_lowers_the_precision() -> None:
    ones = torch.ones(2, 2, device="sim")
    with torch.autocast("sim", torch.float16):
        assert (ones @ ones).dtype == torch.float16
        assert ones.sum().dtype == torch.float32


def test_tensors_are_saved_and_loaded_wherever_they_are_wanted() -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2, device="sim:1"), file)
    for location, expected in ((None, "sim:1"), ("cpu", "cpu"), ("sim:0", "sim:0")):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded.device == torch.device(expected)
        assert loaded.tolist() == [1.0, 1.0]


def test_counters_count(sim: Any) -> None:
    tensor = torch.ones(3, device="sim")
    before = sim.read_counters()
    ((tensor + 1) * 2).sum().item()
    tensor.cpu()
    torch.ones(3).to("sim")
    torch.ones(3).pin_memory().to("sim", non_blocking=True)
    tensor.to("sim:1")
    torch.accelerator.synchronize()
    assert {name: count - before[name] for name, count in sim.read_counters().items() if name != "operators"} == {
        "host_reads": 1,
        "copies_to_device": 2,
        "copies_from_device": 1,
        "copies_between": 1,
        "blocking_copies": 2,
        "synchronizations": 1,
    }


@pytest.mark.parametrize("read", [torch.Tensor.item, torch.Tensor.cpu, lambda tensor: tensor[[0]]])
def test_waiting_can_be_forbidden(sim: Any, read: Any) -> None:
    tensor = torch.ones(1, device="sim")
    with sim.waiting_forbidden(), pytest.raises(RuntimeError, match="the host waits for the device here"):
        read(tensor)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Conv1d(6, 4, 3), nn.BatchNorm1d(4), nn.GELU(), nn.MaxPool1d(2)),
        lambda: nn.LSTM(8, 4, batch_first=True),
        lambda: nn.GRU(8, 4, batch_first=True),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    ],
    ids=["convolution", "LSTM", "GRU", "Transformer"],
)
def test_models_have_the_answers_and_gradients_of_the_host(build: Any) -> None:
    found = []
    for device in ("cpu", "sim"):
        torch.manual_seed(0)
        model, x = build().double().to(device), torch.randn(5, 6, 8, dtype=torch.float64).to(device)
        answer = model(x)
        answer = answer[0] if isinstance(answer, tuple) else answer
        answer.square().sum().backward()
        found.append([answer.cpu(), *(weight.grad.cpu() for weight in model.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
