"""The study: what a user sets up. With the loop, the only module that knows every stage."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from headwater.errors import StudyError
from headwater.execute import InlineExecutor
from headwater.loop import Limits, Loop, Tools
from headwater.report import Callback, Silence, Watcher
from headwater.search import Build, Problem, Searcher, build_searcher
from headwater.search.replicas import Replicated
from headwater.space import Space
from headwater.store import Recorder, Store, StudyInfo, open_store
from headwater.trials import Lane, Result, TrialRecord, average_replicas

if TYPE_CHECKING:
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
    executor: str | InlineExecutor = "inline"
    lanes: int | str = "auto"
    """How many trials train as one: a number, or "auto" to measure what is fastest."""
    seed: int = 0
    name: str | None = None
    """What the record calls the study; by default the training function's name and a number."""
    device: str = "auto"
    """Where to train: "cpu", "cuda", or "auto" for a GPU if there is one."""
    max_epochs: int | None = None
    """How many epochs a trial trains at most; searchers that stop trials early need to know."""
    save_every: int | None = 1
    """After how many epochs a trial is saved, so that a killed study can go on; None: only where it pauses."""
    num_seeds: int = 1
    """Under how many seeds each trial is trained; its metrics are then the means."""
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        if not callable(self.train):
            raise StudyError(f"train is {self.train!r}; it must be a function that takes a trial")
        self.space = self.space if isinstance(self.space, Space) else Space(self.space)
        if self.mode not in ("min", "max"):
            raise StudyError(f"mode is {self.mode!r}; it must be 'min' or 'max'")
        if not self.metric:
            raise StudyError(f"metric is {self.metric!r}; it must be the name of a metric that the function reports")
        is_number = isinstance(self.lanes, int) and not isinstance(self.lanes, bool) and self.lanes >= 1
        if self.lanes != "auto" and not is_number:
            raise StudyError(f"lanes is {self.lanes!r}; it must be 'auto' or a number of at least 1")
        if self.num_seeds < 1:
            raise StudyError(f"num_seeds is {self.num_seeds}; it must be at least 1")
        if isinstance(self.executor, str) and self.executor != "inline":
            raise StudyError(f"executor is {self.executor!r}; this version has 'inline' only")

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
        """
        limits = Limits(
            num_trials=self._count(num_trials), max_epochs=self.max_epochs, seconds=time_budget, target=target
        )
        with open_store(self.storage) as store:
            return self._go(Recorder(store, self._create(store, num_trials), self._space), limits, watcher, ())

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
        with open_store(self.storage) as store:
            info = store.study(self.name)
            self._require_same(info)
            total = self._count(num_trials or info.settings.get("num_trials"))
            limits = Limits(num_trials=total, max_epochs=self.max_epochs, seconds=time_budget, target=target)
            recorder = Recorder(store, info, self._space)
            return self._go(recorder, limits, watcher, recorder.trials())

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
        ):
            if mine != recorded:
                raise StudyError(
                    f"study {info.name!r} was recorded with {name} {recorded!r}, but this one has {mine!r}; "
                    "resume it with the same settings, or run a new study"
                )

    def _go(self, recorder: Recorder, limits: Limits, watcher: Watcher | None, known: Sequence[TrialRecord]) -> Result:
        from headwater.train.memory import keep_freed_memory
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
        workshop = Workshop(self.train, choose_device(self.device))
        tools = Tools(
            searcher=searcher if self.num_seeds == 1 else Replicated(searcher, self.num_seeds, known),
            recorder=recorder,
            workshop=workshop,
            sorter=Sorter(workshop, self.lanes if isinstance(self.lanes, int) else None, tell, recorder.add_profile),
            shelf=Shelf(_states_folder(self.storage, recorder.info.name), self.save_every),
            executor=InlineExecutor() if isinstance(self.executor, str) else self.executor,
            watcher=watcher,
            callbacks=self.callbacks,
        )
        loop = Loop(tools, limits, known)
        with _stopping_at_interrupt(loop):
            loop.run()
        result = loop.result(str(self.storage or "memory"))
        for callback in self.callbacks:
            callback.on_result(result)
        return result

    @property
    def _search_name(self) -> str:
        """What the record calls the way of searching: its name, or the kind of object that it is."""
        return self.search if isinstance(self.search, str) else type(self.search).__name__

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
            },
        )
        store.create_study(info)
        return store.study(name)


def _free_name(base: str, store: Store) -> str:
    taken = {info.name for info in store.studies()}
    return next(name for number in range(1, len(taken) + 2) if (name := f"{base}-{number}") not in taken)


def _states_folder(storage: str | Path | None, study: str) -> Path | None:
    """Return where the states of a study's trials lie: beside the record, or nowhere if that is in memory."""
    if storage in (None, "memory:", "sqlite://"):
        return None
    text = str(storage).removeprefix("sqlite:///")
    base = Path("headwater.states") if "://" in text else Path(f"{text}.states")
    return base / "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in study)


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
