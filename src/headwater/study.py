"""The study: what a user sets up. With the loop, the only module that knows every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.conduct.limits import Limits, read_limits
from headwater.errors import StudyError
from headwater.execute import Executor, check_executor
from headwater.plan import Packing
from headwater.plan.allocation import ALLOCATIONS
from headwater.report import Callback, Silence, Watcher, check_callbacks, choose_default
from headwater.search import Build, ResultOrder, Searcher, check_search
from headwater.settings import check_function, check_name, check_one_of, check_text, read_whole, set_whole
from headwater.space import Space
from headwater.trials import Result, Surrogate

if TYPE_CHECKING:
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
    order: str = "virtual"
    """In which order the search deals with results: "virtual", as if every epoch took equally long, for the same answer
    on any number of devices; or "arrival", as they come, so that nothing waits."""
    storage: str | Path | None = DEFAULT_STORAGE
    """Where the record goes: a path, a database URL, or None to keep it in memory."""
    states: str | Path | None = None
    """Where the states of trials go: a folder, or a URL such as s3://bucket/folder; by default beside the file of the
    record, and for a record on a server in ./headwater.states. The record knows it from then on."""
    executor: str | Executor = "auto"
    """Where to train: "inline" in this process, "processes" on all cores or GPUs of the machine, "auto" in this process
    and then on all of them if it takes longer, "ray" on a Ray cluster, or an executor."""
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
        check_one_of("order", self.order, tuple(map(str, ResultOrder)))
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
        set_whole(self, "devices", 1)
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
        return self.run_within(limits, watcher or choose_default())

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

    def run_within(self, limits: Limits, watcher: Watcher | None = None, *, is_new: bool = True) -> Result:
        """Run or resume within limits that were read already."""
        from headwater.running import run_study

        return run_study(self, limits, watcher or Silence(), is_new=is_new)

    @property
    def _space(self) -> Space:
        assert isinstance(self.space, Space)
        return self.space

    def count_trials(self, num_trials: int | None) -> int:
        """Return how many trials there can be: as many as were asked for, or as the space has.

        Raises:
            StudyError: Neither says.
        """
        known = [number for number in (num_trials, self._space.size) if number is not None]
        if not known:
            raise StudyError("the space has no end, so run needs num_trials, for instance run(num_trials=100)")
        return min(known)


def _name_device(device: Any) -> str:  # Any: a torch.device, or whatever a user gives instead
    if type(device).__module__ != "torch":
        raise StudyError(f"device is {device!r}; it must be 'auto', or a name that torch knows, such as 'cpu'")
    return str(device)
