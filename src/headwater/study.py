"""The study: what a user sets up. With the loop, the only module that knows every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from headwater.conduct.limits import Limits, read_limits
from headwater.errors import AllTrialsFailedError, HeadwaterError, SpaceError, StoreError, StudyError
from headwater.execute import Executor, Service, check_executor
from headwater.plan import Packing
from headwater.plan.allocation import ALLOCATIONS
from headwater.report import Callback, Silence, Watcher, check_callbacks, choose_default
from headwater.report.reading import show_storage
from headwater.search import Build, ResultOrder, Searcher, check_search
from headwater.search.building import check_constrained, check_several
from headwater.settings import (
    check_function,
    check_name,
    check_one_of,
    check_text,
    find_storage,
    read_number,
    read_whole,
    set_whole,
)
from headwater.space import Space, show_plain
from headwater.space.meant import has_search, require_search
from headwater.space.partial import adopt_shown, complete_config
from headwater.trials import MOST_SEEDS, Constraint, Objective, Result, Surrogate, read_constraints
from headwater.trials.html import write_facts, write_table

if TYPE_CHECKING:
    from headwater.train.trial import Trial

LARGEST_SEED = 2**32 - 1
"""What NumPy takes."""

MOST_DEVICES = 10_000


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
    """What may vary: domains, constants and conditions by key."""
    metric: str | Sequence[str]
    """The metric that counts; of several, the first says which trial is best, and `Result.front` has the trade-offs."""
    mode: str | Sequence[str] = "min"
    """Whether the metric should be small ("min") or large ("max"); one for all of several, or one for each."""
    also: Mapping[str, str] = field(default_factory=dict)
    """The further metrics of several, with their modes, as `metric` and `mode` set them."""
    constraints: str | Sequence[str | Constraint] = ()
    """What trials must keep to in their last reports, such as ["latency <= 20"]: those that do are preferred."""
    judge: str = "last"
    """By which value of the metric trials are compared: the "last" that they reported, or the "best"."""
    search: str | Build | Searcher = "random"
    """What to try next and for how long: a name, or a search with settings of its own."""
    points: Sequence[Mapping[str, Any]] = ()
    """Configurations to try before the search chooses any, whole or in part; `enqueue` adds more."""
    order: str = "virtual"
    """In which order the search deals with results: "virtual", as if every epoch took equally long, for the same answer
    on any number of devices; or "arrival", as they come, so that nothing waits."""
    storage: str | Path | None = field(default_factory=find_storage)
    """Where the record goes: a path, a database URL, or None to keep it in memory; by default what the variable
    HEADWATER_STORAGE names, and headwater.db without it."""
    states: str | Path | None = None
    """Where the states of trials go: a folder, or a URL such as s3://bucket/folder; by default beside the file of the
    record, and for a record on a server in ./headwater.states. The record knows it from then on."""
    executor: str | Executor | Service = "auto"
    """Where to train: "inline" in this process, "processes" on all cores or GPUs of the machine, "auto" in this process
    and then on all of them if it takes longer, "ray" on a Ray cluster, "slurm" on jobs of Slurm, "http://..." in a
    service, or an executor."""
    devices: int | None = None
    """How many cores or GPUs train at the same time; None for all there are. An executor of one's own has its own."""
    lanes: int | str = "auto"
    """How many trials train as one: a number, or "auto" to measure what is fastest."""
    packing: str | None = "cost"
    """Which groups that cannot train as one train as a pack, loading their data once: by measured "cost", or as in the
    paper "knn", "random" or "batch_size"; None for no packs."""
    allocation: str = "ours"
    """Who gets devices that nothing waits for: "ours", whoever gains most by them; as in the paper on Fluid, "fluid" or
    "even"; "fifo": nobody. Trials with `lanes=1` always train on one device each."""
    seed: int = 0
    name: str | None = None
    """What the record calls the study; by default the training function's name and a number."""
    device: str = "auto"
    """Where to train: "cpu", "cuda", another kind, or "auto" for an accelerator if there is one."""
    max_epochs: int | None = None
    """How many epochs a trial trains at most; searchers that stop trials early need to know."""
    trial_timeout: float | None = None
    """How many seconds a trial trains at most, alone or in its groups: it is stopped at the next report. None: no end.
    The target of a study with surrogates has none."""
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
    on_interrupt: str = "return"
    """What a run does that somebody has interrupted, when everything is saved: "return" a result that says so
    (`Result.was_interrupted`), or "raise" KeyboardInterrupt."""
    part_of: str | None = None
    """The name of the study that this one is a stage of."""

    def __post_init__(self) -> None:
        check_function(self.train)
        self.space = self.space if isinstance(self.space, Space) else Space(self.space)
        require_search(self.space)
        self._split_metrics()
        self._read_constraints()
        check_one_of("mode", self.mode, ("min", "max"))
        check_one_of("judge", self.judge, ("last", "best"))
        if self.judge == "best" and (self.num_seeds != 1 or self.surrogate is not None):
            raise StudyError(
                "judge='best' is for trials under one seed and without a surrogate; use judge='last' there"
            )
        check_text("metric", self.metric, "the name of a metric that the function reports")
        if self.name is not None:
            check_name(self.name)
        check_search(self.search)
        self._check_points()
        check_one_of("order", self.order, tuple(map(str, ResultOrder)))
        check_callbacks(self.callbacks)
        if self.surrogate is not None and not isinstance(self.surrogate, Surrogate):
            self.surrogate = Surrogate(scale=self.surrogate)
        check_one_of("on_interrupt", self.on_interrupt, ("return", "raise"))
        check_one_of("compile", self.compile, (True, False, None))
        self._check_numbers()
        self._check_places()

    def _split_metrics(self) -> None:
        """Keep the first of several metrics, and the others apart."""
        further: object = self.also
        if not isinstance(further, Mapping):
            raise StudyError(
                f"also is {further!r}; it must be a dictionary of metrics and modes, as in {{'f1': 'max'}}"
            )
        if isinstance(self.metric, list | tuple):
            names, modes = list(self.metric), self.mode
            modes = [modes] * len(names) if isinstance(modes, str) else list(modes)
            if not names or len(set(names)) != len(names) or len(modes) != len(names):
                raise StudyError(
                    f"metric is {names} and mode {modes}; give several names, and one mode or one for each"
                )
            self.metric, self.mode = names[0], modes[0]
            self.also = dict(zip(names[1:], modes[1:], strict=True))
        for name, mode in self.also.items():
            check_text("metric", name, "the name of a metric that the function reports")
            check_one_of(f"mode of {name}", mode, ("min", "max"))
        if self.also:
            check_several(self.search)
            if self.judge != "last" or self.surrogate is not None:
                raise StudyError(
                    "several metrics are for judge='last' and studies without a surrogate; name one metric"
                )

    def _read_constraints(self) -> None:
        self.constraints = read_constraints(self.constraints)
        if self.constraints:
            check_constrained(self.search)
            if self.judge != "last" or self.surrogate is not None:
                raise StudyError("constraints are for judge='last' and studies without a surrogate; leave them out")

    @property
    def objective(self) -> Objective:
        """What the best trial is found by."""
        return Objective(str(self.metric), str(self.mode), self.judge, read_constraints(self.constraints))

    def _check_points(self) -> None:
        """Refuse points that are not of the space, or that nobody would take up."""
        given: object = self.points
        if isinstance(given, Mapping) or not isinstance(given, Sequence):
            raise StudyError(f"points is {given!r}; it must be a list of configurations, such as [{{'lr': 0.1}}]")
        self.points = tuple(self.points)
        for point in self.points:
            complete_config(self._space, point, Random(0))
        if self.points and isinstance(self.search, Searcher) and not isinstance(self.search, type):
            raise StudyError(
                "points are for searches that Headwater builds; have the searcher of your own propose them"
            )

    def enqueue(self, *configs: Mapping[str, Any]) -> None:  # Any: as for Config
        """Have these configurations tried next: first in a new study, after those there are in one that is resumed.

        A configuration may leave keys out; they are drawn at random. One that the study has tried is not tried again.

        Raises:
            SpaceError: A key is not in the space, or a value not in its domain.
        """
        before = self.points
        try:
            self.points = (*before, *configs)
            self._check_points()
        except (StudyError, SpaceError):
            self.points = before
            raise

    def enqueue_best(
        self, earlier: str | Result, count: int = 1, storage: str | Path | None = None
    ) -> list[dict[str, Any]]:
        """Have the best configurations of an earlier study tried next, and return what was taken of each.

        Args:
            earlier: Its result, or its name in the record.
            count: How many of its best trials.
            storage: The record that has it, if it is another than this study's.

        Keys that this space lacks and values that it does not hold are left out.
        """
        from headwater.report.reading import read_best

        count = read_whole("count", count)
        place = self.storage if storage is None else storage
        if isinstance(earlier, Result):
            found = [show_plain(dict(trial.config)) for trial in earlier.ranked[:count]]
        elif place is None:
            raise StudyError(f"this study is kept in memory alone, so say where {earlier!r} is with storage=")
        else:
            found = read_best(earlier, str(place), count)
        configs = [dict(adopt_shown(self._space, config)) for config in found]
        self.enqueue(*(config for config in configs if config))
        return configs

    def _check_numbers(self) -> None:
        self.seed = read_whole("seed", self.seed, 0, LARGEST_SEED)
        self.num_seeds = read_whole("num_seeds", self.num_seeds, 1, MOST_SEEDS)
        set_whole(self, "max_epochs", 1)
        if self.devices is not None:
            self.devices = read_whole("devices", self.devices, 1, MOST_DEVICES)
        if self.trial_timeout is not None:
            self.trial_timeout = read_number("trial_timeout", self.trial_timeout, 0)
        if self.lanes != "auto":
            self.lanes = read_whole("lanes", self.lanes, other="'auto' or ")
        if self.save_every not in ("auto", None):
            self.save_every = read_whole("save_every", self.save_every, other="'auto', None or ")

    def _check_places(self) -> None:
        """Refuse where the study cannot be recorded or train."""
        given: object = self.storage
        if not isinstance(given, str | Path | None) or given == "":
            raise StudyError(f"storage is {self.storage!r}; it must be a path, the URL of a database, or None")
        place: object = self.states
        if not isinstance(place, str | Path | None) or place == "":
            raise StudyError(f"states is {self.states!r}; it must be a path, a URL such as 's3://bucket/x', or None")
        if not isinstance(self.device, str):
            self.device = _name_device(self.device)
        check_executor(self.executor)
        check_one_of("packing", self.packing, (*map(str, Packing), None))
        check_one_of("allocation", self.allocation, ALLOCATIONS)
        if self.packing == Packing.BATCH_SIZE and not any(key.endswith("batch_size") for key in self._space.domains):
            raise StudyError("packing='batch_size' needs a key batch_size in the space; use packing='cost' without one")

    def run(
        self,
        num_trials: int | None = None,
        *,
        time_budget: float | None = None,
        target: float | None = None,
        watcher: Watcher | None = None,
        resume: str = "never",
    ) -> Result:
        """Train trials until there are `num_trials`, or the space has no more.

        It ends early after `time_budget` seconds, or when a trial reaches `target`. A trial that raises or reports NaN
        is a result like any other; `Result.trials` holds them all. The first failure is shown when it happens, and if
        the first five trials fail in the same way, the run ends. Ctrl-C ends the run after the next report with
        everything saved for `resume`; twice, at once.

        With `resume="auto"`, a study of this name that the record has goes on, as by `resume`; there is a new one where
        it has none. So a script that is killed is simply started again.

        With a surrogate, `time_budget` is when the target is to be trained, and the search ends as early as that needs.

        A `watcher` shows the run; by default that is what suits the place: one output in a notebook, a live display on
        a terminal, and lines elsewhere, by the logger "headwater" where logging is set up. `headwater.Silence()` shows
        nothing anywhere.

        Raises:
            AllTrialsFailedError: Every trial failed; the error carries the result.
            NameTakenError: The record has a study of this name, and `resume` is "never".
        """
        limits = read_limits(num_trials, time_budget, target)
        check_one_of("resume", resume, ("never", "auto"))
        is_new = resume == "never" or not self.is_recorded()
        return self.run_within(limits, watcher or choose_default(), is_new=is_new)

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
        return self.run_within(limits, watcher or choose_default(), is_new=False)

    def retry(
        self,
        num_trials: int | None = None,
        *,
        time_budget: float | None = None,
        target: float | None = None,
        watcher: Watcher | None = None,
    ) -> Result:
        """Train trials and targets again that have failed, from the beginning, and go on as by `resume`.

        For failures that have a cause which is gone: a full disk, a bug that is mended. What such a trial had reported
        before it failed stays in the record.
        """
        from headwater.store import list_stages, open_store, reopen_failed

        limits = read_limits(num_trials, time_budget, target)
        with open_store(self.storage) as store:
            info = store.study(self.name)
            for one in (info, *list_stages(store, info.name)):
                reopen_failed(store, one)
        return replace(self, name=info.name).run_within(limits, watcher or choose_default(), is_new=False)

    def run_within(self, limits: Limits, watcher: Watcher | None = None, *, is_new: bool = True) -> Result:
        """Run or resume within limits that were read already."""
        from headwater.running import run_study

        if watcher is not None and not isinstance(watcher, Watcher):
            raise StudyError(f"watcher is {watcher!r}; it must have the methods start, pulse, tell and end")
        try:
            result = run_study(self, limits, watcher or Silence(), is_new=is_new)
        except HeadwaterError as error:
            # The message says everything: frames of the package and of the database driver would only bury it.
            cause = None if isinstance(error, StoreError) else error.__cause__
            raise error.with_traceback(None) from cause
        if result.was_interrupted and self.on_interrupt == "raise":
            raise KeyboardInterrupt(result.ended_early)
        if result.has_only_failures and not result.was_interrupted:
            raise AllTrialsFailedError(f"{result.explain_failures()}; {self._explain_retry()}", result)
        return result

    def _explain_retry(self) -> str:
        if self.storage is None:
            return "fix the cause, and run the study again"
        return "fix the cause, and train these trials again with study.retry() or `headwater retry FILE`"

    def is_recorded(self) -> bool:
        """Tell whether the record has a study of this name."""
        if self.name is None or self.storage is None:
            raise StudyError("resume='auto' finds a study by its name in the record: give the study name= and storage=")
        from headwater.store import open_store

        with open_store(self.storage) as store:
            return any(info.name == self.name for info in store.studies())

    def _repr_html_(self) -> str:
        """Show it in a notebook: what is searched, for what, and where it is recorded."""
        facts: dict[str, object] = {
            "wanted": f"{self.mode} {self.metric}",
            "search": self.search if isinstance(self.search, str) else type(self.search).__name__,
            "record": "in memory" if self.storage is None else show_storage(str(self.storage)),
        }
        rows = [[row.key, row.text] for row in self._space.describe()]
        name = self.name or f"of {self.train.__name__ if hasattr(self.train, '__name__') else 'a function'}"
        return write_facts(f"study {name}", facts) + write_table(["hyperparameter", "space"], rows)

    @property
    def _space(self) -> Space:
        assert isinstance(self.space, Space)
        return self.space

    def count_trials(self, num_trials: int | None) -> int:
        """Return how many trials there can be: as many as were asked for, or as the space has.

        Raises:
            StudyError: Neither says, or there is one configuration and more trials were asked for.
        """
        if num_trials is not None and num_trials > 1 and not has_search(self._space):
            raise StudyError(
                f"num_trials is {num_trials}, but every key of the space is a constant ({self._space}), so there is "
                "one configuration; give a key a domain such as hw.loguniform(1e-4, 1.0), or leave num_trials out"
            )
        known = [number for number in (num_trials, self._space.size) if number is not None]
        if not known:
            raise StudyError(
                "the space has no end, so run needs num_trials or time_budget, for instance run(num_trials=100)"
            )
        return min(known)


def _name_device(device: Any) -> str:  # Any: a torch.device, or whatever a user gives instead
    if type(device).__module__ != "torch":
        raise StudyError(f"device is {device!r}; it must be 'auto', or a name that torch knows, such as 'cpu'")
    return str(device)
