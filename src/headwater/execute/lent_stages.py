"""The devices that a pipeline lends: the bubbles of its stages, for as long as it trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headwater.errors import LineLost, StudyError
from headwater.execute.counting import limit_to
from headwater.execute.idle_class import check_reach
from headwater.execute.serving import serve, serve_lent
from headwater.execute.worker_process import WorkerProcess
from headwater.stalls import LentStage, find_page, list_lent
from headwater.trials import Device

LENT = "bubble:"
"""How the names of devices begin that are lent."""
LOOK_EVERY_S = 1.0
"""So often is it seen which stages are lent."""


class LentStages:
    """Knows which stages are lent in a folder, by the names of the devices that they are.

    Raises:
        StudyError: The folder is no path.
    """

    def __init__(self, folder: object, kind: str, clock: Callable[[], float] = time.monotonic) -> None:
        if not isinstance(folder, str | Path) or not str(folder):
            raise StudyError(f"bubbles is {folder!r}; it must be the folder that hw.lend_bubbles was given")
        self.folder = Path(folder)
        self._kind = kind
        self._clock = clock
        self._look_s: float | None = None
        self._stages: dict[str, LentStage] = {}

    def look(self) -> None:
        """See which stages are lent now, unless that was seen a moment ago.

        Raises:
            StudyError: One is of another kind of device, or trials there would slow the pipeline.
        """
        now_s = self._clock()
        if self._look_s is not None and now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_EVERY_S
        before, self._stages = self._stages, {}
        for stage in list_lent(self.folder):
            name = f"{LENT}{stage.stage}"
            if name not in before:
                self._check(stage)
            if name not in before or before[name].pid == stage.pid:  # a new host is another device: seen the next time
                self._stages[name] = stage

    @property
    def names(self) -> tuple[str, ...]:
        """The devices there are, as of the last look."""
        return tuple(self._stages)

    def describe(self, name: str) -> Device:
        """Return the device as a conductor sees it."""
        memory_bytes = self._stages[name].memory_bytes
        return Device(name=name, kind=f"{self._kind} bubble", memory_bytes=memory_bytes, is_ephemeral=True)

    def start_process(self, name: str) -> WorkerProcess:
        """Start a process that trains in the bubbles of a stage: by the system's classes, or by a gate on a GPU."""
        stage = self._stages[name]
        if self._kind == "cpu":
            return WorkerProcess(name, serve, host=stage)
        _, _, place = stage.device.partition(":")
        process = WorkerProcess(name, serve_lent, environment=limit_to(self._kind, place or "0"))
        with suppress(LineLost):  # whoever listens to it will see that it is gone
            process.send(find_page(self.folder, stage.stage))
        return process

    def explain_absence(self) -> str:
        """Say that nothing is lent, and what to do."""
        return (
            f"no pipeline lends its bubbles in {self.folder}, and the study has no device of its own; start the "
            f"training with hw.lend_bubbles(schedule, {str(self.folder)!r}), or resume the study with other devices"
        )

    def _check(self, stage: LentStage) -> None:
        if stage.device.partition(":")[0] != self._kind:
            raise StudyError(
                f"stage {stage.stage} of the pipeline in {self.folder} is on {stage.device}, but the study trains on "
                f"{self._kind}; give the executor kind={stage.device.partition(':')[0]!r}"
            )
        if self._kind == "cpu":
            check_reach(stage)
