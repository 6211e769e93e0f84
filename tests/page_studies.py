"""Studies for the tests of pages: written straight into a record, so that every number is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headwater.store import Batch, Note, StudyInfo, Transition, open_store
from headwater.trials import Lane, NodeStay, Report, Span, SpanPurpose, Spending, StageSpending, Status

HOSTILE = "<img src=x onerror=alert(1)></script><script>window.hacked=1</script>"
CONTROL = "bell\x07 tab\x1b[31m \u202eturned"
LONG = "x" * 100_000
SPENT = Spending(
    seconds=100.0,
    cost_dollars=2.0,
    num_nodes=0,
    planned_s=90.0,
    planned_dollars=1.5,
    deadline_s=120.0,
    budget_dollars=3.0,
    spot_dollars=1.0,
    num_lost=1,
    stages=(StageSpending(num_trials=9, num_epochs=1, planned_nodes=2, planned_s=90.0, planned_dollars=1.5),),
    prices=((60.0, 4.0), (90.0, 1.5), (120.0, 1.25), (240.0, 1.0)),
    stays=(
        NodeStay(node="a", begin_s=0.0, end_s=40.0, dollars_per_hour=36.0, is_spot=True, is_lost=True),
        NodeStay(node="b", begin_s=0.0, end_s=100.0, dollars_per_hour=36.0, is_spot=True),
        NodeStay(node="c", begin_s=45.0, end_s=100.0, dollars_per_hour=72.0),
    ),
)


def write_plain(
    path: Path,
    num_trials: int = 24,
    num_epochs: int = 5,
    name: str = "plain",
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """A study of a search with rungs: a third of the trials go on at epoch 2; one trial fails."""
    begin = 1_790_000_000.0
    ticks = iter(range(10**9))
    rows = [
        {"key": "lr", "kind": "domain", "text": "loguniform(0.0001, 1.0)", "num_values": None},
        {"key": "opt.name", "kind": "domain", "text": "choice(['SGD', 'AdamW'])", "num_values": 2},
    ]
    with open_store(path, clock=lambda: begin + 0.25 * next(ticks)) as store:
        settings = {"num_trials": num_trials, "search": "asha", "num_seeds": 1, **settings}
        info = StudyInfo(name=name, metric="accuracy", mode="max", seed=1, space=rows, settings=settings)
        study = store.create_study(info)
        for number in range(num_trials):
            lr = 10 ** (-4 + 4 * number / num_trials)
            shown = {"lr": lr, "opt": {"name": "SGD" if number % 2 else "AdamW"}}
            codes = {"lr": lr, "opt.name": (number + 1) % 2}
            store.add_trials(study, [Lane(number=number, config={"codes": codes, "shown": shown}, seed=number)])
            goes_on = number % 3 == 0
            last = num_epochs if goes_on else 2
            for epoch in range(1, last + 1):
                metrics = {"accuracy": _accuracy(number, num_trials, epoch), "loss": 1 / epoch}
                store.write(study, Batch(reports=(Report(number=number, epoch=epoch, metrics=metrics),)))
            failed = number == 5
            status = Status.FAILED if failed else Status.COMPLETED if goes_on else Status.STOPPED
            error = "Traceback (most recent call last):\nValueError: five is not allowed" if failed else None
            move = Transition(number=number, status=status, epoch=last, error=error, seconds=0.5 * last)
            store.write(study, Batch(transitions=(move,)))
        spans = [
            Span(study=name, device="cpu:0", purpose=SpanPurpose.MEASUREMENT, trials=(0, 1), begin_s=0.0, end_s=1.0),
            Span(
                study=name, device="cpu:0", purpose=SpanPurpose.LANES, trials=tuple(range(12)), begin_s=1.0, end_s=5.0
            ),
            Span(
                study=name,
                device="cpu:1",
                purpose=SpanPurpose.PACK,
                trials=tuple(range(12, 20)),
                begin_s=2.0,
                end_s=6.0,
            ),
        ]
        store.write(study, Batch(spans=tuple(spans), notes=(Note(kind="lanes", text="trained apart", number=3),)))
        measured = {"num_lanes": 8, "seconds_per_lane_step": 2e-4, "peak_bytes": 10**6, "loading_s": 0.0}
        alone = {**measured, "num_lanes": 1, "seconds_per_lane_step": 1e-3}
        profile = {"num_lanes": 8, "reason": "5 times as fast", "measurements": [alone, measured]}
        store.add_fact(study, "lanes: all trials", profile)


def write_paid(path: Path) -> None:
    """The same study on nodes that are paid for, by a plan."""
    write_plain(path)
    with open_store(path) as store:
        for key, fact in SPENT.list_facts():
            store.add_fact(store.study("plain").id, key, fact)


def write_traded(path: Path) -> list[int]:
    """A study of two metrics; return its front: low numbers have a high accuracy, and high ones a low loss."""
    front = [0, 3, 6, 9]
    with open_store(path) as store:
        settings = {"num_trials": 12, "search": "random", "num_seeds": 1, "also": {"loss": "min"}}
        study = store.create_study(StudyInfo(name="traded", metric="accuracy", mode="max", seed=0, settings=settings))
        for number in range(12):
            shown = {"lr": 0.1 * (number + 1)}
            store.add_trials(study, [Lane(number=number, config={"codes": {}, "shown": shown}, seed=0)])
            lost = 0.0 if number in front else 0.5
            metrics = {"accuracy": 0.9 - 0.05 * number - lost, "loss": 2 - 0.1 * number + lost}
            moves = (Transition(number=number, status=Status.COMPLETED, epoch=1, seconds=1.0),)
            store.write(study, Batch(reports=(Report(number=number, epoch=1, metrics=metrics),), transitions=moves))
    return front


def write_transferred(path: Path) -> None:
    """The plain study as the search of surrogates, whose target has reached more than any of them."""
    write_plain(path, settings={"surrogate": "1/8 of the width (none below 32)"})
    with open_store(path) as store:
        settings = {
            "num_trials": 1,
            "num_seeds": 1,
            "part_of": "plain",
            "surrogate": "1/1 of the width (none below 32)",
        }
        info = StudyInfo(name="plain.target-21", metric="accuracy", mode="max", seed=1, settings=settings)
        stage = store.create_study(info)
        store.add_trials(stage, [Lane(number=0, config={"codes": {}, "shown": {"lr": 0.1}}, seed=0)])
        reports = (Report(number=0, epoch=1, metrics={"accuracy": 0.9875}),)
        moves = (Transition(number=0, status=Status.COMPLETED, epoch=1, seconds=1.0),)
        store.write(stage, Batch(reports=reports, transitions=moves))
        store.add_fact(store.study("plain").id, "target", "plain.target-21")


def finish_search(path: Path, *, ended_early: str | None) -> None:
    """Have the plain study leave trials 1 and 2 paused, as a search does that promotes others, and end its run."""
    with open_store(path) as store:
        study = store.study("plain").id
        moves = tuple(Transition(number=number, status=Status.PAUSED, epoch=2) for number in (1, 2))
        store.write(study, Batch(transitions=moves))
        store.add_fact(study, "run", {"seconds": 1.0, "lane_steps": 9, "ended_early": ended_early})


def write_hostile(path: Path) -> None:
    """A study of which every name and value tries to be something else."""
    name = f"{HOSTILE} {CONTROL}"
    config: Mapping[str, Any] = {HOSTILE: HOSTILE, "control": CONTROL, "long": LONG, "nan": math.nan, "inf": -math.inf}
    with open_store(path) as store:
        rows = [{"key": key, "kind": "constant", "text": HOSTILE, "num_values": 1} for key in config]
        info = StudyInfo(
            name=name, metric=HOSTILE, mode="min", seed=0, space=rows, settings={"num_seeds": 1, "search": HOSTILE}
        )
        study = store.create_study(info)
        for number in range(3):
            shown = {**config, "own": f"{HOSTILE}{number}", "place": number}
            codes: dict[str, float] = {}
            store.add_trials(study, [Lane(number=number, config={"codes": codes, "shown": shown}, seed=0)])
            values = [(1.0, math.nan, math.inf, 2.0 + number), (-math.inf, math.nan, 3.0), (math.nan,)][number]
            for epoch, value in enumerate(values, start=1):
                metrics = {HOSTILE: value, LONG[:1000]: 1e308}
                store.write(study, Batch(reports=(Report(number=number, epoch=epoch, metrics=metrics),)))
        error = f"{HOSTILE}\n{LONG}\n{CONTROL}"
        move = Transition(number=2, status=Status.FAILED, epoch=1, error=error, seconds=1.0)
        notes = (Note(kind=HOSTILE, text=f"{HOSTILE}{LONG}"), Note(kind=CONTROL, text=CONTROL, number=1))
        span = Span(study=name, device=HOSTILE, purpose=SpanPurpose.LANES, trials=(0, 1), begin_s=0.0, end_s=1e9)
        store.write(study, Batch(transitions=(move,), notes=notes, spans=(span,)))
        profile = {"num_lanes": 8, "reason": HOSTILE, "measurements": []}
        store.add_fact(study, f"lanes: {HOSTILE}", profile)


def _accuracy(number: int, num_trials: int, epoch: int) -> float:
    return 0.9 * (number + 1) / num_trials * (1 - 0.5**epoch)
