"""Who has which devices, and what becomes of each study: carries out what `deciding` decides."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from headwater.errors import ServiceError, StoreError, StudyError
from headwater.plan.fair_shares import FadingUse, StudyDemand, share_devices
from headwater.plan.fair_shares import User as Sharing
from headwater.serve.service.changes import Changes
from headwater.serve.service.deciding import Step, What, count_wanted, decide_end, decide_limit, decide_steps
from headwater.serve.service.folders import ServiceFolder, StudyFolder
from headwater.serve.service.isolation import Limits
from headwater.serve.service.requests import Asked
from headwater.serve.service.runners import StudyRunner
from headwater.serve.service.running_studies import RunningStudies
from headwater.serve.service.sharing import Party, form_parties
from headwater.serve.service.store import PROGRESS, ServiceStore
from headwater.serve.service.values import ENDED, State, Submission, User, Wish
from headwater.trials import Device

T = TypeVar("T")

TICK_S = 1.0
"""So often are limits looked at, device-seconds counted and progress written down."""
MOST_ACTIVE = 1000
"""So many studies of one user may run or wait."""
TRY_AGAIN_S = 1.0
TURN_S = 120.0
"""So long does a user keep a device that is in turn others': whoever gives up the last one must load anew."""


class Coordinator:
    """The studies of a service and the devices that they share. All changes are made under one lock."""

    def __init__(
        self,
        store: ServiceStore,
        folder: ServiceFolder,
        devices: Sequence[Device],
        limits: Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.folder = folder
        self.devices = tuple(devices)
        self.changes = Changes()
        self._limits = limits
        self._clock = clock
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._runners = RunningStudies(folder, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._trouble = ""
        """The fault of the machine that keeps the service from working now."""
        self._dirty: set[str] = set()
        self._shares: Mapping[str, tuple[str, ...]] = {}
        self._counted_s = clock()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="database")

    async def call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:  # Any: as the function
        """Have something done that may take a while, in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments, **named))

    async def run(self) -> None:
        """Share devices and keep to limits, until this is cancelled; what runs then goes on."""
        is_settled = False
        while True:
            self._wake.clear()
            if self._fault is not None:
                raise self._fault
            try:
                async with self._lock:
                    if not is_settled:
                        known = await self.call(self.store.list_submissions)
                        await self.call(self.folder.settle_all, {submission.id for submission in known})
                        is_settled = True
                    await self._tick()
                self._trouble = ""
            except (StoreError, OSError) as error:  # a locked database, a full disk: both may pass
                self._report_trouble(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TICK_S)

    def _report_trouble(self, error: Exception) -> None:
        """Print why the service pauses, once for each reason. Running studies go on meanwhile."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            sys.stderr.write(f"the service pauses and tries again every {TICK_S:g} s: {error}\n")

    # what is asked of it

    async def submit(self, asked: Asked, user: User, key: str) -> Submission:
        """Take in a study, once for each key."""
        submission = asked.submission
        if submission.share:
            submission = replace(submission, place=await self.call(self.store.place_share, submission.share))
            await self.call(self.folder.make_shared, submission.share, submission.place, asked.files)
        folder = self.folder.draft(submission.id, submission.place)
        try:
            await self.call(folder.create, asked.files)
            async with self._lock:
                await self._require_room(submission)
                kept = await self.call(self.store.add, submission, key, asked.body)
                if kept.id == submission.id:
                    self.folder.settle(kept.id)
        finally:
            await self.call(folder.remove)  # unless it has its name by now
        self._notify()
        return kept

    async def _require_room(self, submission: Submission) -> None:
        waiting = await self.call(self.store.list_submissions, submission.user, (State.QUEUED, State.RUNNING))
        if len(waiting) >= MOST_ACTIVE:
            raise ServiceError(
                f"{len(waiting)} studies of user {submission.user} run or wait, and no more can; submit this one when "
                "some of them have ended",
                429,
            )

    async def end(self, submission: str, wish: Wish, reason: str, *, at_once: bool = False) -> Submission:
        """Pause or stop a study: after its next report where it runs."""
        async with self._lock:
            found = await self._find(submission)
            final = State.PAUSED if wish is Wish.PAUSE else State.STOPPED
            if found.state is final or (found.state is State.STOPPED and final is State.PAUSED):
                return found
            if found.state in (State.DONE, State.FAILED):
                raise StudyError(f"study {found.id} is {found.state.value}, so there is nothing to {wish.value}")
            if submission in self._runners or found.state is State.RUNNING:
                found = await self.call(
                    self.store.change, submission, wish=wish, reason=reason, wished=found.wished or self._clock()
                )
                runner = self._runners.get(submission)
                if at_once and runner is not None:
                    runner.end_now()
            else:
                found = await self.call(self.store.change, submission, state=final, reason=reason, ended=self._clock())
            self._notify()
            return found

    async def resume(self, submission: str) -> Submission:
        """Let a study go on that was paused, stopped or has failed."""
        async with self._lock:
            found = await self._find(submission)
            if found.state is State.DONE:
                raise StudyError(f"study {found.id} is done, so there is nothing to resume")
            if submission in self._runners or found.state is State.RUNNING:
                if found.wish is Wish.NONE:
                    return found
                raise StudyError(
                    f"study {found.id} is about to {found.wish.value}; resume it when it has, after its next report"
                )
            limit = decide_limit(found, self._clock(), None)
            if limit is not None:
                raise StudyError(f"study {found.id} cannot go on: {limit}; submit it anew with another limit")
            found = await self.call(
                self.store.change, submission, state=State.QUEUED, reason="", ended=None, num_deaths=0
            )
            self._notify()
            return found

    async def set_priority(self, submission: str, priority: int) -> Submission:
        """Put a study before or behind others of its user."""
        async with self._lock:
            found = await self.call(self.store.change, submission, priority=priority)
            self._notify()
            return found

    async def remove(self, submission: str, folder: StudyFolder) -> None:
        """Forget a study that has ended, with all its files."""
        async with self._lock:
            found = await self._find(submission)
            if found.state not in (*ENDED, State.PAUSED) or submission in self._runners:
                raise StudyError(f"study {found.id} is {found.state.value}; stop it before it is removed")
            await self.call(self.store.remove, submission)
            await self.call(folder.remove)
            if found.share and found.share not in await self.call(self.store.list_shares):
                await self.call(self.folder.find_shared(found.share, found.place).remove)
            self._notify()

    def list_shares(self) -> dict[str, list[str]]:
        """Return which devices each study has that runs."""
        return {study: list(names) for study, names in self._shares.items() if study in self._runners and names}

    async def _find(self, submission: str) -> Submission:
        found = await self.call(self.store.find, submission)
        if found is None:
            raise StudyError(f"there is no study {submission!r:.60} any more")
        return found

    def _notify(self) -> None:
        self.changes.notify()
        self._wake.set()

    # what it does by itself

    async def _tick(self) -> None:
        await self._spend()
        users = {user.name: user for user in await self.call(self.store.users)}
        await self._write_progress()
        active = await self.call(self.store.list_submissions, None, (State.QUEUED, State.RUNNING))
        used = await self.call(self.store.used_device_s)
        active = [await self._keep_limits(one, users[one.user], used.get(one.user, 0.0)) for one in active]
        for one in active:
            if one.state is State.RUNNING and one.id not in self._runners:  # since before this service was started
                self._start([one], max(one.num_devices, 1))
            elif one.wish is not Wish.NONE and one.id in self._runners:
                self._runners[one.id].tell_stop()
                if self._runners[one.id].is_to_end_now:
                    self._runners[one.id].end_now()  # those who were in its process may be gone by now
        wanting = [one for one in active if one.wish is Wish.NONE and one.state in (State.QUEUED, State.RUNNING)]
        self._shares = self._share(list(users.values()), wanting, used)
        by_id = {one.id: one for one in active}
        parties = self._form_parties(active, users, used)
        counts = {party.members[0]: party.num_devices for party in parties}
        members = {party.members[0]: [by_id[study] for study in party.members] for party in parties}
        num_devices = len(self.devices) - self._runners.count_ending(parties)
        for step in decide_steps(list(map(self._runners.claim, parties)), counts, num_devices):
            await self._take_step(step, members[step.id])

    def _form_parties(
        self, active: Sequence[Submission], users: Mapping[str, User], used: Mapping[str, float]
    ) -> list[Party]:
        """Return who has a process of which size; who is past a limit, or is to end, has none."""
        studies = [
            one
            for one in active
            if one.wish in (Wish.NONE, Wish.YIELD)
            and one.state in (State.QUEUED, State.RUNNING)
            and self._find_limit(one, users[one.user], used.get(one.user, 0.0)) is None
        ]
        shares = {study: len(names) for study, names in self._shares.items()}
        return form_parties(studies, self._runners.find_crews(), shares, self._runners.may_join)

    def _share(
        self, users: Sequence[User], wanting: Sequence[Submission], used: Mapping[str, float]
    ) -> Mapping[str, tuple[str, ...]]:
        """Ask the policy who has which devices. This is the one call of it."""
        sharing = [
            Sharing(
                name=user.name,
                weight=user.weight,
                min_devices=user.min_devices,
                max_devices=user.max_devices,
                use=_read_use(user),
                budget_left_s=_subtract(user.budget_device_s, used.get(user.name, 0.0)),
            )
            for user in users
        ]
        demands = [
            StudyDemand(
                id=one.id,
                user=one.user,
                num_wanted=count_wanted(one, len(self.devices)),
                priority=one.priority,
                devices=self._shares.get(one.id, ()) if one.id in self._runners else (),
                budget_left_s=_subtract(one.budget_device_s, one.device_seconds),
                submitted_s=one.created,
            )
            for one in wanting
        ]
        return share_devices(sharing, demands, self.devices, self._clock(), turn_s=TURN_S)

    async def _take_step(self, step: Step, members: Sequence[Submission]) -> None:
        if step.what is What.START:
            self._start(members, step.num_devices)
            return
        for one in members:
            if step.what is What.GIVE:
                self._runners[one.id].tell_devices(step.num_devices)
                await self.call(self.store.change, one.id, num_devices=step.num_devices)
            else:
                reason = "gives its devices to others after its next report"
                await self.call(self.store.change, one.id, wish=Wish.YIELD, wished=self._clock(), reason=reason)
                self._runners[one.id].tell_stop()
        self.changes.notify()

    async def _keep_limits(self, one: Submission, user: User, used_s: float) -> Submission:
        """End a study that is past its deadline or budget."""
        limit = self._find_limit(one, user, used_s)
        runner = self._runners.get(one.id)
        if limit is None:
            return one
        if runner is None and one.state is not State.RUNNING:
            if user.budget_device_s is not None and user.budget_device_s <= used_s:
                return one  # it waits until its user has a budget again
            return await self.call(self.store.change, one.id, state=State.STOPPED, reason=limit, ended=self._clock())
        if one.wish is not Wish.STOP:
            self.changes.notify()
            return await self.call(self.store.change, one.id, wish=Wish.STOP, wished=self._clock(), reason=limit)
        if runner is not None and one.wished is not None and self._clock() - one.wished > self._limits.grace_s:
            runner.end_now()
        return one

    def _find_limit(self, one: Submission, user: User, used_s: float) -> str | None:
        left_s = None if user.budget_device_s is None else user.budget_device_s - used_s
        return decide_limit(one, self._clock(), left_s)

    def _start(self, submissions: Sequence[Submission], num_devices: int) -> None:
        """Start studies in one process, or find a single one where it runs still."""
        crew = self._runners.add(submissions, num_devices)
        for runner, submission in zip(crew, submissions, strict=True):
            may_start = submission.wish is Wish.NONE and runner is crew[0]
            task = asyncio.create_task(self._accompany(runner, crew[0], may_start=may_start))
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Let go of a study that has ended; what went wrong with it that cannot go wrong ends the service."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fault = task.exception()
            self._wake.set()

    async def _accompany(self, runner: StudyRunner, lead: StudyRunner, *, may_start: bool) -> None:
        """Run a study to its end, and write down what came of it, however long the database is away."""
        if runner is not lead:
            await lead.has_started.wait()
        try:
            status = await runner.run(self._limits, self._hear, may_start=may_start)
        except OSError as error:
            await self.call(_add_line, runner.folder, f"the service cannot start a process: {error}")
            status = None
        finally:
            runner.has_started.set()  # whoever waits for it is not to wait any more
        while True:
            with suppress(StoreError):
                async with self._lock:
                    await self._conclude(runner, status)
                    self._runners.remove(runner)
                break
            await asyncio.sleep(TRY_AGAIN_S)
        self._notify()

    async def _conclude(self, runner: StudyRunner, status: int | None) -> None:
        await self._spend()
        if runner.progress:
            await self.call(self.store.change, runner.id, kind=PROGRESS, progress=runner.progress)
        found = await self._find(runner.id)
        if status is not None or found.wish is not Wish.NONE:
            await self.call(runner.end_rest)
        tail = await self.call(runner.folder.read_tail)
        changes = decide_end(found, status, tail, has_progressed=runner.has_progressed)
        ended = self._clock() if changes["state"] in (*ENDED, State.PAUSED) else None
        await self.call(self.store.change, runner.id, ended=ended, **changes)

    def _hear(self, runner: StudyRunner) -> None:
        """Take in that a steward has said something."""
        is_first = runner.pid is not None and runner.id not in self._dirty and not runner.progress
        if is_first:
            self._runners.unite(runner)
        self._dirty.add(runner.id)
        if is_first or runner.num_held != runner.num_told:
            self._wake.set()

    async def _write_progress(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for study in dirty:
            runner = self._runners.get(study)
            if runner is None:
                continue
            found = await self._find(study)
            if found.state is not State.RUNNING and runner.pid is not None:
                changes = {"state": State.RUNNING, "num_devices": runner.num_told}
                reason = "" if found.wish is Wish.NONE else found.reason
                started = found.started or self._clock()
                await self.call(self.store.change, study, started=started, reason=reason, **changes)
            if runner.progress and runner.progress != found.progress:
                await self.call(self.store.change, study, kind=PROGRESS, progress=runner.progress)
            self.changes.notify()

    async def _spend(self) -> None:
        now_s = self._clock()
        counts = self._runners.count_devices()
        if counts:
            held: dict[str, float] = defaultdict(float)
            for runner, count in counts.items():
                held[runner.user] += count
            users = [user for user in await self.call(self.store.users) if user.name in held]
            uses = {user.name: _read_use(user).add(0, self._counted_s).add(held[user.name], now_s) for user in users}
            kept = {name: (use.device_s, use.at_s) for name, use in uses.items()}
            seconds = {runner.id: count * (now_s - self._counted_s) for runner, count in counts.items()}
            await self.call(self.store.spend, seconds, kept)
        self._counted_s = now_s


def _read_use(user: User) -> FadingUse:
    return FadingUse(device_s=user.use_device_s, at_s=user.use_at)


def _subtract(budget: float | None, used: float) -> float | None:
    return None if budget is None else budget - used


def _add_line(folder: StudyFolder, line: str) -> None:
    with folder.log.open("a") as file:
        file.write(line + "\n")
