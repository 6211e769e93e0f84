"""A study with surrogates: search on narrow models, see how far to trust them, train the target.

Each stage is a study of its own in the record, under the name of the whole: `NAME` is the search, `NAME.at-4` trains
some of its configurations at 1/4 of the width, `NAME.target-12` trains the target with what trial 12 was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from headwater.eager import EagerTarget
from headwater.errors import StudyEnds, StudyError
from headwater.execute import Executor, ProcessExecutor, build_executor
from headwater.limits import Limits
from headwater.plan import measure_trust, order_by_merit, spread_over
from headwater.report import Watcher
from headwater.search import Listed
from headwater.search.nearby import draw_nearby
from headwater.space import Config, Space
from headwater.store import Recorder, open_store
from headwater.thread_watch import ThreadWatcher
from headwater.trials import Lane, Result, Surrogate, TrialRecord, Trust

if TYPE_CHECKING:
    from headwater.study import Study

AUTO_SCALES = (16, 8, 4, 2)
"""What "auto" tries, the narrowest first."""
AUTO_AGREEMENT = 0.8
"""The rank agreement that a scale needs to be chosen by itself."""
NUM_PILOTS = 8
"""So many random configurations are trained to choose a scale."""
TARGET_MARGIN = 1.2
"""How much longer than its steps the target is expected to take, for evaluation and the unforeseen."""


class _Sample(NamedTuple):
    """A configuration of those that widths are compared by, as it was trained at one of them."""

    trial: TrialRecord
    place: float
    """Where it stands among the others there, the lowest first."""


class Transfer:
    """Runs the stages of one study."""

    def __init__(self, study: Study, limits: Limits, watcher: Watcher) -> None:
        assert isinstance(study.surrogate, Surrogate)
        self._study = study
        self._surrogate = study.surrogate
        self._limits = limits
        self._watcher = watcher
        self._begin = time.perf_counter()
        self._name = study.name or ""
        self._num_lanes = 1
        self._notes: list[str] = []

    def run(self, *, is_new: bool) -> Result:
        """Go through all stages; those that the record has already are gone on with."""
        if isinstance(self._surrogate.scale, str):
            scale = self._choose_scale() if is_new else self._recorded_scale()
            self._surrogate = replace(self._surrogate, scale=scale)
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

    def _finish(self, search: Result) -> Result:
        """Do what comes after the search."""
        best, trust = self._settle(search)
        try:
            self._tell(self._eager.conclude(best.number))
        except KeyboardInterrupt:
            raise StudyEnds("interrupted while the target was under way") from None
        target = self._train_target(best)
        failure = self._explain_failure(target, best)
        self._tell(failure)
        self._record(target.study)
        if failure:
            raise StudyError(failure)
        return replace(
            search,
            target=target.best,
            trust=trust,
            loader=target.loader,
            seconds=time.perf_counter() - self._begin,
        )

    def _search(self, is_new: bool) -> Result:
        scale = self._scale
        study = self._at(scale, name=self._study.name, search=self._study.search)
        study = replace(study, callbacks=[*self._study.callbacks, self._eager], lanes=self._study.lanes)
        limits = (
            self._limits if self._limits.deadline.seconds is None else replace(self._limits, reserve=self._reserve())
        )
        return study.run_stage(limits, self._watcher, is_new=is_new)

    def _settle(self, search: Result) -> tuple[TrialRecord, Trust | None]:
        """Check the ranking at twice the width, and again at twice that, until it can be trusted.

        The same configurations, from all over the ranking of the search, are compared at every width: among the best
        alone, which are nearly equals, no two widths agree, and little depends on it.
        """
        ranked, scale, trust = order_by_merit(search.ranked), self._scale, None
        if not ranked:
            raise StudyError(f"no trial of the search {search.study!r} reported a finite {search.metric!r}")
        num_checked = self._surrogate.num_checked
        panel = [_Sample(ranked[place], place) for place in spread_over(num_checked, len(ranked))]
        spare = [_Sample(ranked[place], place) for place in spread_over(2 * num_checked, len(ranked))]
        spare = [sample for sample in spare if sample.place not in {one.place for one in panel}]
        while num_checked > 1 and scale > 1 and len(ranked) > 2:
            wider = scale // 2
            trust, panel = self._check(scale, panel, spare, search)
            spare = []  # how they stand is known at the scale of the search alone
            if trust.agreement >= self._surrogate.min_agreement or wider == 1:
                break
            few = ranked[: max(4, len(ranked) // 4)]
            self._tell(f"the ranking at 1/{scale} is poor, so the best {len(few)} train at 1/{wider} of the width")
            retrained = self._train(wider, few, "best")
            pairs = zip(few, retrained, strict=True)
            few = tuple(replace(one, history=other.history, status=other.status) for one, other in pairs)
            ranked, scale = order_by_merit(replace(search, trials=few).ranked) or ranked, wider
        return ranked[0], trust

    def _check(
        self, scale: int, panel: list[_Sample], spare: list[_Sample], search: Result
    ) -> tuple[Trust, list[_Sample]]:
        """Train the panel at twice the width, with the spare ones too if it leaves the matter in doubt.

        Returns:
            How alike the widths rank them, and how they stand at twice the width.
        """
        wider, least = scale // 2, self._surrogate.min_agreement
        again = self._try_wider(wider, panel, search, beside_target=self._eager.is_training)
        trust = self._compare(scale, wider, panel, again, search)
        self._tell(f"trust: {trust}")
        if spare and trust.agreement < least <= trust.high:
            again += self._try_wider(wider, spare, search)
            trust = self._compare(scale, wider, [*panel, *spare], again, search)
            self._tell(f"trust, with more of them to be sure: {trust}")
        return trust, again

    def _try_wider(
        self, scale: int, panel: Sequence[_Sample], search: Result, *, beside_target: bool = False
    ) -> list[_Sample]:
        """Train these configurations at another width, and return how they stand there.

        A target that has just started keeps a core to itself; one that trains for longer is soon done.
        """
        again = self._train(scale, [sample.trial for sample in panel], "checked", beside_target=beside_target)
        return [
            _Sample(replace(sample.trial, history=other.history), self._sign * other.value(search.metric))
            for sample, other in zip(panel, again, strict=True)
        ]

    def _compare(
        self, scale: int, wider: int, panel: Sequence[_Sample], again: Sequence[_Sample], search: Result
    ) -> Trust:
        pairs = list(zip(panel, again, strict=True))
        trust = measure_trust(scale, wider, [(first.place, last.place) for first, last in pairs])
        values = [(first.trial.value(search.metric), last.trial.value(search.metric)) for first, last in pairs]
        return replace(trust, values=tuple(values))

    def _train(
        self, scale: int, trials: Sequence[TrialRecord], role: str, *, beside_target: bool = False
    ) -> list[TrialRecord]:
        """Train these trials' configurations at another width, and return what came of each."""
        numbers = "-".join(str(trial.number) for trial in trials) if len(trials) < 8 else f"{role}-{len(trials)}"
        study = self._at(scale, f"{self._name}.at-{scale}-{numbers}", Listed([trial.config for trial in trials]))
        if study.lanes == "auto":  # so few are not worth measuring anew
            study = replace(study, lanes=min(self._num_lanes, len(trials)))
        if beside_target and isinstance(self._executor, ProcessExecutor):
            study = replace(study, executor=ProcessExecutor(max(self._executor.num_workers - 1, 1)))
        return list(self._run_or_resume(study, len(trials)).trials)

    def _train_target(self, best: TrialRecord) -> Result:
        configs = [best.config, *self._vary(best)]
        study = self._at(1, f"{self._name}.target-{best.number}", Listed(configs))
        watcher = self._watcher
        self._tell(f"the target trains with the configuration of trial {best.number}")
        if len(configs) == 1:
            study = replace(study, executor="inline")
            watcher = ThreadWatcher(watcher, self._num_threads)
        else:
            keys = ", ".join(self._retuned)
            self._tell(f"{keys} may not carry over: {len(configs)} values near the surrogate's are tried on the target")
        return self._run_or_resume(study, len(configs), watcher)

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
        begin = time.perf_counter()
        first_took = 0.0
        for scale in AUTO_SCALES:
            for width in (scale, scale // 2):
                if width not in values:
                    self._surrogate = replace(self._surrogate, scale=max(scale, 2))
                    study = replace(self._at(width, None, Listed(configs)), storage=None, callbacks=())
                    result = study.run_stage(Limits(num_trials=NUM_PILOTS), self._watcher)
                    values[width] = [self._sign * trial.value(result.metric) for trial in result.trials]
                    first_took = first_took or time.perf_counter() - begin
            trust = measure_trust(scale, scale // 2, list(zip(values[scale], values[scale // 2], strict=True)))
            self._tell(f"choosing a scale for {name}: {trust}")
            allowed = self._surrogate.time_share * first_took * (self._limits.num_trials or NUM_PILOTS) / NUM_PILOTS
            if trust.agreement >= AUTO_AGREEMENT or time.perf_counter() - begin > max(allowed, 2 * first_took):
                return scale
        return AUTO_SCALES[-1]

    def _recorded_scale(self) -> int:
        with open_store(self._study.storage) as store:
            return int(store.study(self._study.name).settings["scale"])

    def _reserve(self) -> Callable[[float], float]:
        """Return how many seconds the target takes, by a measurement of its steps."""
        from headwater.train.profiling import measure_alone
        from headwater.train.running import Workshop, choose_device
        from headwater.train.scaling import Scaling

        workshop = Workshop(self._study.train, choose_device(self._study.device), scaling=Scaling(self._surrogate, 1))
        config = self._space.sample(Random(self._study.seed))
        alone = measure_alone(workshop, [Lane(number=0, config=config, seed=self._study.seed)])
        seconds = 0.0 if alone is None else alone.seconds_per_lane_step
        return lambda num_steps: TARGET_MARGIN * seconds * num_steps

    def _prepare_eager(self) -> EagerTarget:
        is_wanted = self._surrogate.eager and self._study.storage is not None and not self._retuned
        return EagerTarget(
            self._study,
            self._limits.num_trials,
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

    def _run_or_resume(self, study: Study, num_trials: int, watcher: Watcher | None = None) -> Result:
        limits = Limits(num_trials=num_trials, deadline=self._limits.deadline)
        is_new = study.storage is None or not study.is_recorded()
        result = study.run_stage(limits, watcher or self._watcher, is_new=is_new)
        if result.was_interrupted:
            raise StudyEnds(result.ended_early)
        return result

    def _at(self, scale: int, name: str | None, search: object) -> Study:
        surrogate = replace(self._surrogate, at=scale)
        part_of = None if name == self._study.name else self._name
        return replace(self._study, surrogate=surrogate, name=name, search=search, callbacks=(), part_of=part_of)  # type: ignore[arg-type]  # as given, or Listed

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

    def _record(self, target: str) -> None:
        """Write into the record of the search what was said between the stages, and which study is the target's."""
        if self._study.storage is None:
            return
        with open_store(self._study.storage) as store:
            recorder = Recorder(store, store.study(self._name), self._space)
            recorder.add_fact("target", target)
            for text in self._notes:
                recorder.note("surrogate", text)
