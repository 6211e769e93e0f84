"""The service's end of a steward: starts it, hears it, tells it what is wished."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.isolation import Limits, choose_identity, kill_session, make_environment
from headwater.serve.service.run_options import write_arguments
from headwater.serve.service.steward import Mate, Setup
from headwater.serve.service.values import Json, Submission
from headwater.trials import Status

LONGEST_LINE = 2**20
"""A steward that says more at once is not ours any more."""
PARTING_S = 5.0
LARGEST_STATUS, LONGEST_NAME = 256, 200
MOST_LANES = 10**6
"""Nobody trains more on one device; who says so is not believed."""


class StudyRunner:
    """A study that runs, or is about to."""

    def __init__(self, submission: Submission, folder: StudyFolder, num_devices: int) -> None:
        self.id, self.user, self.share = submission.id, submission.user, submission.share
        self.folder = folder
        self.crew: list[StudyRunner] = [self]
        """All that are in one process with it. The first has its number of devices, which is the others' too."""
        self.common: StudyFolder | None = None
        """Where all of them train; None where it has a process of its own."""
        self.num_told = num_devices
        """How many devices it was told to have."""
        self.num_held = num_devices
        """How many it has: what it was told to give up counts until it has left."""
        self._most_told = num_devices
        """The largest number that it was told to have: it cannot have more, whatever it says."""
        self.lanes: Mapping[str, int] = {}
        """How many lanes it trains on which device."""
        self.has_started = asyncio.Event()
        """Set when its steward has said which process it is in, or has ended."""
        self.is_to_end_now = False
        """Whether it is to be killed, once nobody is left in its process who is not."""
        self.pid: int | None = None
        self.progress: Json = {}
        self.has_progressed = False
        """Whether any epoch was reported since it was started."""
        self._submission = submission
        self._process: Process | None = None
        self._is_to_die = False
        self._num_epochs = submission.progress.get("num_epochs", 0)
        self._said: int | None = num_devices
        """How many devices its steward sees to."""

    async def run(self, limits: Limits, note: Callable[[StudyRunner], None], *, may_start: bool) -> int | None:
        """Start the study, or find it where it runs still; `note` is called whenever something is new of it.

        Returns:
            The status with which its runner has ended; None where nobody knows.
        """
        with ExitStack() as logs:
            opened = {one.id: logs.enter_context(one.folder.log.open("ab")) for one in self.crew}
            if may_start and self.common is not None:
                setup = self._set_up_crew(limits, self.common, {study: log.fileno() for study, log in opened.items()})
            else:
                setup = self._set_up(limits, may_start=may_start)
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "headwater.serve.service.steward"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=opened[self.id],
                cwd="/",
                env=make_environment(self.common or self.folder),
                limit=LONGEST_LINE,
                start_new_session=True,
                pass_fds=[one["log"] for one in setup.crew],
                **choose_identity(self.folder),
            )
        try:
            if limits.groups is not None:
                limits.groups.add(self.id, process.pid, limits.memory_bytes)  # before it is told to start anything
            self._said = setup.num_devices
            self._send(asdict(setup))
            return await self._listen(process, note)
        finally:
            await _part_from(process)
            if limits.groups is not None:
                limits.groups.remove_empty()

    def tell_devices(self, count: int) -> None:
        """Have all that are in one process with it train on so many devices from their next report on."""
        for one in self.crew:
            one.num_told = count
            one._most_told = max(one._most_told, count)
            one.see_to(count if one is self.crew[0] else None)

    def see_to(self, count: int | None) -> None:
        """Have the steward see to so many devices; None: that of another study does."""
        if count != self._said and self._process is not None:
            self._said = count
            self._send({"devices": count})

    def tell_stop(self) -> None:
        """Ask the study to end after its next report. Safe to repeat: the coordinator does so until it has ended."""
        self._send({"stop": True})

    def end_now(self) -> None:
        """Kill it, if all that are in its process are to be killed: no study ends for the sake of another."""
        self.is_to_end_now = True
        if all(one.is_to_end_now for one in self.crew):
            self.kill()

    def kill(self) -> None:
        """End its process at once, or as soon as it is there; what was saved is all that is left."""
        self._is_to_die = True
        if self.pid is not None:
            kill_session(self.pid, self.folder.uid)

    def end_rest(self) -> None:
        """Kill what is left of a study that is over: its steward may have died before it could stop the study."""
        if self.pid is not None and self.crew == [self]:
            kill_session(self.pid, self.folder.uid)

    def _set_up(self, limits: Limits, *, may_start: bool) -> Setup:
        arguments = [
            "run",
            str(self.folder.source / self._submission.file),
            f"--storage={self.folder.record}",
            f"--name={self.id}",
            "--resume=auto",
            "--executor=auto",
            *write_arguments(self._submission.options),
        ]
        return Setup(
            study=self.id,
            work=str(self.folder.work),
            source=str(self.folder.source),
            arguments=tuple(arguments),
            num_devices=self.num_told if self is self.crew[0] else None,
            limits=limits.as_system(),
            may_start=may_start,
        )

    def _set_up_crew(self, limits: Limits, place: StudyFolder, logs: Mapping[str, int]) -> Setup:
        crew = [
            Mate(study=one.id, work=str(one.folder.work), options=one._submission.options, log=logs[one.id])
            for one in self.crew
        ]
        return Setup(
            study=self.id,
            work=str(self.folder.work),
            source=str(place.source),
            arguments=("run-shared", str(place.source / self._submission.file)),
            num_devices=self.num_told,
            limits=limits.as_system(),
            crew=tuple(asdict(mate) for mate in crew),
        )

    async def _listen(self, process: Process, note: Callable[[StudyRunner], None]) -> int | None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                message = json.loads(line) if line else None
            except (ValueError, RecursionError):  # no JSON, nested without end, or more than a line may have
                return None
            if not isinstance(message, dict):
                return None
            if "ended" in message:
                ended = message["ended"]
                return ended if isinstance(ended, int) and abs(ended) < LARGEST_STATUS else None
            self._take(message)
            note(self)

    def _take(self, message: dict[str, Any]) -> None:  # Any: JSON values
        """Take in what a steward says, as far as it makes sense: it runs beside code that is not ours."""
        pid, progress = message.get("pid"), _read_progress(message.get("progress"))
        if isinstance(pid, int) and pid > 1:
            self.pid = pid
            self.has_started.set()
            if self._is_to_die:
                self.kill()
        if progress is None:
            return
        self.progress, self.lanes = progress, progress["lanes"]
        if progress["num_held"] is not None:
            self.num_held = min(progress["num_held"], self._most_told)
        if progress["num_epochs"] > self._num_epochs:
            self.has_progressed = True

    def _send(self, message: Json) -> None:
        """Send a message to the steward. A dead steward is detected by `_listen`, not here."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            with suppress(ConnectionError):
                self._process.stdin.write(json.dumps(message).encode() + b"\n")


def _read_progress(value: object) -> Json | None:
    """Return what a steward says of its study, if every part is what readers expect, and nothing else of it.

    Other users, too, see the result: an admin's table and page of all studies.
    """
    if not isinstance(value, dict):
        return None
    statuses, best, lanes = value.get("statuses"), value.get("best"), value.get("lanes")
    if not isinstance(statuses, dict) or not isinstance(lanes, dict) or not isinstance(best, dict | None):
        return None
    counts = {status.value: statuses.get(status.value) for status in Status}
    names = {name: value.get(name) for name in ("stage", "metric", "mode")}
    needed = [*counts.values(), value.get("num_epochs"), *([] if best is None else [best.get("number")])]
    possible = [value.get("num_trials"), value.get("num_held")]
    is_sound = (
        all(map(_is_count, needed))
        and all(one is None or _is_count(one) for one in possible)
        and all(isinstance(name, str) or (name is None and key == "stage") for key, name in names.items())
        and (best is None or isinstance(best.get("value"), int | float | None))
    )
    if not is_sound:
        return None
    return {
        **{key: None if name is None else name[:LONGEST_NAME] for key, name in names.items()},
        "num_trials": value.get("num_trials"),
        "statuses": counts,
        "num_epochs": value["num_epochs"],
        "best": None if best is None else {"number": best["number"], "value": best.get("value")},
        "num_held": value.get("num_held"),
        "lanes": {name: count for name, count in lanes.items() if _is_count(count) and count <= MOST_LANES},
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


async def _part_from(process: Process) -> None:
    """Have a steward end, which it does when nobody speaks with it any more; one that does not is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), PARTING_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
