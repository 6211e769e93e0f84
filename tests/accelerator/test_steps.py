"""In a step of lanes, the host waits for nothing: it reads no number, and no copy blocks."""

from __future__ import annotations

import pytest
from tests.accelerator.steps import EXTRAS, MODELS, count_step

NUM_LANES = 3


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Muon"])
@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_lanes_waits_for_nothing(model: str, optimizer: str) -> None:
    counters = count_step(model, optimizer, NUM_LANES)
    assert [counters[name] for name in ("host_reads", "blocking_copies", "synchronizations")] == [0, 0, 0]
    assert counters["copies_to_device"] == 2  # the batch
    assert counters["copies_from_device"] == 0


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra != "GradScaler"])
def test_schedules_clipping_and_averages_wait_for_nothing(extra: str) -> None:
    counters = count_step("MLP", "AdamW", NUM_LANES, [extra])
    assert [counters[name] for name in ("host_reads", "blocking_copies", "synchronizations")] == [0, 0, 0]


def test_a_grad_scaler_reads_once_a_step_as_in_plain_pytorch() -> None:
    lanes, plain = (count_step("MLP", "AdamW", num_lanes, ["GradScaler"]) for num_lanes in (NUM_LANES, 1))
    assert lanes["host_reads"] + lanes["blocking_copies"] == plain["host_reads"] + plain["blocking_copies"] == 1


@pytest.mark.parametrize("model", ["MLP", "Transformer"])
def test_more_lanes_take_no_more_operators(model: str) -> None:
    few, many = (count_step(model, "AdamW", num_lanes) for num_lanes in (2, 6))
    assert many["operators"] == few["operators"]
