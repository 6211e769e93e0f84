"""The service's end of a steward: starts it, hears it, tells it what is wished."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.isolation import Limits, choose_identity, kill_session, make_environment
from headwater.serve.service.run_options import write_arguments
from headwater.serve.service.steward import Setup
from headwater.serve.service.values import Json, Submission

LONGEST_LINE = 2**20
"""A steward that says more at once is not ours any more."""
PARTING_S = 5.0


class StudyRunner:
    """A study that runs, or is about to."""

    def __init__(self, submission: Submission, folder: StudyFolder, num_devices: int) -> None:
        self.id = submission.id
        self.user = submission.user
        self.folder = folder
        self.num_told = num_devices
        """How many devices it was told to have."""
        self.num_held = num_devices
        """How many it has: what it was told to give up counts until it has left."""
        self.pid: int | None = None
        self.progress: Json = {}
        self.has_progressed = False
        """Whether any epoch was reported since it was started."""
        self.was_told_to_stop = False
        self._submission = submission
        self._process: Process | None = None
        self._is_to_die = False
        self._num_epochs = submission.progress.get("num_epochs", 0)

    async def run(self, limits: Limits, note: Callable[[StudyRunner], None], *, may_start: bool) -> int | None:
        """Start the study, or find it where it runs still; `note` is called whenever something is new of it.

        Returns:
            The status with which its runner has ended; None where nobody knows.
        """
        with self.folder.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "headwater.serve.service.steward"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd="/",
                env=make_environment(self.folder),
                limit=LONGEST_LINE,
                start_new_session=True,
                **choose_identity(self.folder),
            )
        self._send(asdict(self._set_up(limits, may_start=may_start)))
        try:
            return await self._listen(process, note)
        finally:
            await _part_from(process)

    def tell_devices(self, count: int) -> None:
        """Have it train on so many devices from its next report on."""
        if count != self.num_told:
            self.num_told = count
            self._send({"devices": count})

    def tell_stop(self) -> None:
        """Have it end after its next report."""
        if not self.was_told_to_stop and self._process is not None:
            self.was_told_to_stop = True
            self._send({"stop": True})

    def kill(self) -> None:
        """End it at once, or as soon as it is there; what was saved is all that is left."""
        self._is_to_die = True
        if self.pid is not None:
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
            num_devices=self.num_told,
            limits=limits.as_system(),
            may_start=may_start,
        )

    async def _listen(self, process: Process, note: Callable[[StudyRunner], None]) -> int | None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                message = json.loads(line) if line else None
            except ValueError:  # no JSON, or more than a line may have
                return None
            if not isinstance(message, dict):
                return None
            if "ended" in message:
                return message["ended"] if isinstance(message["ended"], int) else None
            self._take(message)
            note(self)

    def _take(self, message: dict[str, Any]) -> None:  # Any: JSON values
        """Take in what a steward says, as far as it makes sense: it runs beside code that is not ours."""
        pid, progress = message.get("pid"), message.get("progress")
        if isinstance(pid, int) and pid > 1:
            self.pid = pid
            if self._is_to_die:
                self.kill()
        if not isinstance(progress, dict):
            return
        self.progress = progress
        held, num_epochs = progress.get("num_held"), progress.get("num_epochs")
        if isinstance(held, int) and 0 <= held <= 10_000:
            self.num_held = held
        if isinstance(num_epochs, int) and num_epochs > self._num_epochs:
            self.has_progressed = True

    def _send(self, message: Json) -> None:
        """Say something; that nobody hears it is noticed by whoever listens."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            with suppress(ConnectionError):
                self._process.stdin.write(json.dumps(message).encode() + b"\n")


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
