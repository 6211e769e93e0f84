"""A study with surrogates: search on narrow models, see how far to trust them, train the target.

Each stage is a study of its own in the record, under the name of the whole: `NAME` is the search, `NAME.at-4` trains
some of its configurations at 1/4 of the width, `NAME.target-12` trains the target with what trial 12 was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import TYPE_CHECKING

from headwater.eager import EagerTarget
from headwater.errors import StudyEnds, StudyError
from headwater.execute import Executor, ProcessExecutor, build_executor
from headwater.limits import Limits
from headwater.plan import measure_trust, order_by_merit
from headwater.ranking_check import RankingCheck
from headwater.report import Watcher
from headwater.search import Listed
from headwater.search.nearby import draw_nearby
from headwater.space import Config, Space
from headwater.start_check import check_start, list_possible_scales, read_start
from headwater.store import Recorder, open_store
from headwater.target_time import TargetTime
from headwater.thread_watch import ThreadWatcher
from headwater.trials import START, Deadline, Lane, Result, StartCheck, Surrogate, TrainingTime, TrialRecord

if TYPE_CHECKING:
    from headwater.study import Study

AUTO_SCALES = (16, 8, 4, 2)
"""What "auto" tries, the narrowest first."""
AUTO_AGREEMENT = 0.8
"""The rank agreement that a scale needs to be chosen by itself."""
NUM_PILOTS = 8
"""So many random configurations are trained to choose a scale."""
UNCHECKED_SCALE = 8
"""What "auto" takes where there is no time to try any."""


class Transfer:
    """Runs the stages of one study."""

    def __init__(self, study: Study, limits: Limits, watcher: Watcher) -> None:
        assert isinstance(study.surrogate, Surrogate)
        self._study = study
        self._surrogate = study.surrogate
        self._limits = limits
        self._watcher = watcher
        self._name = study.name or ""
        self._num_lanes = 1
        self._notes: list[str] = []
        self._left_out: list[str] = []
        self._times: dict[int, TrainingTime | None] = {}

    def run(self, *, is_new: bool) -> Result:
        """Go through all stages; those that the record has already are gone on with."""
        self._time = self._foresee_target(is_new)
        if isinstance(self._surrogate.scale, str):
            scale = self._choose_scale() if is_new else self._recorded_scale()
            self._surrogate = replace(self._surrogate, scale=scale)
        self._start = self._check_start(is_new)
        self._eager = self._prepare_eager()
        try:
            search = self._search(is_new)
            self._name = search.study
            self._num_lanes = max((profile.num_lanes for profile in search.profiles), default=1)
            return search if search.was_interrupted else self._finish(search)
        except StudyEnds as cut:  # only a later stage raises it: the search is over
            return replace(search, ended_early=str(cut), was_interrupted=True)
        finally:
            self._eager.give_up()

    def _search(self, is_new: bool) -> Result:
        study = self._at(self._scale, name=self._study.name, search=self._study.search)
        study = replace(study, callbacks=[*self._study.callbacks, self._eager], lanes=self._study.lanes)
        return study.run_stage(replace(self._limits, reserve=self._time.reserve), self._watcher, is_new=is_new)

    def _finish(self, search: Result) -> Result:
        """Do what comes after the search, as far as there is time."""
        ranked = order_by_merit(search.ranked)
        if not ranked:
            raise StudyError(f"no trial of the search {search.study!r} reported a finite {search.metric!r}")
        best, trust = RankingCheck(search, self._surrogate, self, self._tell).settle(ranked, self._scale)
        target = self._train_target(best) if self._has_time_for_target(best) else None
        failure = self._explain_failure(target, best) if target is not None else ""
        self._tell(failure)
        self._record(target)
        if failure:
            raise StudyError(failure)
        left_out = [*([search.ended_early] if search.ended_early else []), *self._left_out]
        search = replace(search, start=self._start, trust=trust, ended_early="; ".join(left_out) or None)
        search = replace(search, seconds=self._deadline.seconds_taken)
        return search if target is None else replace(search, target=target.best, loader=target.loader)

    def has_time(self, scale: int, count: int, purpose: str) -> bool:
        """Tell whether there is time to train so many at this width, besides the target; if not, say what for."""
        if self._deadline.seconds is None:
            return True
        time = self._foresee(scale) if self._seconds_left > 0 else None
        seconds = count * time.seconds_per_step * self._time.num_steps / self._executor.num_workers if time else 0.0
        if 0 < self._seconds_left >= seconds:
            return True
        needed = f" of the about {seconds:.0f} s that it takes" if seconds else ""
        left_s = max(self._seconds_left, 0.0)
        self._leave_out(
            f"{purpose} is left out: the time budget of {self._deadline.seconds:g} s has {left_s:.0f} s{needed} left"
        )
        return False

    def train(
        self, scale: int, trials: Sequence[TrialRecord], purpose: str, *, beside_target: bool = False
    ) -> list[TrialRecord] | None:
        """Train these trials' configurations at another width, and return what came of each.

        None where the time was over before; the target keeps what it needs. Beside a target that has just started, they
        leave a core to it; what trains for longer outlasts it.
        """
        numbers = "-".join(str(trial.number) for trial in trials) if len(trials) < 8 else f"best-{len(trials)}"
        study = self._at(scale, f"{self._name}.at-{scale}-{numbers}", Listed([trial.config for trial in trials]))
        if study.lanes == "auto":  # so few are not worth measuring anew
            study = replace(study, lanes=min(self._num_lanes, len(trials)))
        if beside_target and self._eager.is_training and isinstance(self._executor, ProcessExecutor):
            study = replace(study, executor=ProcessExecutor(max(self._executor.num_workers - 1, 1)))
        result = self._run_or_resume(study, len(trials), reserve=self._time.reserve)
        if result.ended_early is None:
            return list(result.trials)
        self._leave_out(f"{purpose} was cut and does not count: {result.ended_early}")
        return None

    def _has_time_for_target(self, best: TrialRecord) -> bool:
        """Take over what of the target was trained beside the search, and tell whether there is time to go on."""
        try:
            self._tell(self._eager.conclude(best.number))
        except KeyboardInterrupt:
            raise StudyEnds("interrupted while the target was under way") from None
        study = self._at_target(best.config, self._name_target(best))
        if self._deadline.seconds is None or (study.storage is not None and study.is_recorded()):
            return True
        if not self._time.fits:
            self._left_out.append(self._time.explain())  # it was said when that was found out
        elif self._deadline.seconds_left <= self._time.epoch_s:
            self._leave_out(self._time.explain())
        return self._time.fits and self._deadline.seconds_left > self._time.epoch_s

    def _train_target(self, best: TrialRecord) -> Result | None:
        """Train the target, or several where some keys are tuned on it; None where it came to no report in time."""
        configs = [best.config, *self._vary(best)]
        num_wanted, configs = len(configs), configs[: self._time.count_fitting(len(configs))]
        if len(configs) < num_wanted:
            self._leave_out(
                f"{num_wanted - len(configs)} of {num_wanted} targets are left out: there is no time for them"
            )
        study = self._at(1, self._name_target(best), Listed(configs))
        watcher = self._watcher
        self._tell(f"the target trains with the configuration of trial {best.number}")
        if len(configs) == 1:
            study = replace(study, executor="inline")
            watcher = ThreadWatcher(watcher, self._num_threads)
        else:
            keys = ", ".join(self._retuned)
            self._tell(f"{keys} may not carry over: {len(configs)} values near the surrogate's are tried on the target")
        target = self._run_or_resume(study, len(configs), watcher)
        if target.ended_early is None:
            return target
        num_epochs = max(trial.epochs for trial in target.trials)
        self._leave_out(f"the target was cut after {num_epochs} epochs: {target.ended_early}; resume trains it on")
        return target if num_epochs else None

    def _explain_failure(self, target: Result, best: TrialRecord) -> str:
        """Say what happened to a target without a finite metric; nothing where there is one."""
        if target.ranked:
            return ""
        errors = [trial.error.rstrip().splitlines()[-1] for trial in target.trials if trial.error]
        return (
            f"the target, trained with the configuration of trial {best.number}, came to no finite "
            f"{target.metric!r}{f' ({errors[0]})' if errors else ''}; `headwater show {target.study}` prints what "
            f"became of it, and the search is kept as {self._name!r}"
        )

    def _vary(self, best: TrialRecord) -> list[Config]:
        """Draw configurations that differ from the best in the keys that do not transfer, and there only a little."""
        if not self._retuned:
            return []
        num_others = self._surrogate.num_retuned - 1
        return draw_nearby(self._space, best.config, self._retuned, num_others, self._study.seed)

    @property
    def _retuned(self) -> list[str]:
        return self._surrogate.retuned_keys(list(self._space.domains))

    def _choose_scale(self) -> int:
        """Train a few random configurations at ever wider models until two neighbours rank them alike."""
        rng = Random(self._study.seed)
        configs = [self._space.sample(rng) for _ in range(NUM_PILOTS)]
        name = self._name or "pilot"
        values: dict[int, list[float]] = {}
        deadline = self._deadline.keep(self._time.reserve(0.0)).share(self._surrogate.time_share)
        begin = time.perf_counter()
        first_took = 0.0
        scales = list_possible_scales(self._study, self._surrogate, AUTO_SCALES)
        for place, scale in enumerate(scales):
            for width in (scale, scale // 2):
                if width not in values:
                    found = self._try_width(scale, width, configs, deadline)
                    if found is None:
                        chosen = scales[place - 1] if place else min(UNCHECKED_SCALE, scales[0])
                        self._leave_out(f"no time is left to compare more widths: the scale is {chosen}")
                        return chosen
                    values[width] = found
                    first_took = first_took or time.perf_counter() - begin
            trust = measure_trust(scale, scale // 2, list(zip(values[scale], values[scale // 2], strict=True)))
            self._tell(f"choosing a scale for {name}: {trust}")
            allowed = self._surrogate.time_share * first_took * (self._limits.num_trials or NUM_PILOTS) / NUM_PILOTS
            if trust.agreement >= AUTO_AGREEMENT or time.perf_counter() - begin > max(allowed, 2 * first_took):
                return scale
        return scales[-1]

    def _try_width(self, scale: int, width: int, configs: Sequence[Config], deadline: Deadline) -> list[float] | None:
        """Train configurations at a width, by the rules of a scale, and return their values; None for want of time."""
        if deadline.is_over:
            return None
        self._surrogate = replace(self._surrogate, scale=max(scale, 2))
        study = replace(self._at(width, None, Listed(configs)), storage=None, callbacks=())
        result = study.run_stage(Limits(num_trials=len(configs), deadline=deadline), self._watcher)
        if result.ended_early is not None:
            return None
        return [self._sign * trial.value(result.metric) for trial in result.trials]

    def _check_start(self, is_new: bool) -> StartCheck:
        """Look at first steps, unless the record knows what they showed."""
        known = None if is_new else read_start(self._study)
        if known is not None:
            return known
        start = check_start(self._study, self._surrogate, self._deadline)
        for text in start.describe():
            self._tell(text)
        return start

    def _recorded_scale(self) -> int:
        with open_store(self._study.storage) as store:
            return int(store.study(self._study.name).settings["scale"])

    def _foresee_target(self, is_new: bool) -> TargetTime:
        """Measure the target, where the study has a deadline."""
        has_end = self._deadline.seconds is not None
        share_left = 1.0 if is_new or not has_end else self._share_of_target_left()
        return TargetTime(self._deadline, self._foresee(1) if has_end else None, share_left, self._tell)

    def _foresee(self, scale: int) -> TrainingTime | None:
        """Measure a few steps at a width, once."""
        if scale not in self._times:
            self._times[scale] = self._measure_steps(scale)
        return self._times[scale]

    def _measure_steps(self, scale: int) -> TrainingTime | None:
        from headwater.train.profiling import foresee_training
        from headwater.train.running import Workshop, choose_device
        from headwater.train.scaling import Scaling

        scaling = None if scale == 1 else Scaling(self._surrogate, scale)
        workshop = Workshop(self._study.train, choose_device(self._study.device), scaling=scaling)
        workshop = replace(workshop, deadline=self._deadline)
        config = self._space.sample(Random(self._study.seed))
        found = foresee_training(workshop, Lane(number=0, config=config, seed=self._study.seed))
        most = self._study.max_epochs
        if found is None or most is None or found.num_epochs <= most:
            return found
        num_steps = None if found.num_steps is None else found.num_steps * most // found.num_epochs
        return replace(found, num_epochs=most, num_steps=num_steps)

    def _share_of_target_left(self) -> float:
        """Return how much of the training of a target the record does not have yet."""
        with open_store(self._study.storage) as store:
            info = store.study(self._study.name)
            names = [one.name for one in store.studies() if one.name.startswith(f"{info.name}.target-")]
            recorders = [Recorder(store, store.study(name), self._space) for name in (info.name, *names[-1:])]
            epochs = [max((trial.epochs for trial in one.trials()), default=0) for one in recorders]
        return 1 - min(epochs[1] / max(epochs[0], 1), 1) if names else 1.0

    def _prepare_eager(self) -> EagerTarget:
        is_wanted = self._surrogate.eager and self._study.storage is not None and not self._retuned
        is_wanted = is_wanted and self._time.fits
        return EagerTarget(
            self._study,
            self._limits,
            self._at_target,
            is_wanted=is_wanted,
            is_handed_over=self._num_threads > 1,
        )

    @property
    def _num_threads(self) -> int:
        """How many threads the target may have, where it trains alone: as many as the study has cores.

        Where all runs must round alike, the number that torch has is left alone, which is what 1 means.
        """
        from headwater.train.machine import count_threads, is_deterministic
        from headwater.train.running import choose_device

        device = choose_device(self._study.device).type
        return 1 if device != "cpu" or is_deterministic() else max(count_threads(), self._executor.num_workers)

    @property
    def _executor(self) -> Executor:
        from headwater.train.running import choose_device

        return build_executor(self._study.executor, choose_device(self._study.device).type)

    def _at_target(self, config: Config, name: str) -> Study:
        return self._at(1, name, Listed([config]))

    def _run_or_resume(
        self,
        study: Study,
        num_trials: int,
        watcher: Watcher | None = None,
        reserve: Callable[[float], float] | None = None,
    ) -> Result:
        limits = Limits(num_trials=num_trials, deadline=self._deadline, reserve=reserve)
        is_new = study.storage is None or not study.is_recorded()
        result = study.run_stage(limits, watcher or self._watcher, is_new=is_new)
        if result.was_interrupted:
            raise StudyEnds(result.ended_early)
        return result

    def _at(self, scale: int, name: str | None, search: object) -> Study:
        surrogate = replace(self._surrogate, at=scale)
        part_of = None if name == self._study.name else self._name
        return replace(self._study, surrogate=surrogate, name=name, search=search, callbacks=(), part_of=part_of)  # type: ignore[arg-type]  # as given, or Listed

    def _name_target(self, best: TrialRecord) -> str:
        return f"{self._name}.target-{best.number}"

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

    @property
    def _space(self) -> Space:
        assert isinstance(self._study.space, Space)
        return self._study.space

    @property
    def _sign(self) -> int:
        return -1 if self._study.mode == "max" else 1

    def _tell(self, text: str) -> None:
        if text:
            self._notes.append(text)
            self._watcher.tell(text)

    def _leave_out(self, text: str) -> None:
        """Say that something was left out for want of time, here and in the result."""
        self._left_out.append(text)
        self._tell(text)

    def _record(self, target: Result | None) -> None:
        """Write into the record of the search what was said between the stages, and which study is the target's."""
        if self._study.storage is None:
            return
        with open_store(self._study.storage) as store:
            recorder = Recorder(store, store.study(self._name), self._space)
            recorder.add_fact(START, asdict(self._start))
            if target is not None:
                recorder.add_fact("target", target.study)
            for text in self._notes:
                recorder.note("surrogate", text)
