"""Trials that are trained under several seeds: the record holds each replica, people and searchers see the mean.

With `num_seeds` seeds, replica r of trial n has the number n * num_seeds + r in the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from headwater.trials.records import Arrival, Report, Status, TrialRecord

MOST_SEEDS = 10_000
"""Of one trial; a loop over its replicas must end."""


def average_replicas(records: Sequence[TrialRecord], num_seeds: int) -> tuple[TrialRecord, ...]:
    """Return one record per trial: its metrics are means over the seeds, at the epochs that all replicas reported."""
    if num_seeds == 1:
        return tuple(records)
    by_trial: dict[int, list[TrialRecord]] = {}
    for record in records:
        by_trial.setdefault(record.number // num_seeds, []).append(record)
    return tuple(_average(number, replicas, num_seeds) for number, replicas in sorted(by_trial.items()))


def join_arrivals(arrivals: Sequence[Arrival], num_seeds: int) -> tuple[Arrival, ...]:
    """Return when each trial came to an end: when its last replica did."""
    if num_seeds == 1:
        return tuple(arrivals)
    ends: dict[int, list[list[Arrival]]] = {}
    joined = []
    for arrival in arrivals:
        number, replica = divmod(arrival.number, num_seeds)
        of_trial = ends.setdefault(number, [[] for _ in range(num_seeds)])
        of_trial[replica].append(arrival)
        if all(of_trial):
            together = [one.pop(0) for one in of_trial]
            status = join_statuses([one.status for one in together])
            joined.append(Arrival(number=number, epoch=min(one.epoch for one in together), status=status))
    return tuple(joined)


def average_reports(number: int, reports: Sequence[Report]) -> Report:
    """Return the mean of what replicas reported for one epoch; a metric that one of them lacks is left out."""
    names = [name for name in reports[0].metrics if all(name in report.metrics for report in reports)]
    means = {name: fmean(report.metrics[name] for report in reports) for name in names}
    return Report(number=number, epoch=reports[0].epoch, metrics=means)


def join_statuses(statuses: Sequence[Status]) -> Status:
    """Return where a trial stands whose replicas stand so: the worst that befell one, or what all have reached."""
    for decisive in (Status.FAILED, Status.STOPPED, Status.RUNNING, Status.PAUSED):
        if decisive in statuses:
            return decisive
    return Status.COMPLETED


def _average(number: int, replicas: Sequence[TrialRecord], num_seeds: int) -> TrialRecord:
    by_epoch = [{report.epoch: report for report in replica.history} for replica in replicas]
    shared = [epoch for epoch in by_epoch[0] if all(epoch in reports for reports in by_epoch)]
    whole = len(replicas) == num_seeds
    return TrialRecord(
        number=number,
        config=replicas[0].config,
        status=join_statuses([replica.status for replica in replicas]) if whole else Status.RUNNING,
        history=tuple(average_reports(number, [reports[epoch] for reports in by_epoch]) for epoch in shared if whole),
        error=next((replica.error for replica in replicas if replica.error), None),
        notes=tuple(dict.fromkeys(note for replica in replicas for note in replica.notes)),
        seconds=sum(replica.seconds for replica in replicas),
        attributes=replicas[0].attributes,
    )
