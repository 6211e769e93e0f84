"""What a study with surrogates does step by step: search narrow models, see how far to trust them, train the target.

Every step that trains or measures is yielded, for others to run, and comes back with what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from headwater.conduct.eager_target import EagerChoice
from headwater.conduct.limits import Limits
from headwater.conduct.ranking_check import RankingCheck, Steps
from headwater.conduct.stages import Measuring, StageSpec
from headwater.conduct.target_time import TargetTime
from headwater.conduct.transfer_record import TransferRecord
from headwater.errors import StudyEnds, StudyError
from headwater.plan import measure_trust, order_by_merit
from headwater.search.nearby import draw_nearby
from headwater.space import Config
from headwater.trials import (
    Brief,
    Deadline,
    Lane,
    Objective,
    Purpose,
    Result,
    Spending,
    StartCheck,
    Surrogate,
    TrainingTime,
    TrialRecord,
    Watcher,
)

AUTO_AGREEMENT = 0.8
"""The rank agreement that a scale needs to be chosen by itself."""
NUM_STARTS = 12
"""So many configurations are looked at before the search, each under a seed of its own, where chance plays much."""
NUM_PILOTS = 8
"""So many random configurations are trained to choose a scale."""
UNCHECKED_SCALE = 8
"""What "auto" takes where there is no time to try any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSetup:
    """What a study with surrogates is conducted with."""

    name: str | None
    surrogate: Surrogate
    objective: Objective
    brief: Brief
    """Of the study as it was written; its stages have other widths."""
    seed: int
    limits: Limits
    lanes: int | str
    record: TransferRecord
    watcher: Watcher
    keys: Iterator[int]
    num_devices: int
    is_new: bool


class TransferSteps:
    """The script of one study with surrogates."""

    def __init__(self, setup: TransferSetup) -> None:
        self.name = setup.name or ""
        """What the record calls the search."""
        self._setup = setup
        self._surrogate = setup.surrogate
        self._limits = setup.limits
        self._record = setup.record
        self._space = setup.brief.space
        self._num_lanes = 1
        self._notes: list[str] = []
        self._left_out: list[str] = []
        self._times: dict[int, TrainingTime | None] = {}
        self._retuned = setup.surrogate.retuned_keys(list(setup.brief.space.domains))
        known = [number for number in (setup.limits.num_trials, self._space.size) if number is not None]
        self.eager = EagerChoice(
            setup.objective, min(known, default=None), setup.surrogate.eager, may_start=self._can_be_eager
        )
        """Which trial the target could start with."""
        self.start_measuring: Measuring | None = None
        """The look at first steps, which the search need not wait for where there are other devices."""
        self._start = StartCheck()
        self._has_settled = False
        self._started: list[int] = []

    def run(self) -> Steps[Result]:
        """Go through all stages; those that the record has already are gone on with."""
        self._time = yield from self._foresee_target()
        if isinstance(self._surrogate.scale, str):
            is_new, name = self._setup.is_new, self._setup.name
            scale = (yield from self._choose_scale()) if is_new else self._record.read_scale(name)
            self._surrogate = replace(self._surrogate, scale=scale)
        self._prepare_start()
        limits = replace(self._limits, reserve=self._time.reserve_several if self._is_endless else self._time.reserve)
        search: Result = yield replace(
            self._spec(self._scale, self._setup.name, limits),
            lanes=self._setup.lanes,
            is_new=self._setup.is_new,
            listeners=(self.eager,),
        )
        self.name = search.study
        self._num_lanes = max((profile.num_lanes for profile in search.profiles), default=1)
        if search.was_interrupted:
            return search
        try:
            return (yield from self._finish(search))
        except StudyEnds as cut:
            return replace(search, ended_early=str(cut), was_interrupted=True)

    def find_eager_target(self) -> StageSpec | None:
        """Return the target that could start now, while other stages run; None where it is too early or too late."""
        found = None if self._has_settled else self.eager.find()
        if found is None or not self._time.fits:
            return None
        number, config = found
        if number not in self._started:
            self._started.append(number)
        self.name = self.name or self.eager.name
        return replace(self._spec_target(number, [config]), is_watched=False)

    def record_spending(self, spending: Spending) -> None:
        """Write down what the whole has cost."""
        self._record.write_spending(self.name, spending)

    @property
    def _is_endless(self) -> bool:
        """Whether nothing but time ends the search."""
        return self._limits.num_trials is None and self._space.size is None and self._deadline.seconds is not None

    @property
    def _can_be_eager(self) -> bool:
        """Whether a target may start ahead of time: there is a device for it, and nothing to be tuned on it."""
        has_room = self._setup.num_devices > 1 and self._record.storage is not None
        return has_room and not self._retuned

    def _finish(self, search: Result) -> Steps[Result]:
        """Do what comes after the search, as far as there is time."""
        ranked = self.eager.arrange(order_by_merit(search.ranked))
        if search.has_only_failures:
            return search
        if not ranked:
            raise StudyError(f"no trial of the search {search.study!r} reported a finite {search.metric!r}")
        best, trust = yield from RankingCheck(search, self._surrogate, self, self._tell).settle(ranked, self._scale)
        others = [trial for trial in ranked if trial.number != best.number] if self._is_endless else []
        target = (yield from self._train_target(best, others)) if self._has_time_for_target(best) else None
        failure = self._explain_failure(target, best) if target is not None else ""
        self._tell(failure)
        self._record.write(self.name, None if target is None else target.study, self._notes, self._start)
        if failure:
            raise StudyError(failure)
        left_out = [*([search.ended_early] if search.ended_early else []), *self._left_out]
        search = replace(search, start=self._start, trust=trust, ended_early="; ".join(left_out) or None)
        search = replace(search, seconds=self._deadline.seconds_taken)
        return search if target is None else replace(search, target=target.best, loader=target.loader)

    def has_time(self, scale: int, count: int, purpose: str) -> Steps[bool]:
        """Tell whether there is time to train so many at this width, besides the target; if not, say what for."""
        if self._deadline.seconds is None:
            return True
        time = (yield from self._foresee(scale)) if self._seconds_left > 0 else None
        seconds = count * time.seconds_per_step * self._time.num_steps / self._setup.num_devices if time else 0.0
        if 0 < self._seconds_left >= seconds:
            return True
        needed = f" of the about {seconds:.0f} s that it takes" if seconds else ""
        left_s = max(self._seconds_left, 0.0)
        self._leave_out(
            f"{purpose} is left out: the time budget of {self._deadline.seconds:g} s has {left_s:.0f} s{needed} left"
        )
        return False

    def train(self, scale: int, trials: Sequence[TrialRecord], purpose: str) -> Steps[list[TrialRecord] | None]:
        """Train these trials' configurations at another width, and return what came of each.

        None where the time was over before; the target keeps what it needs.
        """
        numbers = "-".join(str(trial.number) for trial in trials) if len(trials) < 8 else f"best-{len(trials)}"
        limits = self._limit(len(trials), self._time.reserve)
        spec = self._spec(scale, f"{self.name}.at-{scale}-{numbers}", limits)
        spec = replace(spec, configs=tuple(trial.config for trial in trials))
        if self._setup.lanes == "auto":  # so few are not worth measuring anew
            spec = replace(spec, lanes=min(self._num_lanes, len(trials)))
        result = yield from self._run(spec)
        if result.ended_early is None:
            return list(result.trials)
        self._leave_out(f"{purpose} was cut and does not count: {result.ended_early}")
        return None

    def _has_time_for_target(self, best: TrialRecord) -> bool:
        """Tell whether there is time to train the target, or to go on with one that has started."""
        self._has_settled = True
        self._tell(self._explain_eager(best.number))
        if self._deadline.seconds is None or self._record.has(self._name_target(best.number)):
            return True
        if not self._time.fits:
            self._left_out.append(self._time.explain())  # it was said when that was found out
        elif self._deadline.seconds_left <= self._time.epoch_s:
            self._leave_out(self._time.explain())
        return self._time.fits and self._deadline.seconds_left > self._time.epoch_s

    def _explain_eager(self, number: int) -> str:
        if not self._started:
            return ""
        if number == self._started[-1]:
            return f"eager transfer: the target had started with trial {number} before it was settled"
        beaten = " and ".join(f"trial {one}" for one in self._started)
        return f"eager transfer: the target had started with {beaten}, and trial {number} is better"

    def _train_target(self, best: TrialRecord, others: Sequence[TrialRecord]) -> Steps[Result | None]:
        """Train the target, or several of which the best is the answer; None where it came to no report in time.

        There are several where some keys are tuned on it, and where nothing but time has ended the search: as many of
        the best configurations are targets then as fit beside one another.
        """
        configs = self._record.read_configs(self._name_target(best.number))
        self._tell(self.eager.explain(best.number))
        if not configs and self._retuned:
            configs = self._choose_values(best)
        elif not configs:
            num_more = self._time.count_beside(self._setup.num_devices) - 1
            configs = [best.config, *(trial.config for trial in others[:num_more])]
            if len(configs) > 1:
                numbers = ", ".join(str(trial.number) for trial in others[:num_more])
                self._tell(f"there is time for more targets, with those of {numbers}; the best of all is the answer")
        spec = self._spec_target(best.number, configs)
        is_beside = len(configs) > 1 and not self._retuned
        target = yield from self._run(replace(spec, lanes=1) if is_beside else spec)
        if target.ended_early is None:
            return target
        num_epochs = max(trial.epochs for trial in target.trials)
        self._leave_out(f"the target was cut after {num_epochs} epochs: {target.ended_early}; resume trains it on")
        return target if num_epochs else None

    def _choose_values(self, best: TrialRecord) -> list[Config]:
        """Return configurations that differ in the keys which are tuned on the target, as many as there is time for."""
        num_others = self._surrogate.num_retuned - 1
        varied = draw_nearby(self._space, best.config, self._retuned, num_others, self._setup.seed)
        configs = [best.config, *varied]
        num_wanted, configs = len(configs), configs[: self._time.count_fitting(len(configs))]
        if len(configs) < num_wanted:
            self._leave_out(
                f"{num_wanted - len(configs)} of {num_wanted} targets are left out: there is no time for them"
            )
        if len(configs) > 1:
            keys = ", ".join(self._retuned)
            self._tell(f"{keys} may not carry over: {len(configs)} values near the surrogate's are tried on the target")
        return configs

    def _explain_failure(self, target: Result, best: TrialRecord) -> str:
        """Say what happened to a target without a finite metric; nothing where there is one."""
        if target.ranked:
            return ""
        errors = [trial.error.rstrip().splitlines()[-1] for trial in target.trials if trial.error]
        return (
            f"the target, trained with the configuration of trial {best.number}, came to no finite "
            f"{target.metric!r}{f' ({errors[0]})' if errors else ''}; `headwater show {target.study}` prints what "
            f"became of it, and the search is kept as {self.name!r}"
        )

    def _choose_scale(self) -> Steps[int]:
        """Train a few random configurations at ever wider models until two neighbours rank them alike."""
        rng = Random(self._setup.seed)
        configs = [self._space.sample(rng) for _ in range(NUM_PILOTS)]
        values: dict[int, list[float]] = {}
        deadline = self._deadline.keep(self._time.reserve(0.0)).share(self._surrogate.time_share)
        begin_s, first_s = deadline.clock(), 0.0
        scales: tuple[int, ...] = yield self._measure(Purpose.SCALES, 2, 1)
        for place, scale in enumerate(scales):
            for width in (scale, scale // 2):
                if width not in values:
                    found = yield from self._try_width(scale, width, configs, deadline)
                    if found is None:
                        chosen = scales[place - 1] if place else min(UNCHECKED_SCALE, scales[0])
                        self._leave_out(f"no time is left to compare more widths: the scale is {chosen}")
                        return chosen
                    values[width] = found
                    first_s = first_s or deadline.clock() - begin_s
            trust = measure_trust(scale, scale // 2, list(zip(values[scale], values[scale // 2], strict=True)))
            self._tell(f"choosing a scale for {self.name or 'pilot'}: {trust}")
            allowed = self._surrogate.time_share * first_s * (self._limits.num_trials or NUM_PILOTS) / NUM_PILOTS
            if trust.agreement >= AUTO_AGREEMENT or deadline.clock() - begin_s > max(allowed, 2 * first_s):
                return scale
        return scales[-1]

    def _try_width(
        self, scale: int, width: int, configs: Sequence[Config], deadline: Deadline
    ) -> Steps[list[float] | None]:
        """Train configurations at a width, by the rules of a scale, and return their values; None for want of time."""
        if deadline.is_over:
            return None
        self._surrogate = replace(self._surrogate, scale=max(scale, 2))
        limits = Limits(num_trials=len(configs), deadline=deadline)
        spec = replace(self._spec(width, None, limits), configs=tuple(configs), is_recorded=False)
        result: Result = yield spec
        if result.ended_early is not None:
            return None
        return [self._setup.objective.score(trial.value(result.metric)) for trial in result.trials]

    def _foresee_target(self) -> Steps[TargetTime]:
        """Measure the target, where the study has a deadline."""
        has_end = self._deadline.seconds is not None
        is_partly_done = has_end and not self._setup.is_new
        share_left = self._record.find_share_left(self._setup.name) if is_partly_done else 1.0
        training = (yield from self._foresee(1)) if has_end else None
        return TargetTime(self._deadline, training, share_left, self._tell)

    def _foresee(self, scale: int) -> Steps[TrainingTime | None]:
        """Measure a few steps at a width, once."""
        if scale not in self._times:
            self._times[scale] = yield from self._measure_steps(scale)
        return self._times[scale]

    def _prepare_start(self) -> None:
        """Have first steps looked at, unless the record knows what they showed."""
        known = None if self._setup.is_new else self._record.read_start(self._setup.name)
        if known is None:
            self.start_measuring = self._measure(Purpose.START, self._scale, NUM_STARTS)
        else:
            self._start = known

    def take_start(self) -> None:
        """Take in what first steps have shown."""
        assert self.start_measuring is not None
        found, most = self.start_measuring.finding, self._limits.max_epochs
        self.start_measuring = None
        start = found if isinstance(found, StartCheck) else StartCheck()
        if start.num_passes is not None and most is not None:
            start = replace(start, num_passes=min(start.num_passes, most))
        self._start = start
        for text in start.describe():
            self._tell(text)

    def _measure(self, purpose: Purpose, scale: int, num_lanes: int) -> Measuring:
        """Return a measurement at a width, of configurations of the space under seeds of their own."""
        setup, rng = self._setup, Random(self._setup.seed)
        surrogate = replace(self._surrogate, scale=max(scale, 2), at=scale)
        brief = replace(setup.brief, study=f"{purpose} at 1/{scale}", surrogate=surrogate)
        lanes = [
            Lane(number=number, config=self._space.sample(rng), seed=(setup.seed + number) % 2**32)
            for number in range(num_lanes)
        ]
        return Measuring(brief, lanes, purpose, setup.keys, self._deadline.seconds_left)

    def _measure_steps(self, scale: int) -> Steps[TrainingTime | None]:
        found: TrainingTime | None = yield self._measure(Purpose.FORESEE, scale, 1)
        most = self._limits.max_epochs
        if found is None or most is None or found.num_epochs <= most:
            return found
        num_steps = None if found.num_steps is None else found.num_steps * most // found.num_epochs
        return replace(found, num_epochs=most, num_steps=num_steps)

    def _run(self, spec: StageSpec) -> Steps[Result]:
        """Run a stage; where somebody ends it, nothing is concluded from its half-trained trials."""
        result: Result = yield spec
        if result.was_interrupted:
            raise StudyEnds(result.ended_early)
        return result

    def _spec(self, scale: int, name: str | None, limits: Limits) -> StageSpec:
        part_of = None if name == self._setup.name else self.name
        return StageSpec(surrogate=replace(self._surrogate, at=scale), name=name, limits=limits, part_of=part_of)

    def _spec_target(self, number: int, configs: Sequence[Config]) -> StageSpec:
        spec = self._spec(1, self._name_target(number), self._limit(len(configs)))
        return replace(spec, configs=tuple(configs))

    def _limit(self, num_trials: int, reserve: Callable[[float], float] | None = None) -> Limits:
        return Limits(num_trials=num_trials, deadline=self._deadline, reserve=reserve)

    def _name_target(self, number: int) -> str:
        return f"{self.name}.target-{number}"

    @property
    def _deadline(self) -> Deadline:
        return self._limits.deadline

    @property
    def _seconds_left(self) -> float:
        """How long there is time for anything but the target."""
        return self._deadline.seconds_left - self._time.reserve(0.0)

    @property
    def _scale(self) -> int:
        assert isinstance(self._surrogate.scale, int)
        return self._surrogate.scale

    def _tell(self, text: str) -> None:
        if text:
            self._notes.append(text)
            self._setup.watcher.tell(text)

    def _leave_out(self, text: str) -> None:
        """Say that something was left out for want of time, here and in the result."""
        self._left_out.append(text)
        self._tell(text)
