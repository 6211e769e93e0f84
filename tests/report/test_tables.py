"""Tables say what a study found, whole, at any width."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from headwater.report.tables import best_table, profile_table, studies_table, summary, trial_view
from headwater.store import StudyInfo
from headwater.trials import DeviceGains, Measurement, Profile, Report, Result, Status, TrialRecord


class Adam:
    """Stands for an optimizer."""


def make_trial(
    number: int, value: float, status: Status = Status.COMPLETED, **config: Any
) -> TrialRecord:  # Any: a config
    history = tuple(
        Report(number=number, epoch=epoch, metrics={"accuracy": value * epoch / 20, "loss": 1 / epoch})
        for epoch in range(1, 21)
    )
    return TrialRecord(number=number, config=config, status=status, history=history, seconds=1.5)


def make_result(trials: list[TrialRecord], **fields: Any) -> Result:
    return Result(study="digits-1", metric="accuracy", mode="max", trials=tuple(trials), storage="study.db", **fields)


def render(renderable: RenderableType, width: int = 200) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable, crop=False)
    return captured.get()


def shift(number: int) -> dict[str, Any]:  # Any: as above
    return {f"hyperparameter_{n}": 0.1 + number for n in range(12)}


def test_the_best_trials_come_first_with_their_hyperparameters() -> None:
    trials = [make_trial(n, n / 10, lr=10.0**-n, opt={"kind": Adam, "act": None if n % 2 else len}) for n in range(5)]
    lines = render(best_table(make_result(trials), count=3)).splitlines()
    head, rows = lines[0].split(), [line.split() for line in lines[2:]]
    assert head == ["rank", "trial", "accuracy", "loss", "lr", "opt.act", "epochs", "status"]
    assert [row[1] for row in rows] == ["4", "3", "2"]
    assert rows[1][4:6] == ["0.001", "None"]
    assert rows[0][5] == "len"


def test_what_all_trials_share_takes_no_column() -> None:
    trials = [make_trial(n, 0.5, lr=0.1 * n, epochs_planned=20) for n in range(3)]
    assert "epochs_planned" not in render(best_table(make_result(trials)))
    assert "epochs_planned" in render(best_table(make_result(trials[:1])))


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    trials = [make_trial(n, n / 10, Status.COMPLETED, **shift(n)) for n in range(10)]
    shown = render(best_table(make_result(trials)), width)
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())
    assert all(f"{0.1 + number:.3f}" in shown for number in range(10))


def test_a_narrow_terminal_gets_one_column_for_each_trial() -> None:
    trials = [make_trial(n, n / 10, Status.COMPLETED, **shift(n)) for n in range(10)]
    lines = render(best_table(make_result(trials)), 60).splitlines()
    assert lines[0].split()[:3] == ["rank", "1", "2"]
    assert sum(line.startswith("hyperparameter_11") for line in lines) == sum(line.startswith("rank") for line in lines)


def test_text_in_values_is_no_markup() -> None:
    trials = [make_trial(n, 0.5, name=f"[red]{n}[/red]") for n in range(2)]
    assert "[red]0[/red]" in render(best_table(make_result(trials)))


def test_without_a_finite_value_there_is_no_table() -> None:
    trials = [make_trial(0, math.nan, lr=0.1)]
    assert "No trial has a finite accuracy" in render(best_table(make_result(trials)))


def test_the_summary_counts_and_tells_where_to_look() -> None:
    trials = [make_trial(n, 0.5, status) for n, status in enumerate([Status.COMPLETED, Status.STOPPED, Status.FAILED])]
    result = make_result(trials, num_lane_steps=30_000, seconds=10.0)
    shown = render(summary(result, "headwater show digits-1"))
    for part in ("3: 1 completed, 1 stopped, 1 failed", "10.0 s, 3,000 lane-steps/s", "study.db", "not measured"):
        assert part in shown
    assert "headwater show digits-1" in shown


def test_the_summary_says_what_changes_of_devices_gained() -> None:
    gains = DeviceGains(num_changes=3, seconds=12.0, last="trial 7 on 2 devices: gained 4.0 s over 9 epochs")
    shown = " ".join(render(summary(make_result([], device_gains=gains), None)).split())
    assert "devices 3 changes gained 12.0 s in all; the last: trial 7 on 2 devices: gained 4.0 s over 9 epochs" in shown
    lost = render(summary(make_result([], device_gains=replace(gains, num_changes=1, seconds=-2.0)), None))
    assert "1 change lost 2.0 s in all" in lost
    assert "devices" not in render(summary(make_result([]), None))


def test_the_summary_says_what_its_speedup_comes_from() -> None:
    profiles = tuple(Profile(num_lanes=n, reason="") for n in (16, 32, 16))
    result = make_result([], profiles=profiles, num_lane_steps=10, seconds=10.0, seconds_one_by_one=83.0)
    shown = render(summary(result, None))
    assert "trained 16 or 32 lanes at a time: 8.3 times faster than one by one" in shown
    assert "take 1 min 23 s in groups of one, as measured" in shown
    assert "gone with this process" in shown


def test_without_profiles_nobody_is_said_to_have_asked_for_lanes() -> None:
    shown = render(summary(make_result([], num_lane_steps=10, seconds=10.0), None))
    assert "asked for" not in shown
    assert "no numbers of lanes were compared; how long one by one would have taken was not measured" in shown


def test_no_speed_is_claimed_where_there_is_none() -> None:
    profiles = (Profile(num_lanes=1, reason=""),)
    result = make_result([], profiles=profiles, num_lane_steps=10, seconds=10.0, seconds_one_by_one=8.0)
    shown = render(summary(result, None))
    assert "faster" not in shown
    assert "trained one lane at a time" in shown


def test_a_trial_shows_its_configuration_history_and_notes() -> None:
    trial = TrialRecord(
        number=7,
        config={"opt": {"kind": Adam, "lr": 0.0123456789}},
        status=Status.COMPLETED,
        history=make_trial(7, 0.5).history,
        notes=("lanes part by `hidden`", "lanes part by `hidden`"),
        seconds=2.5,
    )
    shown = render(trial_view(trial), 80)
    for part in ("trial 7", "completed", "20 epochs, 2.5 s", "opt.kind  Adam", "0.0123457", "▁", "█", "0.025 → 0.5"):
        assert part in shown
    assert shown.count("lanes part by `hidden`") == 1
    epochs = [line.split()[0] for line in shown.splitlines() if line.strip()[:1].isdigit()]
    assert (epochs[0], epochs[-1], len(epochs)) == ("1", "20", 12)


def test_a_trial_says_how_many_epochs_it_leaves_out() -> None:
    trial = make_trial(7, 0.5)
    assert "left out: 8 of 20 epochs; see them with --all-epochs" in render(trial_view(trial))
    shown = render(trial_view(trial, all_epochs=True))
    assert "left out" not in shown
    assert [line.split()[0] for line in shown.splitlines() if line.strip()[:1].isdigit()] == [
        str(epoch) for epoch in range(1, 21)
    ]


def test_a_failed_trial_shows_its_traceback_whole() -> None:
    error = 'Traceback (most recent call last):\n  File "a.py", line 1\n' + "x" * 200 + "\nValueError: [red] 'lr'\n"
    trial = TrialRecord(number=0, config={"lr": 0.1}, status=Status.FAILED, error=error)
    assert error.strip() in render(trial_view(trial), 80)


def test_studies_are_listed_with_their_best() -> None:
    first = StudyInfo(name="digits-1", metric="accuracy", mode="max", seed=0, created=1e9)
    second = StudyInfo(name="empty", metric="accuracy", mode="max", seed=0, created=1e9)
    trials = [make_trial(0, 0.5), make_trial(1, 0.75, Status.RUNNING), make_trial(2, 0.25, Status.FAILED)]
    lines = render(
        studies_table([(first, make_result(trials), "done"), (second, make_result([]), "empty")])
    ).splitlines()
    assert lines[2].split()[0] == "digits-1"
    assert lines[2].split()[1] == "done"
    assert lines[2].split()[4:] == ["2/3", "1", "accuracy", "0.75", "(trial", "1)"]
    assert "none yet" in lines[3]


def test_the_list_of_studies_fits_a_narrow_terminal_whatever_they_are_called() -> None:
    name = "a-study-with-surrogates-and-a-name-of-many-words.target-17"
    info = StudyInfo(name=name, metric="validation_accuracy", mode="max", seed=0, created=1e9)
    result = replace(make_result([make_trial(7, 0.5)]), metric="accuracy")
    shown = render(studies_table([(info, result, "unfinished")]), 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert name in "".join(line.split()[0] for line in shown.splitlines()[2:])
    assert "unfinished" in shown


def test_a_profile_marks_what_was_chosen_and_says_why() -> None:
    measurements = tuple(
        Measurement(num_lanes=n, seconds_per_lane_step=1e-3 / n, peak_bytes=None if n == 1 else n << 20)
        for n in (1, 2, 4)
    )
    profile = Profile(num_lanes=4, reason="4.0 times as fast", measurements=measurements)
    lines = render(profile_table(profile, "hidden = 16")).splitlines()
    assert lines[0] == "4 lanes in a group (hidden = 16): 4.0 times as fast"
    assert [line.split() for line in lines[-3:]] == [
        ["1", "1", "ms", "1.0x"],
        ["2", "500", "µs", "2.0x", "2", "MiB"],
        ["→", "4", "250", "µs", "4.0x", "4", "MiB"],
    ]


def test_a_profile_without_measurements_is_one_line() -> None:
    shown = render(profile_table(Profile(num_lanes=1, reason="nothing larger was measured")))
    assert shown.strip() == "1 lane in a group: nothing larger was measured"
