"""What becomes of lanes whose group has ended, or was lost with what trained it."""

from __future__ import annotations

from dataclasses import replace

from headwater.conduct.listeners import StudyLog
from headwater.conduct.losses import Losses, Verdict
from headwater.conduct.study_trials import StudyTrials
from headwater.conduct.waiting import WaitingLanes
from headwater.plan import cut_alike
from headwater.trials import Ending, Lane, Lost, Outcome, Status


class Endings:
    """Says of lanes whose group has ended that they are done or have failed, or lets them wait, cut otherwise."""

    def __init__(self, trials: StudyTrials, waiting: WaitingLanes, log: StudyLog) -> None:
        self._trials = trials
        self._waiting = waiting
        self._log = log
        self._losses = Losses(trials.epoch_of)

    def conclude(self, ending: Ending, was_packed: bool = False) -> None:
        """Take in how a group ended."""
        outcome = ending.outcome
        if outcome not in (Outcome.DONE, Outcome.REFUSED):  # what runs again goes on from what was saved
            ending = replace(ending, lanes=tuple(self._trials.reopen(ending.lanes)))
        lanes = ending.lanes
        if outcome is Outcome.DONE:
            self._waiting.grouper.acquit(lanes)
            self._trials.finish(lanes, Status.COMPLETED)
        elif outcome is Outcome.REFUSED or (outcome is Outcome.OUT_OF_MEMORY and was_packed):
            reason = ending.error if outcome is Outcome.REFUSED else "they ran out of memory"
            self._waiting.refuse_packs(cut_alike(lanes), reason)
        elif outcome is Outcome.LOST:
            self._restart(lanes, Lost(key=0, reason=ending.error))
        elif outcome in (Outcome.RAISED, Outcome.OUT_OF_MEMORY) and len(lanes) == 1:
            self._fail(ending)
        else:
            self._waiting.part(ending)

    def lose(self, lanes: tuple[Lane, ...], was_packed: bool, event: Lost) -> None:
        """Let the lanes of a group that was lost go on from their last states.

        Who to blame is found out as if the function had raised. Which group of a pack it is cannot be told, so none is:
        they train one by one from now on.
        """
        lanes = tuple(self._trials.reopen(lanes))
        if was_packed and lanes:
            self._waiting.refuse_packs(cut_alike(lanes), event.reason)
        elif lanes:
            self._restart(lanes, event)
        else:  # it died after its last report, and has done its work
            self.conclude(Ending(outcome=Outcome.DONE, lanes=()))

    def _fail(self, ending: Ending) -> None:
        if ending.outcome is Outcome.OUT_OF_MEMORY:
            self._waiting.grouper.excuse(ending.lanes[0])
        self._trials.finish(ending.lanes, Status.FAILED, ending.failure)

    def _restart(self, lanes: tuple[Lane, ...], event: Lost) -> None:
        """Let lanes train again that were lost with what trained them, or find out which of them is to blame."""
        if self._losses.judge(lanes) is Verdict.AGAIN:
            self._log.tell_lanes(f"trains again from what was saved: {event.reason}", lanes)
            self._waiting.add_groups(list(cut_alike(lanes)))
        else:
            outcome = Outcome.OUT_OF_MEMORY if event.is_out_of_memory else Outcome.RAISED
            self.conclude(Ending(outcome=outcome, lanes=lanes, error=event.reason))
