"""Which trials train on devices of the study's own, and which in bubbles, in simulation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.execute.simulation import learn, list_histories, make_study

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.search import ASHA
from headwater.store import open_store
from headwater.trials import Device, Result, Span, SpanPurpose

SHARE = 0.25


def time_epoch(config: Any, num_lanes: int, kind: str) -> float:
    return 1.0 if kind == "gpu" else 1.0 / SHARE


TIMES = SimulatedTimes(epoch_s=time_epoch, num_epochs=27, save_s=0.01)


def list_devices(num_own: int, num_lent: int, memory_bytes: int | None = None) -> list[Device]:
    own = [Device(name=f"gpu:{place}", kind="gpu") for place in range(num_own)]
    return own + [
        Device(name=f"bubble:{place}", kind="bubble", is_ephemeral=True, memory_bytes=memory_bytes)
        for place in range(num_lent)
    ]


def run(devices: Sequence[Device], times: SimulatedTimes = TIMES, num_trials: int = 27, **settings: Any) -> Result:
    settings = {"max_epochs": 27, "search": ASHA(reduction=3), **settings}
    return make_study(SimulatedExecutor(devices, learn, times), **settings).run(num_trials, watcher=hw.Silence())


def read_spans(path: Path) -> list[Span]:
    with open_store(path) as store:
        return [span for span in store.spans(store.study()) if span.purpose is SpanPurpose.LANES]


def test_bubbles_shorten_a_study_by_no_more_than_they_are_worth_and_change_no_result() -> None:
    alone, helped = run(list_devices(1, 0)), run(list_devices(1, 8))
    gain = alone.seconds / helped.seconds
    assert 1.2 < gain <= 1 + 8 * SHARE  # were no trial ever to wait for another
    assert list_histories(alone) == list_histories(helped)


def test_the_best_trials_end_on_the_studys_own_device(tmp_path: Path) -> None:
    result = run(list_devices(1, 4), storage=tmp_path / "study.db")
    last: dict[int, tuple[float, str]] = {}
    for span in read_spans(tmp_path / "study.db"):
        for number in span.trials:
            last[number] = max(last.get(number, (0.0, "")), (span.end_s, span.device))
    full = [trial.number for trial in result.trials if trial.epochs == 27]
    assert full
    assert {last[number][1] for number in full} == {"gpu:0"}


def test_what_has_only_begun_trains_in_bubbles_while_better_trials_wait(tmp_path: Path) -> None:
    run(list_devices(1, 2), storage=tmp_path / "study.db")
    spans = read_spans(tmp_path / "study.db")
    on_own = sum(len(span.trials) for span in spans if span.device == "gpu:0")
    assert on_own < sum(len(span.trials) for span in spans)
    assert {span.device for span in spans} == {"gpu:0", "bubble:0", "bubble:1"}


def test_a_random_search_uses_all_devices_and_moves_to_its_own_when_that_is_idle(tmp_path: Path) -> None:
    result = run(list_devices(1, 1), num_trials=2, search="random", storage=tmp_path / "study.db")
    # On its own device a trial takes 27 s; the other goes on there after its next report.
    assert result.seconds == pytest.approx(27 + 27 - 27 * SHARE, abs=2.0)
    assert [span.device for span in read_spans(tmp_path / "study.db")].count("gpu:0") == 2


@pytest.mark.parametrize(("room", "size"), [(3000, 3), (10_000, 8)])
def test_groups_are_cut_to_the_memory_that_is_left(room: int, size: int, tmp_path: Path) -> None:
    def in_groups(config: Any, num_lanes: int, kind: str) -> float:
        return 1.0 + 0.01 * num_lanes

    times = SimulatedTimes(epoch_s=in_groups, num_epochs=3, lane_bytes=1000)
    devices = list_devices(0, 1, memory_bytes=room)
    run(devices, times, 8, search="random", max_epochs=3, lanes="auto", storage=tmp_path / "study.db")
    assert max(len(span.trials) for span in read_spans(tmp_path / "study.db")) == size


def test_what_fits_into_no_bubble_is_refused_unless_there_is_another_device(tmp_path: Path) -> None:
    times = SimulatedTimes(epoch_s=time_epoch, num_epochs=3, lane_bytes=1 << 30)
    settings: dict[str, Any] = {"search": "random", "max_epochs": 3, "lanes": "auto"}
    with pytest.raises(StudyError, match=r"needs 1\.00 GiB, but the bubbles leave 0\.50 GiB at most"):
        run(list_devices(0, 2, memory_bytes=1 << 29), times, 8, **settings)
    run(list_devices(1, 2, memory_bytes=1 << 29), times, 8, storage=tmp_path / "study.db", **settings)
    assert {span.device for span in read_spans(tmp_path / "study.db")} == {"gpu:0"}


def test_where_there_is_another_device_nothing_is_measured_in_bubbles(tmp_path: Path) -> None:
    times = SimulatedTimes(epoch_s=time_epoch, num_epochs=3, measure_s=1.0)
    run(list_devices(1, 2), times, 12, search="random", max_epochs=3, lanes="auto", storage=tmp_path / "study.db")
    with open_store(tmp_path / "study.db") as store:
        spans = store.spans(store.study())
    assert {span.device for span in spans if span.purpose is SpanPurpose.MEASUREMENT} == {"gpu:0"}
