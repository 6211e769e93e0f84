"""What the service knows of users and of the studies that they submit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # Any: JSON values

MOST_DEATHS = 3
"""A study whose runner dies so often without any progress has failed."""


class Role(StrEnum):
    """What a user may do."""

    ADMIN = "admin"
    """Everything, to everybody's studies."""
    USER = "user"
    """Submit studies, and see and change these alone."""
    VIEWER = "viewer"
    """See everybody's studies, and change nothing."""


class State(StrEnum):
    """Where a submitted study stands."""

    QUEUED = "queued"
    """It waits for devices; it may have run before."""
    RUNNING = "running"
    PAUSED = "paused"
    """It waits until somebody resumes it."""
    STOPPED = "stopped"
    """Somebody or a limit has ended it; it can be resumed."""
    DONE = "done"
    FAILED = "failed"


ENDED = (State.STOPPED, State.DONE, State.FAILED)
"""States that nothing leaves by itself."""


class Wish(StrEnum):
    """What is wished of a study that runs: that it ends after its next report, and what becomes of it then."""

    NONE = ""
    PAUSE = "pause"
    STOP = "stop"
    YIELD = "yield"
    """Its devices are for others; it waits for some again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who has a token, or had one."""

    name: str
    role: Role
    place: int
    """The how manieth user it is: submitted code runs under a system user of this place."""
    weight: float = 1.0
    min_devices: int = 0
    max_devices: int | None = None
    budget_device_s: float | None = None
    """What all studies of this user may take together, in device-seconds."""
    use_device_s: float = 0.0
    """What the studies have had, in device-seconds, of which some is forgotten with time."""
    use_at: float = 0.0
    """When that was right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A study that was submitted."""

    id: str
    user: str
    file: str
    """The source file that defines it, in its folder."""
    options: Mapping[str, Any]  # Any: JSON values
    """What `headwater run` is told, checked already."""
    state: State
    created: float
    priority: int = 0
    deadline: float | None = None
    """When it is ended if it has not ended by then, in seconds since 1970."""
    budget_device_s: float | None = None
    max_devices: int | None = None
    place: int = 0
    """The how manieth system user it runs as: its user's, or one that is for its files alone."""
    share: str = ""
    """A hash of all its files, where it may train with others of the same; else empty."""
    wish: Wish = Wish.NONE
    wished: float | None = None
    """Since when it is wished to end."""
    reason: str = ""
    """Why it is in this state, or is wished to end."""
    num_deaths: int = 0
    """How often its runner has died since it last made progress."""
    num_devices: int = 0
    """How many devices it was last told to have."""
    device_seconds: float = 0.0
    started: float | None = None
    ended: float | None = None
    version: int = 0
    """Grows with every change."""
    progress: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values

    def as_json(self) -> Json:
        """Return it as the service tells it."""
        return {
            "id": self.id,
            "user": self.user,
            "state": self.state.value,
            "wish": self.wish.value,
            "reason": self.reason,
            "file": self.file,
            "options": dict(self.options),
            "priority": self.priority,
            "deadline": self.deadline,
            "budget_device_s": self.budget_device_s,
            "max_devices": self.max_devices,
            "share_lanes": bool(self.share),
            "num_devices": self.num_devices,
            "device_seconds": round(self.device_seconds, 3),
            "num_deaths": self.num_deaths,
            "created": self.created,
            "started": self.started,
            "ended": self.ended,
            "version": self.version,
            "progress": dict(self.progress),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a study."""

    sequence: int
    submission: str
    user: str
    kind: str
    """`state` or `progress`."""
    data: Json
    time: float
