"""The hidden verb `run-shared`: what a service starts where studies of several users train as lanes of one group."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from headwater.cli.recorded_settings import override
from headwater.cli.running import count_trials, explain_failure, load, print_result, set_running
from headwater.cli.terminal import FAILED, INTERRUPTED, MISUSED, PIPE_WIDTH, telling_errors
from headwater.report.consoles import PlainConsole
from headwater.report.progress import PlainLog
from headwater.serve.service.deciding import DONE, RUNS_ALONE

if TYPE_CHECKING:
    from headwater.errors import HeadwaterError
    from headwater.loading import Loaded
    from headwater.study import Study
    from headwater.together import Member
    from headwater.trials import Result

TURN_S = 10.0
"""So long does a group keep its device while a study of the same process has none."""


@dataclass(slots=True)
class Post:
    """One of the studies: where its record and its log are, and whom its end is told."""

    study: str
    record: str
    options: Mapping[str, Any]  # Any: JSON values
    status: str
    """The file that says how it has ended."""
    lock: int
    """Open for as long as it runs."""
    log: int

    @property
    def console(self) -> PlainConsole:
        """What is printed here stands in its own log, and in no other."""
        return PlainConsole(file=open(self.log, "w", closefd=False, buffering=1), width=PIPE_WIDTH, highlight=False)

    def end(self, status: int) -> None:
        """Say how it has ended, and let go of it."""
        Path(self.status).write_text(str(status))
        os.close(self.lock)

    def end_with(self, result: Result) -> None:
        """Print what came of it as `headwater run` does, and end it."""
        print_result(result, self.console)
        if not result.was_interrupted and not result.ranked:
            self.console.print(explain_failure(result), soft_wrap=True)
        self.end(INTERRUPTED if result.was_interrupted else DONE if result.ranked else FAILED)

    def refuse(self, error: HeadwaterError | str, status: int = MISUSED) -> None:
        """Say why it cannot run, and end it."""
        self.console.print(Text(f"error: {error}"), soft_wrap=True)
        self.end(status)


def run_shared(
    file: Annotated[Path, typer.Argument()],
    posts: Annotated[str, typer.Argument()],
    devices: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Run studies that FILE defines, of several users, as lanes of common groups."""
    from headwater.errors import HeadwaterError
    from headwater.together import run_members

    with telling_errors():
        given = [Post(**one) for one in json.loads(posts)]
        loaded = load(file, given[0].options.get("study"))
        members = []
        for post in given:
            try:
                member = _make_member(post, loaded, file, devices)
            except HeadwaterError as error:
                post.refuse(error)
                continue
            why_not = _find_hindrance(member.study)
            if why_not:
                post.refuse(f"{why_not}, so this study runs by itself", RUNS_ALONE)
            else:
                members.append(member)
        if members:
            run_members(members, may_resume=True, turn_s=TURN_S)


def _make_member(post: Post, loaded: Loaded, file: Path, devices: int) -> Member:
    from headwater.conduct.limits import read_limits
    from headwater.together import Member

    options = post.options
    settings = {name: options.get(name) for name in ("seed", "search", "order", "max_epochs", "surrogate")}
    lanes, packing, allocation = (options.get(name) for name in ("lanes", "packing", "allocation"))
    study = set_running(loaded.study, None if lanes is None else str(lanes), packing, allocation, "auto", devices)
    study = override(study, {**settings, "storage": post.record, "name": post.study})
    time_budget, asked = options.get("time_budget"), options.get("trials")
    ends_by_time = time_budget is not None and asked is None and loaded.num_trials is None
    num_trials = None if ends_by_time else count_trials(study, asked, loaded, file)
    return Member(
        study=study,
        limits=read_limits(num_trials, time_budget, options.get("target")),
        on_result=post.end_with,
        on_refusal=partial(post.refuse),
        watcher=PlainLog(post.console),
    )


def _find_hindrance(study: Study) -> str:
    """Return why a study cannot train with others; an empty text where it can.

    The file is loaded once for all, so what keeps something for one study must not be in it.
    """
    from headwater.search.protocol import Searcher
    from headwater.search.suggesting import is_sampler

    if study.surrogate is not None:
        return "a study with a surrogate runs in stages"
    if study.callbacks:
        return "callbacks would hear of several studies"
    if is_sampler(study.search) or (isinstance(study.search, Searcher) and not isinstance(study.search, type)):
        return "a searcher that is there already cannot search for several studies"
    return ""
