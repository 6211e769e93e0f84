"""A study is read back from its record and shown on one page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import pytest
from rich.console import Console

from headwater.report.changes import MAX_CHANGES
from headwater.report.json_views import list_best
from headwater.report.reading import read_study, show_storage
from headwater.report.views import study_view
from headwater.space import Space, choice, uniform
from headwater.store import DEVICES, Recorder, Store, StudyInfo, Transition, open_store
from headwater.trials import Lane, Measurement, Profile, Report, Status


class Adam:
    """Stands for an optimizer."""

    def __init__(self, lr: float = 0.1, fast: bool = False) -> None: ...


SPACE = Space(
    {
        "lr": uniform(0, 1),
        "opt": {"kind": choice([Adam, partial(Adam, 3, fast=True)])},
        "act": lambda config: choice([len, None]),
    }
)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:", clock=lambda: 1e9) as store:
        info = StudyInfo(
            name="digits-1",
            metric="accuracy",
            mode="max",
            seed=3,
            space=[asdict(row) for row in SPACE.describe()],
            settings={"lanes": "auto", "num_trials": None},
        )
        store.create_study(info)
        fill(Recorder(store, store.study(), SPACE))
        yield store


def fill(recorder: Recorder) -> None:
    kinds = SPACE.domains["opt.kind"].values()
    assert kinds is not None
    configs = [{"lr": n / 10, "opt": {"kind": kinds[n % 2]}, "act": [len, None][n % 2]} for n in range(4)]
    lanes = [Lane(number=number, config=config, seed=0) for number, config in enumerate(configs)]
    recorder.add(lanes)
    values = [0.5, 0.75, math.nan, 0.25]
    recorder.write(
        [Report(number=n, epoch=1, metrics={"accuracy": value, "loss": math.inf}) for n, value in enumerate(values)],
        [Transition(number=n, status=Status.COMPLETED, epoch=1, seconds=1.0) for n in range(3)],
    )
    for _ in range(2):
        recorder.note("lanes", "lanes part by `hidden`", lanes)
    recorder.note("lanes", "4 lanes in a group (all trials): fast")
    measurements = (Measurement(num_lanes=1, seconds_per_lane_step=1e-3),)
    recorder.add_profile(Profile(num_lanes=4, reason="fast", measurements=measurements))


def test_the_page_has_settings_space_counts_profiles_and_notes(store: Store) -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(study_view(read_study(store, None, "study.db")))
    shown = captured.get()
    for part in (
        "digits-1", "the largest accuracy", "4: 1 running, 3 completed", "accuracy 0.75 (trial 1)",
        "lanes auto, seed 3", "opt.kind", "choice([Adam, Adam(3, fast=True)])", "depends on the others",
        "4 lanes in a group (all trials): fast", "· lanes part by `hidden` (4 trials)",
    ):  # fmt: skip
        assert part in shown
    assert shown.count("in a group") == 1


def test_notes_on_devices_have_a_part_of_their_own(store: Store) -> None:
    recorder = Recorder(store, store.study(), SPACE)
    for number in range(MAX_CHANGES + 2):
        recorder.note(DEVICES, f"at {number}.0 s on 2 devices", [Lane(number=number % 4, config={}, seed=0)])
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(study_view(read_study(store, None, "study.db")))
    notes, devices = captured.get().split("devices, the last of 12 notes")
    assert "· lanes part by `hidden` (4 trials)" in notes
    assert "on 2 devices" not in notes
    assert "· trial 3: at 11.0 s on 2 devices" in devices
    assert devices.count("on 2 devices") == MAX_CHANGES


def test_configurations_are_readable_without_their_space(store: Store) -> None:
    first, second, *_ = read_study(store, "digits-1", "study.db").result.trials
    assert first.config == {"lr": 0.0, "opt": {"kind": "Adam"}, "act": "len"}
    assert second.config == {"lr": 0.1, "opt": {"kind": "Adam(3, fast=True)"}, "act": None}


def test_with_their_space_configurations_come_back_as_they_were(store: Store) -> None:
    first, *_ = Recorder(store, store.study(), SPACE).trials()
    assert first.config == {"lr": 0.0, "opt": {"kind": Adam}, "act": len}


def test_profiles_come_back_as_they_were_measured(store: Store) -> None:
    measurements = (Measurement(num_lanes=1, seconds_per_lane_step=1e-3),)
    profiles = read_study(store, None, "study.db").profiles
    assert profiles == {"all trials": Profile(num_lanes=4, reason="fast", measurements=measurements)}


def test_the_best_are_listed_as_strict_json(store: Store) -> None:
    listed = list_best(read_study(store, None, "study.db").result, 2)
    first, second = json.loads(json.dumps(listed, allow_nan=False))["trials"]
    assert (first["rank"], first["number"], first["value"]) == (1, 1, 0.75)
    assert first["metrics"] == {"accuracy": 0.75, "loss": None}
    assert first["config"]["opt"] == {"kind": "Adam(3, fast=True)"}
    assert second["number"] == 0


@pytest.mark.parametrize(
    ("storage", "shown"),
    [
        ("study.db", "study.db"),
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("postgresql://me:s3:cr@t@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)
def test_passwords_are_not_shown(storage: str, shown: str) -> None:
    assert show_storage(storage) == shown
