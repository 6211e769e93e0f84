"""How long epochs of a training function take: from the record of an earlier study, or by training a few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from time import perf_counter

from headwater.conduct.offering import MADE_OF, identify
from headwater.conduct.setup import name_learnt
from headwater.errors import PlanError
from headwater.execute.counting import count_devices
from headwater.plan.jobs import Duration, EpochSeconds
from headwater.plan.profiles import TimeProfile
from headwater.plan.surface import Shape, Surface
from headwater.report import Callback
from headwater.stage import RunSettings, make_brief
from headwater.store import Store, StudyInfo, open_store
from headwater.study import Study
from headwater.trials import (
    Lane,
    Learnt,
    Measurement,
    Report,
    Silence,
    Span,
    SpanPurpose,
    StatesPlace,
    Surrogate,
    TrialRecord,
)

NUM_EPOCHS = 4
"""So many epochs of each size are trained; the first one is not counted."""
MOST_LANES = 64
MOST_S = 60.0
"""When measuring has taken so long, no larger group is tried."""
LEAST_GAIN = 1.05
"""A group must train its lanes so many times faster than the size before, or no larger one is tried."""


@dataclass(slots=True)
class _Timer(Callback):
    """Times what groups take from report to report."""

    epochs: dict[int, list[float]] = field(default_factory=dict)
    """By the number of lanes."""
    first: list[float] = field(default_factory=list)
    """From the start of a group to its first report."""
    _since: dict[tuple[int, ...], float] = field(default_factory=dict)
    _begin_s: float = 0.0

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """Take the time."""
        self._begin_s = perf_counter()

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Take the time since the group reported last."""
        numbers, now_s = tuple(report.number for report in reports), perf_counter()
        if numbers in self._since:
            self.epochs.setdefault(len(numbers), []).append(now_s - self._since[numbers])
        else:
            self.first.append(now_s - self._begin_s)
        self._since[numbers] = now_s


def measure_times(study: Study, num_trials: int, scales: Sequence[int] = ()) -> TimeProfile:
    """Train a few epochs of the function here, as groups of 1, 2, 4, ... lanes and on two devices; nothing is recorded.

    With `scales`, models of these fractions of the width are timed too.

    Raises:
        PlanError: Not one trial has come to its second epoch.
    """
    from headwater.train.machine import count_threads, describe_device
    from headwater.train.running import choose_device

    narrow = {scale: _measure_width(study, num_trials, scale) for scale in scales}
    study = replace(study, surrogate=None)
    lone = _train(study, 1)
    if 1 not in lone.epochs:
        raise PlanError("the training function did not report two epochs of one trial; let it train as many at least")
    by_lanes = _measure_lanes(study, min(num_trials, MOST_LANES), median(lone.epochs[1]))
    by_devices = {1: median(lone.epochs[1]), **_measure_two(study)}
    device = choose_device(study.device)
    spread = stdev(lone.epochs[1]) / fmean(lone.epochs[1]) if len(lone.epochs[1]) > 1 else 0.0
    return TimeProfile(
        epoch_seconds=EpochSeconds(by_devices=by_devices, by_lanes=by_lanes, spread=spread),
        start_up=Duration(max(0.0, median(lone.first) - by_devices[1])),
        device=describe_device(device, count_threads()),
        by_scale=narrow,
        notes=("measured by training a few epochs here",),
    )


def recall_times(study: Study, scales: Sequence[int] = ()) -> TimeProfile:
    """Read how long epochs took off the newest study in the record that is made of the same function and space.

    With `scales`, those of models of these fractions of the width are read too.

    Raises:
        PlanError: There is none, or none whose groups kept their sizes long enough to tell.
    """
    if scales:
        narrow = {scale: recall_times(_narrow(study, scale)).epoch_seconds for scale in scales}
        known = {scale: times for scale, times in narrow.items() if times is not None}
        return replace(recall_times(_narrow(study, 1)), by_scale=known)
    with open_store(study.storage, create=False) as store:
        for device, info in _find_alike(study, store):
            times = _read_times(study, store, info, device)
            if times is not None:
                return times
    raise PlanError(
        f"the record {str(study.storage)!r} has no earlier study of this function and space on this machine that tells "
        "how long epochs take; measure it with --measure, or give a --profile"
    )


def _narrow(study: Study, scale: int) -> Study:
    """Return a study of which all trials have a fraction of the width, as a stage of it has."""
    assert isinstance(study.surrogate, Surrogate)
    return replace(study, surrogate=replace(study.surrogate, at=scale))


def _measure_width(study: Study, num_trials: int, scale: int) -> EpochSeconds:
    narrow = _narrow(study, scale)
    lone = _train(narrow, 1)
    if 1 not in lone.epochs:
        raise PlanError(f"no trial at 1/{scale} of the width has reported two epochs; let it train as many at least")
    alone_s = median(lone.epochs[1])
    by_lanes = _measure_lanes(narrow, min(num_trials, MOST_LANES), alone_s)
    return EpochSeconds(by_devices={1: alone_s}, by_lanes=by_lanes)


def _measure_lanes(study: Study, most: int, alone_s: float) -> dict[int, float]:
    """Return how long an epoch of groups takes, by the number of their lanes; trials that part form smaller groups."""
    begin_s, best_s = perf_counter(), alone_s
    seconds: dict[int, float] = {}
    for size in _list_sizes(most):
        found = {lanes: median(times) for lanes, times in _train(study, size).epochs.items() if lanes > 1}
        seconds |= found
        is_better = any(value / lanes < best_s / LEAST_GAIN for lanes, value in found.items())
        if perf_counter() - begin_s > MOST_S or (found and not is_better):
            break
        best_s = min([best_s, *(value / lanes for lanes, value in found.items())])
    return seconds


def _list_sizes(most: int) -> Iterator[int]:
    size = 2
    while size <= most:
        yield size
        size *= 2


def _train(study: Study, num_lanes: int) -> _Timer:
    timer = _Timer()
    _strip(study, timer, lanes=num_lanes, executor="inline", devices=None).run(num_lanes, watcher=Silence())
    return timer


def _strip(study: Study, timer: _Timer, **changes: object) -> Study:
    """Return a study that trains a few epochs of a few trials and leaves nothing behind."""
    plain: dict[str, object] = {"search": "random", "order": "virtual", "packing": None}
    plain |= {"storage": None, "states": None, "name": None, "num_seeds": 1, "save_every": None}
    return replace(study, **{**plain, "max_epochs": NUM_EPOCHS, "callbacks": (timer,), **changes})  # type: ignore[arg-type] # settings of a study


def _measure_two(study: Study) -> Mapping[int, float]:
    """Return how long an epoch of one trial takes on two devices, where it gets them."""
    from headwater.train.running import choose_device

    if count_devices(choose_device(study.device).type) < 2:
        return {}
    timer = _Timer()
    with TemporaryDirectory(prefix="headwater-") as folder:
        place = Path(folder) / "measuring.db"
        wide = _strip(study, timer, storage=place, lanes="auto", executor="processes", devices=2, allocation="ours")
        wide.run(1, watcher=Silence())
        with open_store(place, create=False) as store:
            spans = store.spans(store.study(None))
    had_two = len({span.device for span in spans if span.purpose is SpanPurpose.RANKS or 0 in span.trials}) > 1
    return {2: median(timer.epochs[1])} if had_two and 1 in timer.epochs else {}


def _find_alike(study: Study, store: Store) -> Iterator[tuple[str, StudyInfo]]:
    """Yield the studies of the record that are made of the same, the newest first, and on what they trained."""
    from headwater.train.machine import count_threads, describe_device
    from headwater.train.process_settings import read_process_settings
    from headwater.train.running import choose_device

    device = choose_device(study.device)
    is_target = isinstance(study.surrogate, Surrogate) and study.surrogate.at == 1
    settings = RunSettings(device=str(device), process_settings=read_process_settings(), spreads=is_target)
    brief = make_brief(study, "", StatesPlace(url="memory://headwater/none", study=""), settings)
    for kind in dict.fromkeys(describe_device(device, count) for count in (count_threads(), 1)):
        made_of = identify(brief, kind)
        for info in [] if made_of is None else store.find_studies(MADE_OF, made_of):
            yield kind, info


def _read_times(study: Study, store: Store, info: StudyInfo, device: str) -> TimeProfile | None:
    spans, trials = store.spans(info), store.trials(info.id, lambda stored: stored)
    learnt = _recall(study, store, info)
    epochs = _collect_learnt(learnt) or _collect_epochs(spans, trials)
    seconds = {lanes: fmean(found) for lanes, found in epochs.items()}
    seconds |= _fill_in(seconds, learnt)
    if 1 not in seconds:
        return None
    found = max(epochs.values(), key=len)
    spread = stdev(found) / fmean(found) if len(found) > 1 else 0.0
    by_devices = {1: seconds[1], **{count: seconds[1] * share for count, share in _collect_shares(learnt).items()}}
    lanes = {count: value for count, value in seconds.items() if count > 1}
    return TimeProfile(
        epoch_seconds=EpochSeconds(by_devices=by_devices, by_lanes=lanes, spread=spread),
        device=device,
        notes=(f"from study {info.name} in the record",),
    )


def _collect_learnt(learnt: Learnt) -> dict[int, list[float]]:
    """Return how long epochs took by the number of lanes, as a run on several devices has noted it."""
    epochs: dict[int, list[float]] = {}
    for num_lanes, num_devices, seconds in (one for item in learnt.times for one in item.epochs):
        if num_devices == 1:
            epochs.setdefault(num_lanes, []).append(seconds)
    return epochs


def _collect_epochs(spans: Sequence[Span], trials: Sequence[TrialRecord]) -> dict[int, list[float]]:
    """Return how long epochs took by the number of lanes, of trials that always trained in groups of one size.

    The start of a group counts, as far as its epochs are few.
    """
    epochs: dict[int, list[float]] = {}
    for trial in trials:
        own = [span for span in spans if trial.number in span.trials and span.purpose is not SpanPurpose.MEASUREMENT]
        sizes = {len(span.trials) for span in own}
        if trial.epochs and len(sizes) == 1 and {span.purpose for span in own} == {SpanPurpose.LANES}:
            epochs.setdefault(sizes.pop(), []).append(sum(span.seconds for span in own) / trial.epochs)
    return epochs


def _recall(study: Study, store: Store, info: StudyInfo) -> Learnt:
    from headwater.space import Space
    from headwater.train.running import choose_device

    assert isinstance(study.space, Space)
    fact = store.fact(info.id, name_learnt(str(choose_device(study.device))))
    return Learnt.from_json(fact, study.space.options) if isinstance(fact, str) else Learnt()


def _fill_in(seconds: Mapping[int, float], learnt: Learnt) -> dict[int, float]:
    """Return epochs of sizes that were measured by their steps alone, in proportion to one that was trained."""
    filled: dict[int, float] = {}
    for item in learnt.profiles:
        steps = {one.num_lanes: _count_step(one) for one in item.profile.measurements}
        known = [lanes for lanes in steps if lanes in seconds]
        if known:
            base = max(known)
            filled |= {lanes: seconds[base] * step / steps[base] for lanes, step in steps.items()}
    return {lanes: value for lanes, value in filled.items() if lanes not in seconds}


def _count_step(measured: Measurement) -> float:
    """Return how long a step of the whole group took."""
    return measured.num_lanes * measured.seconds_per_lane_step


def _collect_shares(learnt: Learnt) -> dict[int, float]:
    """Return what share of the time on one device several take, the mean over the kinds of trials that had them."""
    surface = Surface()
    surface.recall(learnt)
    counts = {count for table in surface.shares.values() for count in table}
    return {
        count: fmean(
            surface.compare(kind, Shape(1), Shape(1, count)) for kind, table in surface.shares.items() if count in table
        )
        for count in sorted(counts)
    }
