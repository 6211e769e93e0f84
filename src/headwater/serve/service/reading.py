"""What is read of a study on demand, by a process of its own system user: the service opens no record of a user's."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from secrets import token_hex
from typing import BinaryIO

from headwater.errors import StudyError
from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.isolation import choose_identity, make_environment

PATIENCE_S = 120.0
MOST_BYTES = 64 * 2**20
"""Of the table of all trials."""
MOST_AT_ONCE = 4


class StudyReader:
    """Has studies read, a few at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def read_trials(self, study: str, folder: StudyFolder) -> bytes:
        """Return all trials of a study, as `headwater export --format json` writes them.

        Raises:
            StudyError: There is nothing to read yet, or too much.
        """
        return await self._run(folder, "headwater", "export", study, "--format=json", f"--storage={folder.record}")

    async def read_page(self, study: str, folder: StudyFolder, *, with_importance: bool) -> bytes:
        """Return what the page of a study shows, as JSON.

        Raises:
            StudyError: There is nothing to read yet, or too much.
        """
        what = "importance" if with_importance else "study"
        return await self._run(folder, "headwater.serve.service.study_page", study, str(folder.record), what)

    async def read_archive(self, study: str, folder: StudyFolder, *, with_weights: bool) -> BinaryIO:
        """Return a tar file of the record and, if asked, the best weights; no name on the disk is left of it.

        Raises:
            StudyError: There is nothing to read yet.
        """
        path = folder.work / "tmp" / f"archive-{token_hex(8)}.tar"
        what = "weights" if with_weights else "record"
        try:
            await self._run(folder, "headwater.serve.service.archive", study, str(folder.record), what, str(path))
            return folder.open_own(path)
        finally:
            with suppress(OSError):
                path.unlink()

    async def _run(self, folder: StudyFolder, *arguments: str) -> bytes:
        """Return what a module of ours prints, run as the study's user."""
        async with self._turns:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", *arguments),
                    stdin=DEVNULL,
                    stdout=PIPE,
                    stderr=PIPE,
                    cwd="/",
                    env=make_environment(folder),
                    **choose_identity(folder),
                )
            except OSError as error:
                raise StudyError(f"study {folder.path.name} cannot be read: {error.strerror}") from error
            try:
                out, err = await asyncio.wait_for(_collect(process), PATIENCE_S)
            except TimeoutError:
                raise StudyError(f"study {folder.path.name} could not be read within {PATIENCE_S:.0f} s") from None
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            told = err.decode("utf-8", "replace").strip().rpartition("error: ")[2][-500:]
            raise StudyError(f"study {folder.path.name} cannot be read yet: {told or 'it has written too much'}")
        return out


async def _collect(process: Process) -> tuple[bytes, bytes]:
    """Return what a process prints; it ends where that is too much."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = await asyncio.gather(_read(process.stdout, MOST_BYTES), _read(process.stderr, 2**16))
    with suppress(ProcessLookupError):
        if len(out) > MOST_BYTES:
            process.kill()
    await process.wait()
    return out, err


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    content = b""
    while len(content) <= most and (chunk := await stream.read(2**20)):
        content += chunk
    return content
