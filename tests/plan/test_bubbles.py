"""Where pipelines stall, how much they keep, and what fits beside them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest

from headwater.errors import PlanError
from headwater.plan.bubbles import (
    GIB,
    Pass,
    Pipeline,
    PipelineOrder,
    StageMemory,
    bound_speedup,
    explain_refusal,
    fit_lanes,
)
from headwater.trials import Measurement

GPIPE = PipelineOrder.GPIPE


@pytest.mark.parametrize("order", PipelineOrder)
@pytest.mark.parametrize(
    ("num_micro_batches", "share"), [(4, Fraction(3, 7)), (8, Fraction(3, 11)), (16, Fraction(3, 19))]
)
@pytest.mark.parametrize("backward_s", [1.0, 2.0])
def test_each_of_four_stages_waits_as_long(
    order: PipelineOrder, num_micro_batches: int, share: Fraction, backward_s: float
) -> None:
    pipeline = Pipeline(4, num_micro_batches, order, backward_s=backward_s)
    assert [pipeline.measure_bubble(stage) for stage in range(4)] == pytest.approx([float(share)] * 4)


@pytest.mark.parametrize("num_micro_batches", [4, 8])
def test_1f1b_keeps_fewer_activations_the_later_the_stage(num_micro_batches: int) -> None:
    pipeline = Pipeline(4, num_micro_batches)
    assert [pipeline.count_stored(stage) for stage in range(4)] == [4, 3, 2, 1]


def test_gpipe_keeps_the_activations_of_all() -> None:
    assert [Pipeline(4, 8, GPIPE).count_stored(stage) for stage in range(4)] == [8] * 4


def test_a_first_stage_waits_for_the_first_gradient_and_a_last_one_for_the_first_batch() -> None:
    pipeline = Pipeline(4, 4)
    first, last = pipeline.list_stalls(0), pipeline.list_stalls(3)
    assert (first[0].begin_s, first[0].seconds) == (4.0, 3.0)
    assert [(stall.begin_s, stall.end_s) for stall in last] == [(0.0, 3.0), (11.0, 14.0)]
    assert pipeline.step_s == 14.0


@pytest.mark.parametrize("order", PipelineOrder)
def test_no_pass_begins_before_what_it_needs(order: PipelineOrder) -> None:
    table = Pipeline(3, 5, order, forward_s=1.0, backward_s=2.5).timetable
    by_pass = [{(slot.kind, slot.micro_batch): slot for slot in slots} for slots in table]
    assert all(len(slots) == 10 for slots in by_pass)
    for place in range(5):
        for stage in range(2):
            here, later = by_pass[stage], by_pass[stage + 1]
            assert later[Pass.FORWARD, place].begin_s >= here[Pass.FORWARD, place].end_s
            assert here[Pass.BACKWARD, place].begin_s >= later[Pass.BACKWARD, place].end_s
    for slots in table:
        assert all(later.begin_s >= slot.end_s for slot, later in pairwise(slots))


def test_one_stage_never_waits() -> None:
    assert Pipeline(1, 3).measure_bubble(0) == 0.0
    assert Pipeline(1, 3).list_stalls(0) == []


def test_later_stages_have_more_room() -> None:
    pipeline = Pipeline(4, 4)
    memory = StageMemory(capacity_bytes=40 * GIB, weights_bytes=20 * GIB, activation_bytes=5 * GIB)
    rooms = [memory.find_room(pipeline.count_stored(stage)) // GIB for stage in range(4)]
    assert rooms == [0, 5, 10, 15]


def measure(num_lanes: int, peak_bytes: int | None) -> Measurement:
    return Measurement(num_lanes=num_lanes, seconds_per_lane_step=1.0, peak_bytes=peak_bytes)


def test_two_points_tell_how_many_lanes_fit() -> None:
    assert fit_lanes([measure(1, 2000), measure(2, 2500)], 80_000) == 157
    assert fit_lanes([measure(1, 2000), measure(8, 5500)], 80_000) == 157
    assert fit_lanes([measure(1, 2000)], 7000) == 3
    assert fit_lanes([measure(1, 2000), measure(2, 2500)], 1999) == 0


def test_lanes_of_which_nothing_is_known_are_let_in() -> None:
    assert fit_lanes([], 80) == math.inf
    assert fit_lanes([measure(1, None)], 80) == math.inf
    assert fit_lanes([measure(1, 2000)], None) == math.inf


def test_memory_that_does_not_grow_with_lanes_counts_as_much_for_each() -> None:
    assert fit_lanes([measure(1, 2000), measure(2, 1900)], 7000) == 3


def test_a_refusal_says_what_is_needed_and_what_there_is() -> None:
    text = explain_refusal(3 * GIB, [GIB, 2 * GIB])
    assert "needs 3.00 GiB" in text
    assert "leave 2.00 GiB" in text
    assert "\n" not in text


def test_bubbles_of_32_gpus_at_15_percent_are_worth_58_tenths() -> None:
    assert bound_speedup(1, 32, 0.15) == pytest.approx(5.8)
    with pytest.raises(PlanError, match="needs one"):
        bound_speedup(0, 32, 0.15)


def test_pipelines_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError, match="4 stages and 3 micro-batches"):
        Pipeline(4, 3)
    assert Pipeline(4, 3, GPIPE).step_s == 12.0
    with pytest.raises(PlanError, match="must take time"):
        Pipeline(2, 2, forward_s=0.0)
