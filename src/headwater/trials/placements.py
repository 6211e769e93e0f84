"""What is to run where: the values that pass from who decides to who trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headwater.space import Space
from headwater.trials.learnt import Learnt
from headwater.trials.records import TrialGroup
from headwater.trials.surrogate import Surrogate


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that trains one placement at a time: a core, a GPU, a share of a node, a simulated one."""

    name: str
    kind: str = "cpu"
    """Devices of one kind are equally fast."""
    memory_bytes: int | None = None
    dollars_per_hour: float = 0.0
    is_ephemeral: bool = False
    """Whether it trains only in the gaps that its owner leaves, and goes when its owner does."""


class Purpose(StrEnum):
    """What a placement is for."""

    TRAIN = "train"
    PROFILE = "profile"
    """A few steps at ever more lanes, to see how many of these pay."""
    ALONE = "alone"
    """A few steps of one trial by itself."""
    LOADING = "loading"
    """A few steps of a group, to tell what it loads from what it computes."""
    FORESEE = "foresee"
    """A few steps of one trial by the clock of the run, to foresee how long it trains."""
    START = "start"
    """First steps at three widths, to see whether a surrogate is sound."""
    SCALES = "scales"
    """Which scales a model has surrogates at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Groups that a device trains now: one, or several that take turns as a pack; or lanes to measure."""

    key: int
    """Which placement of the run it is: every event that comes of it carries the number."""
    study: str
    groups: tuple[TrialGroup, ...]
    devices: tuple[str, ...]
    """The first trains; the others train the same trial as ranks, or lend it their threads on a CPU."""
    as_ranks: bool = False
    """Whether each of several devices is a rank, with a process of its own that divides the work of the first."""
    purpose: Purpose = Purpose.TRAIN
    num_devices: int = 1
    """How many devices train for the study now, and may share the memory of a machine."""
    seconds_left: float | None = None
    """How long there is for all of the run; what is measured takes a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What becomes of the lanes of a group that has reported, and who joins its pack."""

    leave: frozenset[int] = frozenset()
    """The trials that leave the group."""
    save: tuple[int, ...] = ()
    """The trials whose states are saved first."""
    keep: tuple[int, ...] = ()
    """The trials whose weights are kept as the best: one of each study at most."""
    join: tuple[TrialGroup, ...] = ()
    """Groups that train in the same pack from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesPlace:
    """Where the states of one study lie, and what each of them must carry."""

    url: str
    study: str
    """The study's uuid."""
    kept: tuple[int, int] | None = None
    """The trial and the epoch of the weights that are kept as the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a worker must know of a study to run its placements."""

    study: str
    function: Callable[..., Any]  # Any: whatever the training function returns
    space: Space
    states: StatesPlace
    metric: str = ""
    """What trials are compared by: the name of a value that the function returns instead of reporting it."""
    mode: str = "min"
    """Whether that should be small ("min") or large ("max")."""
    max_epochs: int | None = None
    """How many epochs a trial trains at most."""
    device: str = "cpu"
    """What torch calls the kind of device."""
    surrogate: Surrogate | None = None
    """The width to train at; None: models as the function writes them."""
    compiles: bool = False
    """Whether what trains alone is compiled where that saves time."""
    shares_loading: bool = False
    """Whether groups that cannot train as one may load their data together."""
    learnt: Learnt = field(default_factory=Learnt)
    """What is known of the function already, on this kind of device."""
    more_states: tuple[StatesPlace, ...] = ()
    """Where the states of further studies lie that train together with this one, as their trials' numbers say."""
    process_settings: Mapping[str, Any] = field(default_factory=dict)  # Any: plain values
    """Settings of torch, NumPy and Python in the process of the study."""
    divides: bool = False
    """Whether a trial that gets several devices trains on each of them as a rank, and not with more threads on one."""
    chooses_threads: bool = False
    """Whether what trains alone on a CPU gets as many threads as are fast."""
