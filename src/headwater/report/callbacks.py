"""Hooks for a user's own code: what to do when trials start, report and end."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import StudyError
from headwater.store import Store, StudyInfo
from headwater.trials import Lane, Report, Result, Status


class Callback:
    """Override what is wanted. Calls come in the order of events, from the process that runs the study.

    An exception in a callback ends the study: it is the user's own code, and the user should see it.
    """

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """The study is about to run, or to run on after an interruption; `store` holds its record, for reading."""

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """Trials are about to train, or to train on."""

    def on_reports(self, reports: Sequence[Report]) -> None:
        """A group of trials reported an epoch; it is in the record already."""

    def on_end(self, number: int, status: Status) -> None:
        """A trial was completed, stopped or paused, or it failed."""

    def on_result(self, result: Result) -> None:
        """The run is over."""


def check_callbacks(callbacks: object) -> None:
    """Refuse what is no sequence of callbacks.

    Raises:
        StudyError: It is something else.
    """
    hooks = [name for name in vars(Callback) if name.startswith("on_")]
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise StudyError(f"callbacks is {callbacks!r}; it must be a list of headwater.Callback objects")
    for one in callbacks:
        if isinstance(one, type) or not all(hasattr(one, name) for name in hooks):
            raise StudyError(f"callbacks has {one!r}; it must hold objects of classes that extend headwater.Callback")
