"""The contract between a searcher and the loop that trains what it proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headwater.trials import Decision, Report, Segment, Status


@runtime_checkable
class Searcher(Protocol):
    """Decides what to try, for how long, and what to drop; built from a space and a seed, nothing else.

    A searcher sees neither devices nor groups nor the clock: from the same space and seed, the same calls get the same
    answers. Trials are numbered by the searcher from 0, in the order in which they are first proposed.

    A segment is a stretch of one trial, and of each trial at most one is under way. It begins when it is proposed and
    ends with one call of `finish`. In between, `observe` is called once for each epoch, in order; the calls for
    different trials may come in any order. When the loop itself interrupts a segment (a device is lost, lanes are
    grouped anew) and goes on with it later, the searcher is not told, and no epoch is observed twice.

    The loop runs a segment to the end of epoch `until`, where the trial pauses with a checkpoint; a trial whose
    training function ends there or before, or whose segment has no `until`, is completed instead. So successive
    halving proposes every trial up to the first rung, and promotes by proposing the same number again with a larger
    `until`; trials that it leaves paused when it ends are never trained again.

    A new trial may have a parent: a paused trial, from whose weights and optimizer state it starts, at that trial's
    epoch. It is proposed before its parent is proposed again, so the loop copies the parent's checkpoint when it opens
    the segment. The epochs of the new trial are counted on from there.

    To resume, a searcher is built with the trials that the record holds, besides the space and the seed. It then goes
    on as if it had proposed and observed all of that itself, and begins with what was under way: those trials are
    proposed again, under their numbers, and go on from their last checkpoints.
    """

    def propose(self, count: int) -> Sequence[Segment]:
        """Return at most `count` segments to run next: new trials, or paused ones with a larger `until`.

        Asking for one at a time gives the same segments as asking for all at once, as long as nothing is observed or
        finished in between. An empty answer means "not before something finishes"; while nothing is under way, it
        ends the search. A searcher that works in stages answers with as much of the stage as `count` allows.
        """

    def observe(self, report: Report) -> Decision:
        """Learn from a report, and say what becomes of its trial.

        CONTINUE goes on to the end of the segment; PAUSE ends the segment here, with a checkpoint, so that the trial
        can be proposed again; STOP ends the trial for good. At epoch `until`, CONTINUE and PAUSE are the same.
        """

    def finish(self, number: int, status: Status) -> None:
        """Learn that the segment of a trial has ended, and how; called once per segment, after its last report.

        PAUSED: it reached `until`, or `observe` said PAUSE. COMPLETED: the training function came to its end.
        STOPPED: `observe` said STOP, or a user did. FAILED: the training function raised, perhaps before any report.
        Only a paused trial may be proposed again.
        """


@runtime_checkable
class Dropping(Protocol):
    """What a searcher may offer besides: it tells which checkpoints are not needed any more."""

    def take_dropped(self) -> Sequence[int]:
        """Return the paused trials that were dropped since the last call and will never be proposed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """So many trials, trained until the end of this epoch; of the training function, where it is None."""

    num_trials: int
    until: int | None


@runtime_checkable
class Staged(Protocol):
    """What a searcher may offer besides: it knows before any result how many trials train for how long."""

    def stages(self) -> Sequence[Sequence[Stage]] | None:
        """Return the brackets of the search, each as stages whose trials are compared before the next; None: unknown.

        Failures and configurations that end early may leave fewer trials than planned, never more.
        """


def list_brackets(searcher: Searcher) -> Sequence[Sequence[Stage]] | None:
    """Return the brackets that a searcher is going to run, stage by stage; None where it decides on the way."""
    return searcher.stages() if isinstance(searcher, Staged) else None
