"""Accelerators: one module calls them, and nothing is started that nobody uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from headwater import devices
from headwater.execute.counting import limit_to
from headwater.train.seeding import Randomness, seed_everything

SOURCE = Path(devices.__file__).parent
CALLS = re.compile(r"torch\.(cuda|mps|xpu|mtia|accelerator)\b")


def test_only_one_module_calls_accelerators() -> None:
    others = [path for path in SOURCE.rglob("*.py") if path.name != "devices.py"]
    assert len(others) > 100
    found = {f"{path.relative_to(SOURCE)}: {match[0]}" for path in others for match in CALLS.finditer(path.read_text())}
    assert found == set()


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("cuda", "CUDA_VISIBLE_DEVICES"), ("xpu", "ZE_AFFINITY_MASK"), ("sim", "SIM_VISIBLE_DEVICES")],
)
def test_a_process_is_limited_to_one_device(kind: str, variable: str) -> None:
    assert limit_to(kind, "1") == {variable: "1"}


def test_the_default_device_has_the_memory_and_generator_that_it_says() -> None:
    device = devices.choose_default()
    generator = devices.default_generator(torch.ones(1, device=device).device)
    assert generator.device.type == device.type
    assert devices.count_devices() == len(devices.list_names())
    assert devices.is_accelerator(device) == (device.type != "cpu")


def test_random_numbers_go_on_from_where_they_were_on_every_device() -> None:
    device = devices.choose_default()
    seed_everything(3)
    torch.rand(2, device=device)
    before = Randomness()
    expected = [torch.rand(2), torch.rand(2, device=device)]
    assert not Randomness().stands_as(before)
    before.restore()
    assert Randomness().stands_as(before)
    assert all(map(torch.equal, [torch.rand(2), torch.rand(2, device=device)], expected))


def test_a_tensor_that_is_sent_arrives() -> None:
    device = devices.choose_default()
    sent = devices.send(torch.arange(3), device)
    assert sent.device.type == device.type
    assert sent.tolist() == [0, 1, 2]
