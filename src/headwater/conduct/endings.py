"""What becomes of lanes whose group has ended, or was lost with what trained it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.conduct.listeners import StudyLog
from headwater.conduct.running import RunningGroup
from headwater.conduct.standings import explain_silence
from headwater.conduct.study_trials import StudyTrials
from headwater.conduct.waiting import WaitingLanes
from headwater.errors import StudyError
from headwater.plan import cut_alike
from headwater.trials import Ending, Lane, Lost, Outcome, Status

MOST_LOSSES = 3
"""A trial that was lost so often at one place, the last time alone, has failed."""


class Endings:
    """Says of lanes whose group has ended that they are done or have failed, or lets them wait, cut otherwise."""

    def __init__(self, trials: StudyTrials, waiting: WaitingLanes, log: StudyLog) -> None:
        self._trials = trials
        self._waiting = waiting
        self._log = log
        self._lost_at: dict[tuple[int, ...], tuple[int, ...]] = {}
        """By the trials of a group: how far each had reported when they were last lost together."""
        self._num_lost_alone: dict[int, int] = {}
        self._suspects: set[int] = set()

    def conclude(self, ending: Ending, was_packed: bool = False) -> None:
        """Take in how a group ended."""
        outcome = ending.outcome
        self._log.recorder.write_attributes(ending.attributes)
        if outcome not in (Outcome.DONE, Outcome.REFUSED):  # what runs again goes on from what was saved
            ending = replace(ending, lanes=tuple(self._trials.reopen(ending.lanes)))
        lanes = ending.lanes
        if outcome is Outcome.DONE:
            self._waiting.grouper.acquit(lanes)
            self._complete(lanes)
        elif outcome is Outcome.REFUSED or (outcome is Outcome.OUT_OF_MEMORY and was_packed):
            reason = ending.error if outcome is Outcome.REFUSED else "they ran out of memory"
            self._waiting.refuse_packs(cut_alike(lanes), reason)
        elif outcome is Outcome.LOST:
            self._restart(lanes, Lost(key=0, reason=ending.error))
        elif outcome in (Outcome.RAISED, Outcome.OUT_OF_MEMORY) and len(lanes) == 1 and not ending.was_fused:
            self._fail(ending)
        else:
            self._waiting.part(ending)

    def finish(self, group: RunningGroup, numbers: Sequence[int]) -> None:
        """Take in that trials of a group are done, while others go on in it."""
        if numbers:
            group.numbers = [number for number in group.numbers if number not in numbers]
            self.conclude(Ending(outcome=Outcome.DONE, lanes=group.select(numbers)))

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

    def _complete(self, lanes: tuple[Lane, ...]) -> None:
        """Take in that the function came to its end; who has never reported has failed."""
        silent = tuple(lane for lane in lanes if not self._trials.epoch_of(lane.number))
        reason = explain_silence(self._log.recorder.info.metric)
        if silent and self._log.progress.standings.is_empty:
            raise StudyError(reason)
        self._trials.finish(silent, Status.FAILED, reason)
        self._trials.finish([lane for lane in lanes if lane not in silent], Status.COMPLETED)

    def _fail(self, ending: Ending) -> None:
        if ending.outcome is Outcome.OUT_OF_MEMORY:
            self._waiting.grouper.excuse(ending.lanes[0])
        self._trials.finish(ending.lanes, Status.FAILED, ending.failure)

    def _restart(self, lanes: tuple[Lane, ...], event: Lost) -> None:
        """Let lanes train again that were lost with what trained them, or find out which of them is to blame."""
        if self._are_to_blame(tuple(lane.number for lane in lanes)):
            outcome = Outcome.OUT_OF_MEMORY if event.is_out_of_memory else Outcome.RAISED
            self.conclude(Ending(outcome=outcome, lanes=lanes, error=event.reason))
        else:
            self._log.tell_lanes(f"trains again from what was saved: {event.reason}", lanes)
            self._waiting.add_groups(list(cut_alike(lanes)))

    def _are_to_blame(self, numbers: tuple[int, ...]) -> bool:
        """Tell chance from habit: a group that is lost twice at one place has done that itself.

        The machine may have ended the process, or what it trained: a group to blame is cut in halves, and one that was
        alone has failed.
        """
        place = tuple(map(self._trials.epoch_of, numbers))
        is_new_place = self._lost_at.get(numbers) != place
        self._lost_at[numbers] = place
        is_suspect = self._suspects.issuperset(numbers)
        if len(numbers) == 1:
            before = 0 if is_new_place else self._num_lost_alone[numbers[0]]
            self._num_lost_alone[numbers[0]] = max(before + 1, MOST_LOSSES if is_suspect else 0)
            return self._num_lost_alone[numbers[0]] >= MOST_LOSSES
        if is_new_place and not is_suspect:
            return False
        self._suspects.update(numbers)
        return True
