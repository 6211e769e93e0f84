"""Running the training function once, for a group."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeAlias

import torch

from headwater import devices
from headwater.errors import (
    CannotFuseError,
    CannotScaleError,
    LanesLeave,
    LanesPart,
    MeasuringEnds,
    StudyError,
    WidthsWanted,
)
from headwater.fuse.roster import Roster
from headwater.fuse.shortage import is_out_of_memory
from headwater.fuse.strategies import Strategies
from headwater.scale.places import Structure
from headwater.space.configuration import freeze
from headwater.train.compiling import Compiler
from headwater.train.config import LaneConfig
from headwater.train.engines import Engine, LaneEngine, LaneState, PlainEngine
from headwater.train.faults import GuardedControl, explain_devices, explain_loss
from headwater.train.looking import look_at_widths
from headwater.train.memory import Clearing
from headwater.train.rank_control import RankControl
from headwater.train.ranks import RankGroup, Ranks
from headwater.train.scaling import Scaling
from headwater.train.seeding import seed_everything
from headwater.train.shared_calls import Sharing
from headwater.train.shared_loading import RankAccess
from headwater.train.streams import DataAccess, LoneAccess
from headwater.train.traceless import noting_writes
from headwater.train.trial import Control, Trial
from headwater.train.user_globals import UserGlobals
from headwater.trials import Deadline, Ending, Lane, Outcome, Question, TrialGroup

Function: TypeAlias = Callable[[Trial], Any]


@dataclass(slots=True)
class TrainingSetup:
    """What runs of one training function share on one device, and what has been learnt of its speed."""

    function: Function
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    strategies: Strategies = field(default_factory=Strategies)
    metric: str = ""
    """The name of a value that the function returns instead of reporting it."""
    mode: str = "min"
    """Whether the metric should be small ("min") or large ("max")."""
    max_epochs: int | None = None
    """How many epochs a trial trains at most."""
    always_fuse: bool = False
    """Use stacks even for a single lane; for tests and measurements."""
    is_measuring: bool = False
    """Whether only time and memory count, so that lanes need no weights of their own."""
    scaling: Scaling | None = None
    """The width to train at; None: models as the function writes them."""
    compiler: Compiler | None = None
    """Compiles what trains alone, where that pays; None for not at all."""
    shares_loading: bool = False
    """Whether groups that cannot train as one may load their data together."""
    num_workers: int = 1
    """How many groups train at the same time, in processes that share the memory."""
    access: DataAccess = field(default_factory=LoneAccess)
    """How runs read their data: alone, or with others."""
    clearing: Clearing = field(default_factory=Clearing)
    """Gives back what runs that have ended leave behind."""
    micro_batches: int = 1
    """In how many parts a trial in plain PyTorch computes a batch, where memory is short."""
    deadline: Deadline = field(default_factory=Deadline.start)
    """By when everything that is measured must be known."""
    gate: Callable[[], None] = field(default=lambda: None)
    """Waits until the next step may begin, where the device is not its own."""
    variables: UserGlobals | None = None
    """The global variables that the function uses; all runs share them."""

    def __post_init__(self) -> None:
        self.variables = self.variables or UserGlobals(self.function)


def choose_device(name: str, *, is_here: bool = True) -> torch.device:
    """Return the device of this name; "auto" is the first GPU, or the CPU where there is none.

    Where others train, this machine need not have it.

    Raises:
        StudyError: Torch knows no such device, or this machine has none.
    """
    if name == "auto":
        return devices.choose_default()
    try:
        if not is_here:
            return torch.device(name)
        one = torch.ones(1, device=name)
        one.item()  # there are devices that hold nothing
        return one.device
    except (RuntimeError, AssertionError) as error:
        raise StudyError(f"device {name!r} cannot be used: {error}; give 'auto', 'cpu' or a GPU there is") from error


def run_group(
    setup: TrainingSetup,
    group: TrialGroup,
    control: Control,
    states: Sequence[LaneState] | None = None,
    *,
    ranks: RankGroup | None = None,
) -> Ending:
    """Call the training function once for all lanes of the group, and say how that ended.

    Never raises for what the function does: an exception in it is an ending. Reports and steps go to `control`, and
    what that raises is raised here, whatever the function does about it: it is no result of a trial. With `ranks`,
    every one of them makes this call for the same group of one lane and from the same states; only the control of rank
    0 hears and decides, and a rank whose function raises leaves the others.

    Raises:
        StudyError: Several lanes are to train on several ranks.
    """
    sharing = _open_sharing(setup, group, ranks)
    if sharing is None:
        return _run_group(setup, group, control, states)
    ending = _run_group(setup, group, RankControl(control, sharing.group), states, sharing)
    if ending.outcome in (Outcome.RAISED, Outcome.LOST):
        sharing.group.close()
    return replace(ending, notes=(*ending.notes, *sharing.group.notes))


def _open_sharing(setup: TrainingSetup, group: TrialGroup, ranks: RankGroup | None) -> Sharing | None:
    """Return how the work of a single trial is divided; None for not at all."""
    if ranks is not None and len(group) > 1:
        raise StudyError(
            f"{len(group)} trials in one group cannot train on {len(ranks)} ranks; give each trial its own"
        )
    if ranks is None and (setup.micro_batches == 1 or len(group) > 1):
        return None
    return Sharing(ranks or RankGroup(Ranks(0, 1), device=setup.device), setup.micro_batches)


def _run_group(
    setup: TrainingSetup,
    group: TrialGroup,
    control: Control,
    states: Sequence[LaneState] | None,
    sharing: Sharing | None = None,
) -> Ending:
    start = time.perf_counter()
    wanted: list[Structure] = []
    while True:
        try:
            ending = replace(_run(setup, group, control, states, sharing), seconds=time.perf_counter() - start)
            setup.clearing.clear(is_urgent=ending.outcome is Outcome.OUT_OF_MEMORY)
            return ending
        except WidthsWanted as question:
            wanted += question.args
            outcome, error = _look(setup, group.lanes[0], wanted)
            if outcome is not None:
                seconds = time.perf_counter() - start
                return Ending(outcome=outcome, lanes=group.lanes, error=error, seconds=seconds)


def _run(
    setup: TrainingSetup,
    group: TrialGroup,
    control: Control,
    states: Sequence[LaneState] | None,
    sharing: Sharing | None,
) -> Ending:
    roster = Roster([lane.config for lane in group.lanes])
    guarded = GuardedControl(control, setup.gate)
    engine, config = _open_engine(setup, group, roster, sharing)
    compiler = setup.compiler if isinstance(engine, PlainEngine) and sharing is None else None
    access = setup.access if sharing is None else RankAccess(sharing.group)
    trial = Trial(group.lanes, config, engine, guarded, states, setup.device, compiler, access, setup.variables)
    trial.max_epochs, trial.mode = setup.max_epochs, setup.mode
    setup.gate()
    with guarded.raising_fault(), closing(trial):
        roster.let_go = trial.finish_lanes
        try:
            outcome, question, error = _call(setup, trial, engine, roster)
        finally:
            del roster.let_go  # the trial holds the roster: models would stay until Python looks for circles
    return Ending(
        outcome=outcome,
        lanes=trial.lanes,
        question=question,
        was_fused=len(group) > 1,
        error=error,
        num_lane_steps=guarded.num_lane_steps,
        num_steps_foreseen=trial.foresee_steps(),
        notes=(*trial.idle_biases.notes, *_find_variables(setup).notes),
        attributes=trial.take_attributes(),
    )


def _look(setup: TrainingSetup, lane: Lane, wanted: Sequence[Structure]) -> tuple[Outcome | None, str]:
    """Learn the widths of a model from its first call; return how the function ended where it ended before that."""
    assert setup.scaling is not None
    try:
        look_at_widths(setup.function, lane, setup.device, setup.scaling, wanted)
    except (StudyError, CannotScaleError):
        raise
    except MeasuringEnds:
        return Outcome.DONE, ""
    except Exception as cause:  # the trial's own code: whatever it raises is the trial's result
        return Outcome.RAISED, _describe(cause, setup.device)
    return None, ""


def _open_engine(
    setup: TrainingSetup, group: TrialGroup, roster: Roster, sharing: Sharing | None
) -> tuple[Engine, Mapping[str, Any]]:
    if len(group) > 1 or (setup.always_fuse and sharing is None):
        engine = LaneEngine(group.lanes, roster, setup.device, setup.strategies, setup.scaling)
        engine.starts_alike = setup.is_measuring
        return engine, LaneConfig(roster)
    (lane,) = group.lanes
    return PlainEngine(lane, setup.device, setup.scaling, sharing), freeze(lane.config)


def _call(setup: TrainingSetup, trial: Trial, engine: Engine, roster: Roster) -> tuple[Outcome, Question | None, str]:
    error = ""
    seed_everything(trial.seed)
    try:
        with noting_writes(), _find_variables(setup).calling(), engine.running(setup.function):
            try:
                # A context of its own: variables of `contextvars` that the function sets are no other call's.
                trial.take_answer(copy_context().run(setup.function, trial), setup.metric)
            except Exception:
                if roster.halt is None:
                    trial.settle()  # lanes that leave at their report have not failed after it
                raise
            trial.finish()
    except (LanesLeave, LanesPart, MeasuringEnds):
        pass
    except CannotFuseError as cause:
        return Outcome.APART, roster.question or Question(None, str(cause)), ""
    except (StudyError, CannotScaleError):  # not the trial's fault: the study itself is set up wrongly
        raise
    except (Exception, SystemExit) as cause:  # the trial's own code: whatever it raises is the trial's result
        if loss := explain_loss(cause):
            return Outcome.LOST, None, loss
        error = _explain(cause, roster, setup.device)
    return _conclude(roster, error)


def _find_variables(setup: TrainingSetup) -> UserGlobals:
    assert setup.variables is not None
    return setup.variables


def _explain(cause: BaseException, roster: Roster, device: torch.device) -> str:
    """Return what a function raised, and note if that was for want of memory."""
    error = _describe(cause, device)
    if is_out_of_memory(cause):
        roster.shortage = error
    return error


def _describe(cause: BaseException, device: torch.device) -> str:
    """Return the traceback; a hint goes into its last line, which is what tables show."""
    error = "".join(traceback.format_exception(cause.with_traceback(_own_frames(cause))))
    hint = explain_devices(cause, device)
    return f"{error.rstrip()} ({hint})\n" if hint else error


def _conclude(roster: Roster, error: str) -> tuple[Outcome, Question | None, str]:
    if roster.shortage:
        return Outcome.OUT_OF_MEMORY, None, roster.shortage
    if roster.question is not None:
        return (Outcome.PARTED if roster.question.recipe else Outcome.APART), roster.question, ""
    return (Outcome.RAISED if error else Outcome.DONE), None, error


def _own_frames(cause: BaseException) -> TracebackType | None:
    """Leave out our own frame, which tells the user nothing."""
    return cause.__traceback__.tb_next if cause.__traceback__ else None
