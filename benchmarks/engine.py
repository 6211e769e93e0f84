"""How busy are devices while a search with early stopping runs: without a barrier, with one, and at best?

Run `python benchmarks/engine.py`. Trials take unequal times. *At best* is a bound on what any way of placing whole
segments could reach, from the search's own trace: what it wants next follows from certain results, and cannot start
before these are in. *With a barrier* nothing is proposed until all that was proposed has ended, as it was before the
engine was rebuilt. The first table is simulated, so it is the same on every machine; `--real` also trains on two
processes, and `--large` times the simulation of a study of 10,000 trials on 1,000 devices.
"""

import argparse
import heapq
import math
import os
import statistics
import tempfile
import time
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from measuring import heading

import headwater as hw
from headwater.execute import ProcessExecutor, SimulatedExecutor, SimulatedTimes
from headwater.search import ASHA, SHA, Build, Problem, Searcher
from headwater.store import open_store, read_spans
from headwater.trials import Device, Report, Segment, Span, Status

SPACE = {"lr": hw.loguniform(1e-4, 1.0), "size": hw.loguniform(1.0, 16.0)}
MAX_EPOCHS = 27
NUM_SEEDS = 5
START_S, SAVE_S = 0.005, 0.005
"""What is aimed at for processes."""
SEARCHES: Mapping[str, Build] = {
    "ASHA": ASHA(),
    "ASHA, 8 imagined at once": ASHA(concurrency=8),
    "synchronous halving": SHA(),
}
REAL_STEPS = 2000
"""Of the shortest epoch: half of all epochs take half a second and more, so that noise does not decide."""


@dataclass(frozen=True)
class Traced:
    """A segment as the search asked for it, once the first `num_needed` of the trace had ended."""

    number: int
    num_epochs: int
    config: Mapping[str, Any]
    num_needed: int


class WaveSearch:
    """Proposes nothing until all that was proposed has ended."""

    def __init__(self, searcher: Any) -> None:
        self._searcher = searcher
        self._under_way: set[int] = set()
        self.observe, self.take_dropped = searcher.observe, searcher.take_dropped

    def propose(self, count: int) -> Sequence[Segment]:
        segments = [] if self._under_way else self._searcher.propose(count)
        self._under_way |= {segment.number for segment in segments}
        return segments

    def finish(self, number: int, status: Status) -> None:
        self._under_way.discard(number)
        self._searcher.finish(number, status)


def lose(config: Mapping[str, Any], epoch: int) -> float:
    return abs(math.log10(config["lr"]) + 2.0) + 1.0 / epoch


def make_problem(num_trials: int, seed: int) -> Problem:
    return Problem(
        space=hw.Space(SPACE), metric="loss", mode="min", seed=seed, num_trials=num_trials, max_epochs=MAX_EPOCHS
    )


def trace(searcher: Searcher) -> list[Traced]:
    """Return all segments in the order in which the search hears of them, an epoch being one unit of its time."""
    reached: dict[int, int] = {}
    agenda: list[tuple[int, int, Traced]] = []
    ended: list[Traced] = []
    now = 0
    while True:
        for segment in searcher.propose(10**6):
            until = segment.until or MAX_EPOCHS
            num_epochs = until - reached.get(segment.number, 0)
            item = Traced(segment.number, num_epochs, segment.config, len(ended))
            heapq.heappush(agenda, (now + num_epochs, segment.number, item))
        if not agenda:
            return ended
        now, number, item = heapq.heappop(agenda)
        for _ in range(item.num_epochs):
            reached[number] = reached.get(number, 0) + 1
            loss = lose(item.config, reached[number])
            searcher.observe(Report(number=number, epoch=reached[number], metrics={"loss": loss}))
        searcher.finish(number, Status.COMPLETED if reached[number] == MAX_EPOCHS else Status.PAUSED)
        ended.append(item)


def bound_seconds(traced: Sequence[Traced], seconds: Sequence[float], num_devices: int) -> float:
    """Return how long it takes at least until all of a trace has ended, however it is placed.

    The first k of it have ended at the earliest at `ends[k]`: none of them sooner than what it needs and its own time;
    and whatever needs the first j shares the devices from `ends[j]` on.
    """
    ends: list[float] = [0.0]
    work: list[list[float]] = [[] for _ in range(len(traced) + 1)]
    for item, own_s in zip(traced, seconds, strict=True):
        for needed in range(item.num_needed + 1):
            insort(work[needed], own_s)
        shared = max(end + share_seconds(work[place], num_devices) for place, end in enumerate(ends))
        ends.append(max(ends[-1], ends[item.num_needed] + own_s, shared))
    return ends[-1]


def share_seconds(work: Sequence[float], num_devices: int) -> float:
    """Return how long devices need at least for segments of these times, the shortest first.

    Of the n * devices + 1 longest, some device has n + 1: it takes no less than the shortest n + 1 of these.
    """
    least = sum(work) / num_devices
    for num in range(1, 4):
        if len(work) > num * num_devices:
            longest = work[len(work) - num * num_devices - 1 :]
            least = max(least, sum(longest[: num + 1]))
    return least


def simulate(build: Build, num_devices: int, num_trials: int, seed: int) -> tuple[float, float]:
    """Return how long a study takes, and how long its trials sat on devices."""
    times = SimulatedTimes(
        epoch_s=lambda config, num_lanes, kind: config["size"], num_epochs=MAX_EPOCHS, start_s=START_S, save_s=SAVE_S
    )
    devices = [Device(name=f"cpu:{place}") for place in range(num_devices)]
    executor = SimulatedExecutor(devices, lambda config, epoch: {"loss": lose(config, epoch)}, times)
    study = make_study(train, build, seed, executor, None)
    result = study.run(num_trials, watcher=hw.Silence())
    return result.seconds, sum(trial.seconds for trial in result.trials)


def make_study(function: Any, build: Build, seed: int, executor: Any, storage: str | None) -> hw.Study:
    return hw.Study(
        function, space=SPACE, metric="loss", search=build, seed=seed, lanes=1, packing=None, save_every=None,
        max_epochs=MAX_EPOCHS, storage=storage, executor=executor,
    )  # fmt: skip


def show_simulated(num_trials: int) -> Iterator[str]:
    yield f"Simulated: {num_trials} trials, epochs of 1 to 16 s (log-uniform), means over {NUM_SEEDS} seeds.\n"
    yield "| search | devices | busy, with a barrier | busy now | busy at best | now, of the best |"
    yield "|---|---|---|---|---|---|"
    for name, build in SEARCHES.items():
        for num_devices in (2, 8):
            rows = [compare(build, num_devices, num_trials, seed) for seed in range(NUM_SEEDS)]
            barrier, now, best = (statistics.mean(column) for column in zip(*rows, strict=True))
            of_best = statistics.mean(row[1] / row[2] for row in rows)
            yield f"| {name} | {num_devices} | {barrier:.1%} | **{now:.1%}** | {best:.1%} | {of_best:.1%} |"


def show_large(num_trials: int = 10_000, num_devices: int = 1_000) -> Iterator[str]:
    """Time whole simulated studies, in which devices may flow and lanes are tried."""
    yield f"\nSimulated, {num_trials} trials on {num_devices} devices, of up to 9 epochs; random search: 3.\n"
    yield "| search | CPU s | simulated s |"
    yield "|---|---|---|"
    for search, num_epochs in (("random", 3), ("asha", 9)):
        times = SimulatedTimes(
            epoch_s=lambda config, num_lanes, kind: num_lanes * config["size"], num_epochs=num_epochs
        )
        devices = [Device(name=f"gpu:{place}", kind="gpu") for place in range(num_devices)]
        executor = SimulatedExecutor(devices, lambda config, epoch: {"loss": lose(config, epoch)}, times)
        study = hw.Study(
            train,
            space=SPACE,
            metric="loss",
            search=search,
            max_epochs=9,
            storage=None,
            executor=executor,
            callbacks=(),
        )
        since = time.process_time()
        result = study.run(num_trials, watcher=hw.Silence())
        yield f"| {search} | {time.process_time() - since:.1f} | {result.seconds:.0f} |"


def compare(build: Build, num_devices: int, num_trials: int, seed: int) -> tuple[float, float, float]:
    """Return the busy share with a barrier, now, and at best."""
    traced = trace(build(make_problem(num_trials, seed)))
    seconds = [item.num_epochs * item.config["size"] for item in traced]
    least_s = bound_seconds(traced, seconds, num_devices)
    shares = []
    for way in (lambda problem: WaveSearch(build(problem)), build):
        taken_s, busy_s = simulate(way, num_devices, num_trials, seed)
        assert math.isclose(busy_s, sum(seconds)), "it is the same search"
        assert taken_s >= least_s
        shares.append(busy_s / taken_s / num_devices)
    return shares[0], shares[1], sum(seconds) / least_s / num_devices


def train(trial: hw.Trial) -> None:
    """Compute for as long as the configuration says; no time is slept."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(96, 96, generator=generator) / 10.0
    for epoch in trial.epochs(MAX_EPOCHS):
        for _ in range(int(REAL_STEPS * trial.config["size"])):
            weights = torch.tanh(weights @ weights)
        trial.report(loss=lose(trial.config, epoch + 1))


class WarmProcesses:
    """Two processes that stay from one study to the next: how long they take to start is no matter of placing."""

    def __init__(self) -> None:
        self._executor = ProcessExecutor(2)
        self.list_devices, self.run, self.end = self._executor.list_devices, self._executor.run, self._executor.close

    def close(self) -> None:
        """Do nothing: the next study needs them."""


def report_once(trial: hw.Trial) -> None:
    trial.report(loss=0.0)


def show_real(num_trials: int, folder: str, searches: Sequence[str]) -> Iterator[str]:
    yield f"\nReal: {num_trials} trials on `ProcessExecutor(2)`, both processes there, by the spans of their records"
    yield f"from the first on; the load of the machine was {os.getloadavg()[0]:.1f} at the beginning."
    yield "A bound takes the time that each segment took in that very run.\n"
    yield "| search | placements | busy, with a barrier | of its best | busy now | busy at best | now, of the best |"
    yield "|---|---|---|---|---|---|---|"
    executor = WarmProcesses()
    make_study(report_once, SEARCHES["ASHA"], 0, executor, None).run(4)
    for name in searches:
        build = SEARCHES[name]
        waves = run_real(
            lambda problem, build=build: WaveSearch(build(problem)), num_trials, f"{folder}/waves-{name}.db", executor
        )
        spans = run_real(build, num_trials, f"{folder}/now-{name}.db", executor)
        traced = trace(build(make_problem(num_trials, 0)))
        least_s = [bound_seconds(traced, match_seconds(traced, each), 2) for each in (waves, spans)]
        barrier, now = share_busy(waves, last_s(waves)), share_busy(spans, last_s(spans))
        of_its_best, best = barrier / share_busy(waves, least_s[0]), share_busy(spans, least_s[1])
        shares = f"{barrier:.1%} | {of_its_best:.1%} | **{now:.1%}** | {best:.1%} | {now / best:.1%}"
        yield f"| {name} | {len(spans)} | {shares} |"
    executor.end()


def run_real(build: Any, num_trials: int, path: str, executor: Any) -> list[Span]:
    make_study(train, build, 0, executor, path).run(num_trials)
    with open_store(path, create=False) as store:
        return read_spans(store)


def last_s(spans: Sequence[Span]) -> float:
    """How long it took from the first span to the last."""
    return max(span.end_s for span in spans) - min(span.begin_s for span in spans)


def share_busy(spans: Sequence[Span], seconds: float) -> float:
    return sum(span.seconds for span in spans) / seconds / 2


def match_seconds(traced: Sequence[Traced], spans: Sequence[Span]) -> list[float]:
    """Return how long each segment of a trace took: the segments of one trial come in order in both."""
    taken: dict[int, list[float]] = {}
    for span in spans:
        taken.setdefault(span.trials[0], []).append(span.seconds)
    return [taken[item.number].pop(0) for item in traced]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=81, help="of the simulated studies; 0 for none")
    parser.add_argument("--real", action="store_true", help="also train on two processes")
    parser.add_argument("--large", action="store_true", help="also time a simulated study of 10,000 trials")
    parser.add_argument("--real-trials", type=int, default=27)
    parser.add_argument("--real-searches", nargs="*", choices=list(SEARCHES), default=list(SEARCHES))
    arguments = parser.parse_args()
    print(heading("Engine: how busy devices are while a search stops trials early"))
    for line in show_simulated(arguments.trials) if arguments.trials else ():
        print(line, flush=True)
    for line in show_large() if arguments.large else ():
        print(line, flush=True)
    if arguments.real:
        with tempfile.TemporaryDirectory() as folder:
            for line in show_real(arguments.real_trials, folder, arguments.real_searches):
                print(line, flush=True)


if __name__ == "__main__":
    main()
