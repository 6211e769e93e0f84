"""Every exception Headwater raises, so that a caller can catch as much or as little as it wants.

HeadwaterError
├── SpaceError             a search space or a domain in it is malformed
├── StudyError             a study was asked for something it cannot do
│   └── AllTrialsFailedError  every trial of a study failed; the error carries the result
├── PlanError              a plan was asked for that makes no sense, or that no cluster can keep to
├── StoreError             the record cannot be read or written
│   └── NameTakenError     the record has a study of this name already
├── ServiceError           the service refuses a request, or does not answer
├── TrialError             the training function used `trial` in a way that cannot work
├── RanksLostError         the processes that train a trial together have come apart
├── CannotFuseError        these lanes cannot run as one; they run apart, and the record says why
├── CannotDivideError      a model's rows cannot be computed apart; every rank computes all of them
└── CannotScaleError       this model has no surrogate, or its settings do not carry over to another size

LanesPart (BaseException)  the code asked for one value where lanes differ; never seen by users
WidthsWanted (BaseException) a model must be seen at work before it can be resized; never seen by users
LanesLeave (BaseException) every lane has left its group; ends the training function; never seen by users
UnitLeaves (BaseException) a unit is taken out of its pack where it waits; never seen by users
CannotPack (BaseException) this function must not take turns with others; it runs alone; never seen by users
MeasuringEnds (BaseException) this function is only measured and must leave nothing behind; never seen by users
LineLost (BaseException)   the process at the other end is gone; never seen by users
RunFault (BaseException)   the study failed under a training function, not the trial; users see its cause
StudyEnds (BaseException)  a limit is reached or someone asked to stop; ends the run with everything saved
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from headwater.trials import Result


class HeadwaterError(Exception):
    """The root: anything that Headwater itself has to say."""


class SpaceError(HeadwaterError, ValueError):
    """A search space, or one domain in it, is malformed."""


class StudyError(HeadwaterError, ValueError):
    """A study was asked for something it cannot do."""


class AllTrialsFailedError(StudyError):
    """Every trial of a study failed. The record keeps all of them, and `Study.retry` trains them again."""

    def __init__(self, message: str, *results: Result) -> None:
        super().__init__(message)
        self.results = results
        """The results of all studies that ran together; of a study that ran alone, its own."""

    @property
    def result(self) -> Result:
        """The result of the study, with every trial and its traceback."""
        return next(result for result in self.results if result.has_only_failures)


class PlanError(HeadwaterError, ValueError):
    """A plan was asked for that makes no sense, or that no cluster can keep to."""


class StoreError(HeadwaterError):
    """The record cannot be read or written."""


class NameTakenError(StoreError):
    """The record has a study of this name already."""


class ServiceError(HeadwaterError):
    """The service refuses a request, or does not answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """Of the answer by HTTP; 0 where there was none."""


class TrialError(HeadwaterError):
    """The training function used `trial` in a way that cannot work."""


class RanksLostError(HeadwaterError):
    """The processes that train a trial together have come apart."""


class CannotFuseError(HeadwaterError):
    """These lanes cannot run as one.

    The listeners hear of it where it is raised, because the user's code may catch it.
    """

    listeners: ClassVar[list[Callable[[str], None]]] = []

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        for listener in self.listeners:
            listener(reason)


class CannotDivideError(HeadwaterError):
    """A model's rows cannot be computed apart."""


class CannotScaleError(HeadwaterError):
    """This model has no surrogate, or its settings do not carry over to another size."""


class LanesPart(BaseException):
    """The code asked for one Python value of something that differs between lanes."""


class WidthsWanted(BaseException):
    """It is not known yet how the widths of a model hang together; or, raised by its first call, now it can be."""


class LanesLeave(BaseException):
    """No lane is left in the group, so its training function ends here."""


class UnitLeaves(BaseException):
    """This run of the training function is not to go on: its pack has ended, or let it go."""


class MeasuringEnds(BaseException):
    """The function that is only measured would leave a file, a process or a connection behind, so it ends here."""


class CannotPack(BaseException):
    """This run of the training function must not take turns with others."""


class LineLost(BaseException):
    """The process at the other end of a line is gone."""


class RunFault(BaseException):
    """What the study does at a report or a step went wrong: no doing of the trial, whose function ends here."""


class StudyEnds(BaseException):
    """The run is to end here; what is under way stays resumable."""
