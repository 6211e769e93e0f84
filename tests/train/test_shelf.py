"""Where the states of lanes wait, and how often they are put there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.train import shelf as module
from headwater.train.engines import LaneState
from headwater.train.shelf import SAVING_SHARE, Shelf


class Clock:
    """A time that passes only when told, and by a second with every state that is written."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    def save_state(state: LaneState, path: Path) -> None:
        clock.now += 1.0

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "save_state", save_state)
    return clock


def test_saving_takes_no_more_than_its_share_of_the_time(clock: Clock, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, "auto")
    num_saved = 0
    for epoch in range(1, 1001):
        clock.now += 0.5
        if shelf.is_due(epoch):
            with shelf.saving():
                shelf.put(0, LaneState(epoch, models=[{"weight": torch.ones(1)}]))
            num_saved += 1
    assert num_saved / clock.now == pytest.approx(SAVING_SHARE, rel=0.1)


def test_a_trial_is_saved_after_every_so_many_epochs(tmp_path: Path) -> None:
    assert [epoch for epoch in range(1, 8) if Shelf(tmp_path, 3).is_due(epoch)] == [3, 6]


@pytest.mark.parametrize("shelf", [Shelf(None, "auto"), Shelf(Path("nowhere"), None)])
def test_without_a_folder_or_an_interval_nothing_is_due(shelf: Shelf) -> None:
    assert not shelf.is_due(1)
