"""The study: what a user sets up. With the loop, the only module that knows every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import StudyError
from headwater.execute import Executor, build_executor, check_executor
from headwater.interrupts import stopping_at_interrupt
from headwater.limits import Limits, read_limits
from headwater.loop import Loop, Tools
from headwater.plan import Packing
from headwater.report import Callback, Silence, Watcher, check_callbacks, choose_default
from headwater.search import Build, Problem, Searcher, build_searcher, check_search
from headwater.search.replicas import Replicated
from headwater.settings import check_function, check_name, check_one_of, check_text, read_whole, set_whole
from headwater.space import Config, Space
from headwater.store import Recorder, Store, StudyInfo, clear_states, find_runner, open_store, states_folder
from headwater.trials import Lane, Result, Surrogate, TrialRecord, average_replicas

if TYPE_CHECKING:
    from headwater.train.scaling import Scaling
    from headwater.train.shelf import Shelf
    from headwater.train.trial import Trial

DEFAULT_STORAGE = "headwater.db"
LARGEST_SEED = 2**32 - 1
"""What NumPy takes."""


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
        check_function(self.train)
        self.space = self.space if isinstance(self.space, Space) else Space(self.space)
        check_one_of("mode", self.mode, ("min", "max"))
        check_text("metric", self.metric, "the name of a metric that the function reports")
        if self.name is not None:
            check_name(self.name)
        check_search(self.search)
        check_callbacks(self.callbacks)
        if self.surrogate is not None and not isinstance(self.surrogate, Surrogate):
            self.surrogate = Surrogate(scale=self.surrogate)
        check_one_of("compile", self.compile, (True, False, None))
        self._check_numbers()
        self._check_places()

    def _check_numbers(self) -> None:
        self.seed = read_whole("seed", self.seed, 0, LARGEST_SEED)
        self.num_seeds = read_whole("num_seeds", self.num_seeds)
        set_whole(self, "max_epochs", 1)
        if self.lanes != "auto":
            self.lanes = read_whole("lanes", self.lanes, other="'auto' or ")
        if self.save_every not in ("auto", None):
            self.save_every = read_whole("save_every", self.save_every, other="'auto', None or ")

    def _check_places(self) -> None:
        """Refuse where the study cannot be recorded or train."""
        given: object = self.storage
        if not isinstance(given, str | Path | None) or given == "":
            raise StudyError(f"storage is {self.storage!r}; it must be a path, the URL of a database, or None")
        if not isinstance(self.device, str):
            self.device = _name_device(self.device)
        check_executor(self.executor)
        check_one_of("packing", self.packing, (*map(str, Packing), None))
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
        limits = read_limits(num_trials, time_budget, target)
        watcher = watcher or choose_default()
        if self._has_stages:
            return self._run_stages(limits, watcher, is_new=True)
        return self.run_stage(limits, watcher)

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
        limits = read_limits(num_trials, time_budget, target)
        watcher = watcher or choose_default()
        if self._has_stages:
            return self._run_stages(limits, watcher, is_new=False)
        return self.run_stage(limits, watcher, is_new=False)

    def run_stage(self, limits: Limits, watcher: Watcher | None = None, *, is_new: bool = True) -> Result:
        """Run or resume one search at one width; for a study without a surrogate, that is all there is."""
        if is_new:
            wanted, total = limits.num_trials, self._count(limits.num_trials)
            limits = replace(limits, num_trials=total, max_epochs=self.max_epochs)
            means = self._prepare(limits, ())  # before anything is written: what cannot be run leaves nothing behind
            with open_store(self.storage) as store:
                info = self._create(store, wanted)
                clear_states(states_folder(self.storage, info.name))
                return self._go(Recorder(store, info, self._space), limits, means, watcher)
        with open_store(self.storage) as store:
            info = store.study(self.name)
            self._require_same(info)
            _require_idle(store, info)
            total = self._count(limits.num_trials or info.settings.get("num_trials"))
            recorder = Recorder(store, info, self._space)
            limits = replace(limits, num_trials=total, max_epochs=self.max_epochs)
            known = recorder.trials()
            return self._go(recorder, limits, self._prepare(limits, known), watcher, known)

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

    def _run_stages(self, limits: Limits, watcher: Watcher, *, is_new: bool) -> Result:
        from headwater.transfer import Transfer

        return Transfer(self, limits, watcher).run(is_new=is_new)

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

    def _prepare(self, limits: Limits, known: Sequence[TrialRecord]) -> _Means:
        """Make what a run needs, as far as that can be done without a record.

        Raises:
            StudyError: The search, the device or the executor cannot be had here.
        """
        from headwater.train.running import choose_device

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
        searcher = searcher if self.num_seeds == 1 else Replicated(searcher, self.num_seeds, known)
        device = choose_device(self.device)
        return _Means(searcher, device, build_executor(self.executor, device.type))

    def _go(
        self,
        recorder: Recorder,
        limits: Limits,
        means: _Means,
        watcher: Watcher | None,
        known: Sequence[TrialRecord] = (),
    ) -> Result:
        from headwater.train.compiling import Compiler
        from headwater.train.machine import threads_for
        from headwater.train.memory import keep_freed_memory
        from headwater.train.packer import HURRIED_UNITS, MAX_UNITS, Packer
        from headwater.train.running import Workshop
        from headwater.train.shelf import Shelf
        from headwater.train.sorting import Sorter

        watcher = watcher or Silence()
        keep_freed_memory()

        def tell(text: str, lanes: Sequence[Lane]) -> None:
            recorder.note("lanes", text, lanes)
            watcher.tell(text)

        compiler = Compiler(tell=lambda text: tell(text, ())) if self._compiles else None
        workshop = Workshop(
            self.train,
            means.device,
            num_workers=means.executor.num_workers,
            scaling=self._scaling(),
            compiler=compiler,
            shares_loading=self.packing is not None,
        )
        packing = None if self.packing is None else Packing(self.packing)
        num_units = MAX_UNITS if limits.seconds is None else HURRIED_UNITS
        packer = Packer(workshop, packing, self._space, Random(self.seed), tell, num_units)
        num_lanes = self.lanes if isinstance(self.lanes, int) else None
        tools = Tools(
            searcher=means.searcher,
            recorder=recorder,
            workshop=workshop,
            sorter=Sorter(workshop, num_lanes, tell, recorder.add_profile, packer.key),
            packer=packer,
            shelf=Shelf(states_folder(self.storage, recorder.info.name), self.save_every),
            executor=means.executor,
            watcher=watcher,
            callbacks=self.callbacks,
        )
        loop = Loop(tools, limits, known)
        with stopping_at_interrupt(loop), threads_for(means.executor.num_workers):
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


class _Means(NamedTuple):
    """What a run is made with."""

    searcher: Searcher
    device: Any  # Any: a torch.device, and this module does without torch
    executor: Executor


def _name_device(device: Any) -> str:  # Any: a torch.device, or whatever a user gives instead
    if type(device).__module__ != "torch":
        raise StudyError(f"device is {device!r}; it must be 'auto', or a name that torch knows, such as 'cpu'")
    return str(device)


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
