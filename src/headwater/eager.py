"""Training the target while the search still goes on, on a core that would be idle.

The processes for it are made before the search begins, while nothing of a group is set up, and wait for their turn.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import StoreError
from headwater.execute import InlineExecutor
from headwater.limits import Limits
from headwater.plan import order_by_merit
from headwater.report import Callback
from headwater.space import Config
from headwater.store import Store, StudyInfo, find_states, has_states, open_store
from headwater.trials import Deadline, Lane, Report, Result, Status

if TYPE_CHECKING:
    from headwater.study import Study

Stage: TypeAlias = "Callable[[Config, str], Study]"
"""Makes the study, of one configuration and under a name, that trains the target."""

MOST_STARTS = 3
"""So often does the target start before the search is over: what better trials replace is wasted."""
LOOK_EVERY_S = 0.1
"""So often is it seen whether the target can be taken over."""


class EagerTarget(Callback):
    """Starts the target with the best trial when half of them are done, in a process of its own.

    Where the search takes all cores, it starts when the search has ended, while the ranking is checked. A better trial
    that completes later replaces it. The answer of a study does not depend on it: if another trial wins in the end, the
    target is trained with that one.
    """

    def __init__(
        self, study: Study, limits: Limits, stage: Stage, *, is_wanted: bool, is_handed_over: bool = False
    ) -> None:
        self._storage = study.storage
        self._is_handed_over = is_handed_over
        self._sign = -1 if study.mode == "max" else 1
        self._metric = study.metric
        self._num_trials = limits.num_trials
        self._has_deadline = limits.deadline.seconds is not None
        self._is_early = study.executor == "inline" or isinstance(study.executor, InlineExecutor)
        is_wanted = is_wanted and limits.num_trials is not None and _has_spare_core(is_inline=self._is_early)
        num_starts = MOST_STARTS if self._is_early else 1
        self._waiting = [_Worker(study, stage, limits.deadline) for _ in range(num_starts)] if is_wanted else []
        self._worker: _Worker | None = None
        self._name = ""
        self._values: dict[int, float] = {}
        self._completed: list[int] = []
        self._ended: set[int] = set()
        self._number: int | None = None
        self._since = 0.0
        self._seconds_wasted = 0.0

    @property
    def is_training(self) -> bool:
        """Whether the target trains at this moment."""
        return self._worker is not None and self._worker.process.is_alive()

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """Note the name."""
        self._name = info.name

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """See whether it is time."""
        self._consider()

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Note values."""
        self._consider()
        self._values |= {report.number: report.metrics.get(self._metric, math.nan) for report in reports}

    def on_end(self, number: int, status: Status) -> None:
        """Note which trials are done, if only for now; all that end together are noted before one is chosen."""
        self._ended.add(number)
        if status is Status.COMPLETED and math.isfinite(self._values.get(number, math.nan)):
            self._completed.append(number)

    def on_result(self, result: Result) -> None:
        """Start with the best of all trials, unless it has started with that.

        When time is short nothing will train beside the target, and it is better off in the study's own process.
        """
        is_short = self._has_deadline and result.ended_early is not None
        if result.ranked and not result.was_interrupted and not is_short:
            self._start(order_by_merit(result.ranked)[0].number)

    def conclude(self, number: int) -> str:
        """Wait for the target if it trains with this trial's configuration, else end it; say what was wasted.

        Where it is to be handed over, it ends after its next report, and whoever trains the target goes on from there.
        """
        if self._worker is None:
            self.give_up()
            return ""
        if self._number == number:
            self._await(self._worker.process)
            spared = f"the target had started with trial {number} before it was settled"
        else:
            self._end(self._worker)
            spared = "the target had started with a trial that was beaten"
        self.give_up()
        wasted = f"; {self._seconds_wasted:.1f} s went into what was replaced" if self._seconds_wasted else ""
        return f"eager transfer: {spared}{wasted}"

    def give_up(self) -> None:
        """End every process that is left."""
        for worker in [*self._waiting, *([self._worker] if self._worker else [])]:
            worker.process.kill()
            worker.process.join()
        self._waiting, self._worker = [], None

    def _await(self, process: BaseProcess) -> None:
        """Wait until it has ended; to be handed over, it is asked to as soon as there is a state to go on from."""
        is_asked = not self._is_handed_over
        while process.is_alive():
            if not is_asked and self._has_state() and process.pid is not None:
                os.kill(process.pid, signal.SIGINT)  # as Ctrl-C would; before it trains, it would not hear that
                is_asked = True
            process.join(None if is_asked else LOOK_EVERY_S)

    def _has_state(self) -> bool:
        """Tell whether there is a state of the target that another process could go on from."""
        try:
            with open_store(self._storage, create=False) as store:
                return has_states(find_states(store, store.study(f"{self._name}.target-{self._number}")))
        except StoreError:  # it has not begun yet
            return False

    def _consider(self) -> None:
        """Start the target if it is time, or start it again if there is a better trial now."""
        if self._is_early and self._completed and self._num_trials and self._num_trials / 2 <= len(self._ended):
            self._start(min(self._completed, key=lambda number: (self._sign * self._values[number], number)))

    def _start(self, number: int) -> None:
        """Start with this trial, unless it has."""
        if not self._waiting or number == self._number:
            return
        if self._worker is not None:
            self._end(self._worker)
        self._worker, self._number, self._since = self._waiting.pop(), number, time.perf_counter()
        self._worker.start(self._name, number)

    def _end(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        self._seconds_wasted += time.perf_counter() - self._since


class _Worker:
    """A process that waits to be told the trial whose configuration the target is to be trained with."""

    def __init__(self, study: Study, stage: Stage, deadline: Deadline) -> None:
        context = multiprocessing.get_context("fork")
        ours, self._theirs = context.Pipe()
        self._ours = ours
        self.process = context.Process(target=self._work, args=(study, stage, os.getpid(), deadline), daemon=True)
        self.process.start()
        self._theirs.close()

    def start(self, name: str, number: int) -> None:
        """Let the process begin."""
        self._ours.send_bytes(json.dumps([name, number]).encode())

    def _work(self, study: Study, stage: Stage, parent: int, deadline: Deadline) -> None:
        from headwater.train.machine import use_one_thread

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        use_one_thread()
        self._ours.close()
        try:
            name, number = json.loads(self._theirs.recv_bytes())
        except EOFError:  # whoever made this process is gone
            return
        target = stage(study.read_config(name, number), f"{name}.target-{number}")
        target = replace(target, callbacks=[_EndWithParent(parent)], executor="inline", part_of=name)
        target.run_stage(Limits(num_trials=1, deadline=deadline), is_new=not target.is_recorded())


class _EndWithParent(Callback):
    """Ends the process if the one that started it is gone."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Look whether the parent lives."""
        if os.getppid() != self._parent:
            os._exit(1)


def _has_spare_core(*, is_inline: bool) -> bool:
    from headwater.execute import count_cores
    from headwater.train.machine import count_threads

    return count_cores() > 1 and (count_threads() == 1 or not is_inline)
