"""The study: what a user sets up. With the loop, the only module that knows every stage."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Any

from headwater.errors import StudyError
from headwater.execute import EXECUTORS, Executor, build_executor
from headwater.limits import Limits
from headwater.loop import Loop, Tools
from headwater.plan import Packing
from headwater.report import Callback, Silence, Watcher, choose_default
from headwater.search import Build, Problem, Searcher, build_searcher
from headwater.search.replicas import Replicated
from headwater.space import Config, Space
from headwater.store import Recorder, Store, StudyInfo, clear_states, find_runner, open_store, states_folder
from headwater.trials import Lane, Result, Surrogate, TrialRecord, average_replicas

if TYPE_CHECKING:
    from headwater.train.scaling import Scaling
    from headwater.train.shelf import Shelf
    from headwater.train.trial import Trial

DEFAULT_STORAGE = "headwater.db"


@dataclass
class Study:
    """A training function, a space to search, and how to go about it.

    Raises:
        SpaceError: The space is malformed.
        StudyError: A setting is; the message says what is possible.
    """

    train: Callable[[Trial], Any]
    """The training function; it gets a Trial and reports metrics to it."""
    _: KW_ONLY
    space: Mapping[str, Any] | Space
    metric: str
    mode: str = "min"
    """Whether the metric should be small ("min") or large ("max")."""
    search: str | Build | Searcher = "random"
    storage: str | Path | None = DEFAULT_STORAGE
    """Where the record goes: a path, a database URL, or None to keep it in memory."""
    executor: str | Executor = "inline"
    """Where to train: "inline" in this process, "processes" on all cores of the machine, or an executor."""
    lanes: int | str = "auto"
    """How many trials train as one: a number, or "auto" to measure what is fastest."""
    packing: str | None = "cost"
    """Which groups that cannot train as one train as a pack, loading their data once: by measured "cost", or as in the
    paper "knn", "random" or "batch_size"; None for no packs."""
    seed: int = 0
    name: str | None = None
    """What the record calls the study; by default the training function's name and a number."""
    device: str = "auto"
    """Where to train: "cpu", "cuda", or "auto" for a GPU if there is one."""
    max_epochs: int | None = None
    """How many epochs a trial trains at most; searchers that stop trials early need to know."""
    save_every: int | str | None = "auto"
    """After how many epochs a trial is saved, so that a killed study can go on; "auto": as often as that takes next to
    no time; None: only where it pauses."""
    num_seeds: int = 1
    """Under how many seeds each trial is trained; its metrics are then the means."""
    callbacks: Sequence[Callback] = ()
    surrogate: int | str | Surrogate | None = None
    """Search on models of 1/surrogate of the width, and train the target with what they found; "auto" or a number."""
    compile: bool | None = None
    """Whether what trains alone is compiled where that saves time; None: targets of surrogates are."""
    part_of: str | None = None
    """The name of the study that this one is a stage of."""

    def __post_init__(self) -> None:
        if not callable(self.train):
            raise StudyError(f"train is {self.train!r}; it must be a function that takes a trial")
        self.space = self.space if isinstance(self.space, Space) else Space(self.space)
        if self.mode not in ("min", "max"):
            raise StudyError(f"mode is {self.mode!r}; it must be 'min' or 'max'")
        if not self.metric:
            raise StudyError(f"metric is {self.metric!r}; it must be the name of a metric that the function reports")
        self._check_grouping()
        if self.save_every not in ("auto", None) and not (isinstance(self.save_every, int) and self.save_every >= 1):
            raise StudyError(f"save_every is {self.save_every!r}; it must be 'auto', a number of at least 1, or None")
        if self.num_seeds < 1:
            raise StudyError(f"num_seeds is {self.num_seeds}; it must be at least 1")
        if self.surrogate is not None and not isinstance(self.surrogate, Surrogate):
            self.surrogate = Surrogate(scale=self.surrogate)
        if isinstance(self.executor, str) and self.executor not in EXECUTORS:
            raise StudyError(f"executor is {self.executor!r}; it must be one of {', '.join(map(repr, EXECUTORS))}")

    def _check_grouping(self) -> None:
        is_number = isinstance(self.lanes, int) and not isinstance(self.lanes, bool) and self.lanes >= 1
        if self.lanes != "auto" and not is_number:
            raise StudyError(f"lanes is {self.lanes!r}; it must be 'auto' or a number of at least 1")
        ways = list(map(str, Packing))
        if self.packing is not None and self.packing not in ways:
            raise StudyError(f"packing is {self.packing!r}; it must be one of {', '.join(map(repr, ways))}, or None")
        if self.packing == Packing.BATCH_SIZE and not any(key.endswith("batch_size") for key in self._space.domains):
            raise StudyError("packing='batch_size' needs a key batch_size in the space; use packing='cost' without one")

    def run(
        self,
        num_trials: int | None = None,
        *,
        time_budget: float | None = None,
        target: float | None = None,
        watcher: Watcher | None = None,
    ) -> Result:
        """Train trials until there are `num_trials`, or the space has no more.

        It ends early after `time_budget` seconds, or when a trial reaches `target`. A trial that raises or reports NaN
        is a result like any other; `Result.trials` holds them all. Ctrl-C ends the run after the next report with
        everything saved for `resume`; twice, at once.

        With a surrogate, `time_budget` is when the target is to be trained, and the search ends as early as that needs.

        A `watcher` shows the run; by default that is the progress display if the standard error is a terminal, and
        nothing elsewhere. `headwater.report.Silence()` shows nothing anywhere.
        """
        watcher = watcher or choose_default()
        if self._has_stages:
            return self._run_stages(num_trials, time_budget, target, watcher, is_new=True)
        return self.run_stage(Limits(num_trials=num_trials, seconds=time_budget, target=target), watcher)

    def resume(
        self,
        num_trials: int | None = None,
        *,
        time_budget: float | None = None,
        target: float | None = None,
        watcher: Watcher | None = None,
    ) -> Result:
        """Go on with the study of this name where it was stopped or killed; without a name, with the newest one.

        `num_trials` counts from the beginning of the study; by default it is what the study began with.
        """
        watcher = watcher or choose_default()
        if self._has_stages:
            return self._run_stages(num_trials, time_budget, target, watcher, is_new=False)
        limits = Limits(num_trials=num_trials, seconds=time_budget, target=target)
        return self.run_stage(limits, watcher, is_new=False)

    def run_stage(self, limits: Limits, watcher: Watcher | None = None, *, is_new: bool = True) -> Result:
        """Run or resume one search at one width; for a study without a surrogate, that is all there is."""
        with open_store(self.storage) as store:
            if is_new:
                info = self._create(store, limits.num_trials)
                clear_states(states_folder(self.storage, info.name))
                limits = replace(limits, num_trials=self._count(limits.num_trials), max_epochs=self.max_epochs)
                return self._go(Recorder(store, info, self._space), limits, watcher, ())
            info = store.study(self.name)
            self._require_same(info)
            _require_idle(store, info)
            total = self._count(limits.num_trials or info.settings.get("num_trials"))
            recorder = Recorder(store, info, self._space)
            limits = replace(limits, num_trials=total, max_epochs=self.max_epochs)
            return self._go(recorder, limits, watcher, recorder.trials())

    def is_recorded(self) -> bool:
        """Tell whether the record has a study of this name."""
        with open_store(self.storage) as store:
            return any(info.name == self.name for info in store.studies())

    def read_config(self, name: str, number: int) -> Config:
        """Read the configuration of a trial from the record."""
        with open_store(self.storage) as store:
            trials = Recorder(store, store.study(name), self._space).trials()
        return next(trial.config for trial in trials if trial.number == number)

    @property
    def _has_stages(self) -> bool:
        return isinstance(self.surrogate, Surrogate) and self.surrogate.at is None and self.surrogate.scale != 1

    def _run_stages(
        self,
        num_trials: int | None,
        time_budget: float | None,
        target: float | None,
        watcher: Watcher | None,
        *,
        is_new: bool,
    ) -> Result:
        from headwater.transfer import Transfer

        limits = Limits(num_trials=num_trials, seconds=time_budget, target=target)
        return Transfer(self, limits, watcher or Silence()).run(is_new=is_new)

    @property
    def _space(self) -> Space:
        assert isinstance(self.space, Space)
        return self.space

    def _count(self, num_trials: int | None) -> int:
        """Return how many trials there can be: as many as were asked for, or as the space has."""
        known = [number for number in (num_trials, self._space.size) if number is not None]
        if not known:
            raise StudyError("the space has no end, so run needs num_trials, for instance run(num_trials=100)")
        return min(known)

    def _require_same(self, info: StudyInfo) -> None:
        """A record goes on only with the space, metric and seed that it was made with."""
        for name, mine, recorded in (
            ("space", self._describe_space(), info.space),
            ("metric", self.metric, info.metric),
            ("mode", self.mode, info.mode),
            ("seed", self.seed, info.seed),
            ("num_seeds", self.num_seeds, info.num_seeds),
            ("search", self._search_name, info.settings.get("search", self._search_name)),
            ("surrogate", self._describe_surrogate(), info.settings.get("surrogate")),
        ):
            if mine != recorded:
                raise StudyError(
                    f"study {info.name!r} was recorded with {name} {recorded!r}, but this one has {mine!r}; "
                    "resume it with the same settings, or run a new study"
                )

    def _go(self, recorder: Recorder, limits: Limits, watcher: Watcher | None, known: Sequence[TrialRecord]) -> Result:
        from headwater.train.compiling import Compiler
        from headwater.train.machine import threads_for
        from headwater.train.memory import keep_freed_memory
        from headwater.train.packer import HURRIED_UNITS, MAX_UNITS, Packer
        from headwater.train.running import Workshop, choose_device
        from headwater.train.shelf import Shelf
        from headwater.train.sorting import Sorter

        watcher = watcher or Silence()
        keep_freed_memory()

        def tell(text: str, lanes: Sequence[Lane]) -> None:
            recorder.note("lanes", text, lanes)
            watcher.tell(text)

        problem = Problem(
            space=self._space,
            metric=self.metric,
            mode=self.mode,
            seed=self.seed,
            num_trials=limits.num_trials,
            max_epochs=limits.max_epochs,
            known=average_replicas(known, self.num_seeds),
        )
        searcher = build_searcher(self.search, problem)
        compiler = Compiler(tell=lambda text: tell(text, ())) if self._compiles else None
        device = choose_device(self.device)
        executor = build_executor(self.executor, device.type)
        workshop = Workshop(
            self.train,
            device,
            num_workers=executor.num_workers,
            scaling=self._scaling(),
            compiler=compiler,
            shares_loading=self.packing is not None,
        )
        packing = None if self.packing is None else Packing(self.packing)
        num_units = MAX_UNITS if limits.seconds is None else HURRIED_UNITS
        packer = Packer(workshop, packing, self._space, Random(self.seed), tell, num_units)
        num_lanes = self.lanes if isinstance(self.lanes, int) else None
        tools = Tools(
            searcher=searcher if self.num_seeds == 1 else Replicated(searcher, self.num_seeds, known),
            recorder=recorder,
            workshop=workshop,
            sorter=Sorter(workshop, num_lanes, tell, recorder.add_profile, packer.key),
            packer=packer,
            shelf=Shelf(states_folder(self.storage, recorder.info.name), self.save_every),
            executor=executor,
            watcher=watcher,
            callbacks=self.callbacks,
        )
        loop = Loop(tools, limits, known)
        with _stopping_at_interrupt(loop), threads_for(executor.num_workers):
            loop.run()
        result = loop.result(str(self.storage or "memory"))
        result = replace(result, loader=partial(self._load_best, result, tools.shelf))
        for callback in self.callbacks:
            callback.on_result(result)
        return result

    @property
    def _compiles(self) -> bool:
        is_target = isinstance(self.surrogate, Surrogate) and self.surrogate.at == 1
        return is_target if self.compile is None else self.compile

    def _scaling(self) -> Scaling | None:
        from headwater.train.scaling import Scaling

        if not isinstance(self.surrogate, Surrogate) or self.surrogate.scale == self.surrogate.at == 1:
            return None
        return None if self.surrogate.at is None else Scaling(self.surrogate, self.surrogate.at)

    def _load_best(self, result: Result, shelf: Shelf) -> Any:  # Any: the user's own module, or a list of them
        from headwater.train.keeping import rebuild_models

        number = shelf.kept_number
        config = next((trial.config for trial in result.trials if trial.number == number), result.best.config)
        lane = Lane(number=number or 0, config=config, seed=self.seed)
        models = rebuild_models(self.train, lane, shelf.load_kept())
        return models[0] if len(models) == 1 else models

    @property
    def _search_name(self) -> str:
        """What the record calls the way of searching: its name, or the kind of object that it is."""
        return self.search if isinstance(self.search, str) else type(self.search).__name__

    def _describe_surrogate(self) -> str | None:
        """Return what decides at which width trials train and how their settings follow it."""
        if not isinstance(self.surrogate, Surrogate):
            return None
        one = self.surrogate
        rules = f"rules from 1/{one.scale}" + (f" with decay {one.decay_exponent:g}" if one.decay_exponent != 1 else "")
        rules += ", readout from zero" if one.zero_readout else ""
        return f"1/{one.at} of the width ({rules}, none below {one.min_width})"

    def _describe_space(self) -> list[dict[str, Any]]:  # Any: JSON values
        return [asdict(row) for row in self._space.describe()]

    def _create(self, store: Store, num_trials: int | None) -> StudyInfo:
        name = self.name or _free_name(getattr(self.train, "__name__", "study"), store)
        info = StudyInfo(
            name=name,
            metric=self.metric,
            mode=self.mode,
            seed=self.seed,
            space=self._describe_space(),
            settings={
                "lanes": self.lanes,
                "num_trials": num_trials,
                "search": self._search_name,
                "num_seeds": self.num_seeds,
                "surrogate": self._describe_surrogate(),
                "scale": self.surrogate.scale if isinstance(self.surrogate, Surrogate) else None,
                "part_of": self.part_of,
            },
        )
        store.create_study(info)
        return store.study(name)


def _require_idle(store: Store, info: StudyInfo) -> None:
    """Two processes must not go on with one study."""
    runner = find_runner(store, info.id)
    if runner is not None and runner.is_here and runner.may_live():
        raise StudyError(
            f"study {info.name!r} is still running, in process {runner.pid}; wait for it, or end it with "
            "headwater stop and resume it then"
        )


def _free_name(base: str, store: Store) -> str:
    taken = {info.name for info in store.studies()}
    return next(name for number in range(1, len(taken) + 2) if (name := f"{base}-{number}") not in taken)


@contextmanager
def _stopping_at_interrupt(loop: Loop) -> Iterator[None]:
    """Let the first Ctrl-C end the run after the next report, and the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if loop.stop_reason is not None:
            raise KeyboardInterrupt
        loop.stop_reason = "interrupted; what was under way can be resumed"

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
