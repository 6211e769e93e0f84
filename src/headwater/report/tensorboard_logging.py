"""A study in TensorBoard: event files with the curves and the hyperparameters of every trial."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import StudyError
from headwater.report.callbacks import Callback
from headwater.store import Store, StudyInfo
from headwater.trials import Lane, Report, Status
from headwater.trials.flat_rows import flatten

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event


class TensorBoardCallback(Callback):
    """Writes event files for TensorBoard: a run for each trial, with its metrics by epoch and its hyperparameters.

    ```python
    study = hw.Study(train, space=space, metric="loss", callbacks=[hw.TensorBoardCallback("runs")])
    ```

    Then `tensorboard --logdir runs` shows the curves, and compares hyperparameters under HPARAMS. A study has a folder
    of its own, named after it and the time of its start; a resumed study goes on in the same one.
    """

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        if find_spec("tensorboard") is None:
            raise StudyError("TensorBoardCallback needs tensorboard; pip install 'headwater[tensorboard]'")
        self._folder = Path(folder)
        self._clock = clock

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """Choose the folder of the study, and names for the files that this process writes."""
        name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in info.name)
        self._home = self._folder / f"{name}-{datetime.fromtimestamp(info.created):%Y%m%d-%H%M%S}"
        self._file = f"events.out.tfevents.{int(self._clock()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._num_seeds = info.num_seeds
        self._new: dict[int, Lane] = {}
        self._begun: set[int] = set()

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """Keep the hyperparameters until there is something to show of the trial."""
        self._new |= {lane.number: lane for lane in lanes if lane.number not in self._begun}

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Write what was reported."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        for report in reports:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in report.metrics.items()]
            self._write(report.number, [self._as_event(Summary(value=values), step=report.epoch)])

    def on_end(self, number: int, status: Status) -> None:
        """Write how the trial ended; a pause is no end."""
        if status.is_final:
            self._write(number, [self._as_event(_end_session(status, self._clock()))])

    def _write(self, number: int, events: Sequence[Event]) -> None:
        """Append events to the file of a trial. It is not kept open: there may be more trials than open files."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        trial, replica = divmod(number, self._num_seeds)
        group = f"trial-{trial}"
        folder = self._home / (group if self._num_seeds == 1 else f"{group}-seed-{replica}")
        if number not in self._begun:
            self._begun.add(number)
            folder.mkdir(parents=True, exist_ok=True)
            start = _start_session(self._new.pop(number).config, f"{self._home.name}/{group}", self._clock())
            events = [Event(wall_time=self._clock(), file_version="brain.Event:2"), self._as_event(start), *events]
        with (folder / self._file).open("ab") as file:
            writer = RecordWriter(file)
            for event in events:
                writer.write(event.SerializeToString())

    def _as_event(self, summary: Any, step: int = 0) -> Event:  # Any: a message without types
        from tensorboard.compat.proto.event_pb2 import Event

        return Event(wall_time=self._clock(), step=step, summary=summary)


def _start_session(config: Mapping[str, Any], group: str, now: float) -> Any:  # Any: a message without types
    """Return the hyperparameters of a trial; replicas of one trial share a group, which TensorBoard averages."""
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    values = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in flatten(config)}
    return hparams_pb(values, trial_id=group, start_time_secs=now)


def _end_session(status: Status, now: float) -> Any:  # Any: a message without types
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    outcome = api_pb2.STATUS_FAILURE if status is Status.FAILED else api_pb2.STATUS_SUCCESS
    data = HParamsPluginData(session_end_info=SessionEndInfo(status=outcome, end_time_secs=now))
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG, metadata=metadata.create_summary_metadata(data), tensor=metadata.NULL_TENSOR
    )
    return Summary(value=[value])
