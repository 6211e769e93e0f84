"""What the dashboard answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headwater.errors import HeadwaterError, StudyError
from headwater.report.page.html import PARTS, dashboard_html
from headwater.report.page.importance import measure_importance
from headwater.report.page.study_page import StudyPage
from headwater.serve.access import Access, AccessCheck
from headwater.serve.live import LiveStudy, encode
from headwater.store import Store, StudyInfo, ask_to_stop, find_asker, find_runner, find_running_stage, open_store

Json: TypeAlias = dict[str, Any]  # Any: JSON values
Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a dashboard shows, and what it may do."""

    storage: str
    shown_storage: str
    """Without a password."""
    may_stop: bool
    asker: str
    """As whom it asks studies to stop."""


def build_app(served: Served, access: Access) -> Starlette:
    """Build the application."""
    dashboard = Dashboard(served)
    routes = [
        Route("/", dashboard.page),
        Route("/static/{name}", dashboard.static),
        Route("/api/studies", _telling_errors(dashboard.studies)),
        Route("/api/study", _telling_errors(dashboard.study)),
        Route("/api/curves", _telling_errors(dashboard.curves)),
        Route("/api/trial", _telling_errors(dashboard.trial)),
        Route("/api/importance", _telling_errors(dashboard.importance)),
        Route("/api/events", _telling_errors(dashboard.events)),
        Route("/api/stop", _telling_errors(dashboard.stop), methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(AccessCheck, access=access)])


class Dashboard:
    """The studies of one record."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._store: Store = open_store(served.storage, create=False)
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="reading")
        self._computing = ThreadPoolExecutor(1, thread_name_prefix="computing")
        self._live: dict[int, LiveStudy] = {}
        self._importances: dict[tuple[int, int], Json] = {}

    async def page(self, request: Request) -> Response:
        """The page, which asks for everything else."""
        return Response(dashboard_html(), media_type="text/html")

    async def static(self, request: Request) -> Response:
        """A part of the page."""
        part = PARTS.get(request.path_params["name"])
        if part is None:
            return PlainTextResponse("there is no such file\n", status_code=404)
        return Response(part.read(), media_type=part.media_type)

    async def studies(self, request: Request) -> Response:
        """All studies of the record, the oldest first."""
        infos = await self._read(self._store.studies)
        heads = []
        for info in infos:
            live = self._find_live(info.id, StudyPage(self._store, info))
            heads.append(await live.read(live.page.summary))
        return _answer({"storage": self._served.shown_storage, "may_stop": self._served.may_stop, "studies": heads})

    async def study(self, request: Request) -> Response:
        """One study, whole; of its metrics, the one that decides."""
        live = await self._find(request)
        return _answer({"may_stop": self._served.may_stop, **await live.read(live.page.whole)})

    async def curves(self, request: Request) -> Response:
        """What all trials of a study reported for one metric."""
        live = await self._find(request)
        metric = request.query_params.get("metric", "")
        return _answer(await live.read(lambda: live.page.curves(metric)))

    async def trial(self, request: Request) -> Response:
        """Everything about one trial."""
        live = await self._find(request)
        text = request.query_params.get("number", "")
        found = await live.read(lambda: live.page.trial(int(text))) if text.isdecimal() and len(text) < 19 else None
        if found is None:
            raise StudyError(f"study {live.page.followed.info.name!r:.60} has no trial {text!r:.20}")
        return _answer(found)

    async def importance(self, request: Request) -> Response:
        """How much each hyperparameter matters, by the trials as they stand; computed once for each standing."""
        live = await self._find(request)
        info = live.page.followed.info
        num_epochs = await live.read(lambda: live.page.followed.best.num_epochs)
        key = (info.id, num_epochs)
        if key not in self._importances:
            loop = asyncio.get_running_loop()
            self._importances[key] = await loop.run_in_executor(
                self._computing, measure_importance, self._served.storage, info.name
            )
        return _answer(self._importances[key])

    async def events(self, request: Request) -> Response:
        """What happens in a study from now on, or after the event that the browser had last."""
        live = await self._find(request)
        given = request.headers.get("last-event-id") or request.query_params.get("since", "")
        since = int(given) if given.isdecimal() and len(given) < 16 else -1
        return StreamingResponse(live.follow(since), media_type="text/event-stream")

    async def stop(self, request: Request) -> Response:
        """Ask a study to stop, as `headwater stop` does."""
        if not self._served.may_stop:
            raise StudyError("this dashboard is for looking only; start it without --read-only to stop studies")
        live = await self._find(request)
        return _answer({"told": await self._read(lambda: self._ask_to_stop(live.page.followed.info.name))})

    def _ask_to_stop(self, name: str) -> str:
        info = find_running_stage(self._store, self._store.study(name))
        runner = find_runner(self._store, info.id)
        if runner is None or not runner.may_live():
            raise StudyError(f"study {info.name!r:.60} is not running, so there is nothing to stop")
        if find_asker(self._store, info.id, runner) is None:
            with open_store(self._served.storage) as writer:
                ask_to_stop(writer, info.id, runner, self._served.asker)
        return f"process {runner.pid} on {runner.host} ends study {info.name} after its next report"

    async def _find(self, request: Request) -> LiveStudy:
        """Return the study that a request names."""
        text = request.query_params.get("id", "")
        study_id = int(text) if text.isdecimal() and len(text) < 19 else -1
        infos: list[StudyInfo] = await self._read(self._store.studies)
        for info in infos:
            if info.id == study_id:
                return self._find_live(info.id, StudyPage(self._store, info))
        raise StudyError(f"the record has no study {text!r:.20}; there are {len(infos)}, which the first page lists")

    def _find_live(self, study_id: int, page: StudyPage) -> LiveStudy:
        return self._live.setdefault(study_id, LiveStudy(page, self._reading))

    async def _read(self, what: Callable[[], Any]) -> Any:  # Any: what it returns
        return await asyncio.get_running_loop().run_in_executor(self._reading, what)


def _telling_errors(answer: Answer) -> Answer:
    """Have what Headwater has to say reach the page, as JSON."""

    async def tell(request: Request) -> Response:
        try:
            return await answer(request)
        except HeadwaterError as error:
            return _answer({"error": str(error)}, status_code=409)

    return tell


def _answer(value: Json, status_code: int = 200) -> Response:
    return Response(encode(value), status_code=status_code, media_type="application/json")
