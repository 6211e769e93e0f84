"""What the service answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headwater.errors import ServiceError
from headwater.serve.connections import CLIENT
from headwater.serve.service.answers import (
    HEADERS,
    LONGEST_WAIT_S,
    answer,
    find_bearer,
    read_body,
    read_query,
    refusing,
)
from headwater.serve.service.coordinator import Coordinator
from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.rates import RequestRates
from headwater.serve.service.reading import StudyReader
from headwater.serve.service.requests import parse_json, read_priority, read_submission
from headwater.serve.service.values import ENDED, Event, Role, State, Submission, User, Wish

QUIET_S = 15.0
"""After so long without news a line is sent, so that nobody takes the connection for dead."""
LOOK_S = 0.3
"""So often is a log looked at while somebody waits for more of it."""
LOG_BYTES = 256 * 1024
SMALL_BODY = 4096
LONGEST_KEY = 200


class Api:
    """Answers requests of users about studies."""

    def __init__(self, coordinator: Coordinator, most_bytes: int, longest_s: float) -> None:
        self._coordinator = coordinator
        self._store = coordinator.store
        self._call = coordinator.call
        self._reader = StudyReader()
        self._rates = RequestRates()
        self._most_bytes = most_bytes
        self._longest_s = longest_s

    async def submit(self, request: Request) -> Response:
        """Take in a study; the same Idempotency-Key gives the same study."""
        user = await self._identify(request)
        if user.role is Role.VIEWER:
            raise ServiceError(f"user {user.name} is a viewer, who looks at studies and submits none", 403)
        with self._rates.uploading(user.name):
            content = await read_body(request, self._most_bytes)
        with refusing(400):
            value = parse_json(content)
        with refusing(422):
            asked = await self._call(read_submission, value, user, time.time(), self._longest_s)
        key = request.headers.get("idempotency-key", asked.submission.id)
        if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            raise ServiceError(f"Idempotency-Key is {key!r:.40}; it has 1 to {LONGEST_KEY} printable characters", 422)
        kept = await self._coordinator.submit(asked, user, key)
        return answer(kept.as_json(), 201 if kept.id == asked.submission.id else 200)

    async def list_studies(self, request: Request) -> Response:
        """All studies that the user may see, the oldest first, and who that is."""
        user = await self._identify(request)
        found = await self._call(self._store.list_submissions, _limit_to(user))
        who = {"name": user.name, "role": user.role.value}
        return answer({"studies": [one.as_json() for one in found], "user": who})

    async def show(self, request: Request) -> Response:
        """One study; with `wait` and `version`, when it has changed since that version."""
        submission, _ = await self._find(request)
        wait_s, version = read_query(request, "wait", LONGEST_WAIT_S), read_query(request, "version", float("inf"), -1)
        until = time.monotonic() + wait_s
        with self._rates.waiting(request.state.user.name):
            while True:
                came = self._coordinator.changes.next()
                found = await self._call(self._store.find, submission.id)
                if found is None:
                    raise _unknown(submission.id)
                left_s = until - time.monotonic()
                if found.version > version or left_s <= 0:
                    return answer(found.as_json())
                with suppress(TimeoutError):
                    await asyncio.wait_for(came.wait(), left_s)

    async def logs(self, request: Request) -> Response:
        """What a study has printed from `offset` on; with `wait`, when there is more, or it has ended."""
        submission, folder = await self._find(request)
        offset = int(read_query(request, "offset", float("inf")))
        until = time.monotonic() + read_query(request, "wait", LONGEST_WAIT_S)
        with self._rates.waiting(request.state.user.name):
            while True:
                found = await self._call(self._store.find, submission.id)
                is_over = found is None or found.state in (*ENDED, State.PAUSED)
                content, end = await self._call(folder.read_log, offset, LOG_BYTES)
                if content or is_over or time.monotonic() >= until:
                    text = content.decode("utf-8", "replace")
                    return answer({"text": text, "offset": end, "is_over": is_over and len(content) < LOG_BYTES})
                await asyncio.sleep(LOOK_S)

    async def trials(self, request: Request) -> Response:
        """All trials of a study."""
        submission, folder = await self._find(request)
        content = await self._reader.read_trials(submission.id, folder)
        return Response(content, media_type="application/json", headers=HEADERS)

    async def page(self, request: Request) -> Response:
        """All that the page of a study shows; with `importance=1`, how much each hyperparameter matters too."""
        submission, folder = await self._find(request)
        with_importance = read_query(request, "importance", 1) == 1
        content = await self._reader.read_page(submission.id, folder, with_importance=with_importance)
        return Response(content, media_type="application/json", headers=HEADERS)

    async def archive(self, request: Request) -> Response:
        """A copy of a study's record and, with `weights=1`, the best weights, as a tar file."""
        submission, folder = await self._find(request)
        with_weights = read_query(request, "weights", 1) == 1
        file = await self._reader.read_archive(submission.id, folder, with_weights=with_weights)
        return StreamingResponse(_read_whole(file), media_type="application/x-tar", headers=HEADERS)

    async def events(self, request: Request) -> Response:
        """What happens from now on, or after Last-Event-ID, as server-sent events; of one study where one is named."""
        if "id" in request.path_params:
            submission, _ = await self._find(request)
            only, whose = submission.id, None
        else:
            only, whose = None, _limit_to(await self._identify(request))
        given = request.headers.get("last-event-id", "")
        is_known = given.isascii() and given.isdecimal() and len(given) <= 18
        since = int(given) if is_known else 0 if only is not None else await self._call(self._store.last_event)
        with self._rates.waiting(request.state.user.name):  # there is room now; the stream counts while it goes
            stream = self._count_stream(request.state.user.name, self._follow(since, whose, only))
        return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    async def stop(self, request: Request) -> Response:
        """End a study after its next report, or at once with `{"now": true}`."""
        submission, _ = await self._find(request, to_change=True)
        now = (await self._read_small(request)).get("now", False)
        if not isinstance(now, bool):
            raise ServiceError(f"now is {now!r:.40}; it must be true or false", 422)
        reason = f"{request.state.user.name} has stopped it"
        done = await self._coordinator.end(submission.id, Wish.STOP, reason, at_once=now)
        return answer(done.as_json())

    async def pause(self, request: Request) -> Response:
        """Have a study wait after its next report until it is resumed."""
        submission, _ = await self._find(request, to_change=True)
        reason = f"{request.state.user.name} has paused it"
        return answer((await self._coordinator.end(submission.id, Wish.PAUSE, reason)).as_json())

    async def resume(self, request: Request) -> Response:
        """Let a study go on."""
        submission, _ = await self._find(request, to_change=True)
        return answer((await self._coordinator.resume(submission.id)).as_json())

    async def priority(self, request: Request) -> Response:
        """Put a study before or behind others of its user."""
        submission, _ = await self._find(request, to_change=True)
        value = await self._read_small(request)
        with refusing(422):
            priority = read_priority(value.get("priority"))
        return answer((await self._coordinator.set_priority(submission.id, priority)).as_json())

    async def remove(self, request: Request) -> Response:
        """Forget a study that has ended, with its files."""
        submission, folder = await self._find(request, to_change=True)
        await self._coordinator.remove(submission.id, folder)
        return answer({"removed": submission.id})

    async def devices(self, request: Request) -> Response:
        """The devices there are, and which study of the user's has which."""
        user = await self._identify(request)
        shares = self._coordinator.list_shares()
        seen = {one.id for one in await self._call(self._store.list_submissions, _limit_to(user))}
        shown = {study: names for study, names in shares.items() if study in seen}
        num_taken = sum(len(names) for names in shares.values())
        return answer(
            {"devices": [device.name for device in self._coordinator.devices], "studies": shown, "num_taken": num_taken}
        )

    async def _read_small(self, request: Request) -> dict[str, object]:
        content = await read_body(request, SMALL_BODY)
        with refusing(400):
            return parse_json(content) if content else {}

    async def _identify(self, request: Request) -> User:
        """Return who asks, which the request knows from now on too."""
        token = find_bearer(request)
        user = None if token is None else await self._call(self._store.find_user, token)
        if user is None:
            raise ServiceError(
                "this service wants a token that it knows: send `Authorization: Bearer TOKEN`; "
                "`headwater token create USER` makes one",
                401,
            )
        self._rates.count(user.name)
        request.state.user = user
        setattr(request.state, CLIENT, user.name)
        return user

    async def _find(self, request: Request, *, to_change: bool = False) -> tuple[Submission, StudyFolder]:
        """Return the study that a request names, if the user may see it; to all others there is none."""
        user = await self._identify(request)
        name = request.path_params["id"]
        found = await self._call(self._store.find, name)
        if found is None or (user.role is Role.USER and found.user != user.name):
            raise _unknown(name)
        if to_change and user.role is Role.VIEWER:
            raise ServiceError(f"user {user.name} is a viewer, who changes nothing", 403)
        return found, self._coordinator.folder.find(found.id, found.place)

    async def _count_stream(self, user: str, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Pass a stream on; where others came first meanwhile, it ends at once, and is asked for again."""
        with suppress(ServiceError), self._rates.waiting(user):
            async for part in stream:
                yield part

    async def _follow(self, since: int, user: str | None, submission: str | None) -> AsyncGenerator[bytes, None]:
        yield b"retry: 1000\n\n"
        while True:
            came = self._coordinator.changes.next()
            events = await self._call(self._store.events_after, since, user=user, submission=submission)
            for event in events:
                since = event.sequence
                yield _write_event(event)
            if not events:
                try:
                    await asyncio.wait_for(came.wait(), QUIET_S)
                except TimeoutError:
                    yield b": still here\n\n"


def _limit_to(user: User) -> str | None:
    """Return whose studies a user sees; None for everybody's."""
    return user.name if user.role is Role.USER else None


def _unknown(name: str) -> ServiceError:
    return ServiceError(f"there is no study {name!r:.60}; `headwater queue` lists those there are", 404)


def _write_event(event: Event) -> bytes:
    return f"id: {event.sequence}\nevent: {event.kind}\ndata: {json.dumps(event.data)}\n\n".encode()


def _read_whole(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(2**20):
            yield chunk
