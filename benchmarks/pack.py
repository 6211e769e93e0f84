"""Packs against one model after the other: by number of models, batch size and what they share; memory; switching.

Run `python benchmarks/pack.py` (some 6 minutes on one core), or a part of it with `--parts models`. The tables go to
standard output as Markdown; the committed ones are benchmarks/pack.md. The paper's Hyperband is in hyperband.py.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import heading
from pack_models import MODELS, MOMENTUM, raw_images, ready_images, training
from torch.utils.data import Dataset

import headwater as hw
from headwater.train.memory import watch_peak
from headwater.train.packing import time_switch

NUM_EXAMPLES = 600
NUM_ROUNDS = 3
COUNTS = (2, 4, 8, 16)
BATCH_SIZES = (32, 48, 64, 80, 100)

Build = Callable[[], Sequence[hw.Unit]]


@dataclass(frozen=True)
class Times:
    """CPU seconds for one epoch of some models."""

    apart: float
    packed: float

    @property
    def improvement(self) -> float:
        """Equation 3 of the paper: the share of the time that packing saves."""
        return (self.apart - self.packed) / self.apart


def compare(build: Build) -> Times:
    """Train units one after the other and as a pack, in turns; the median of each."""
    laps = [(clock(lambda: [run([unit]) for unit in build()]), clock(lambda: run(build()))) for _ in range(NUM_ROUNDS)]
    return Times(*(statistics.median(lap) for lap in zip(*laps, strict=True)))


def run(units: Sequence[hw.Unit]) -> None:
    for unit in hw.pack(units, device="cpu").run():
        assert not unit.errors, unit.errors


def clock(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def unit(name: str, examples: Dataset[Any], batch_size: int = 32, optimizer: Any = MOMENTUM, lanes: int = 1) -> hw.Unit:
    configs = [{"batch_size": batch_size, "optimizer": optimizer, "lr": 0.001 * (lane + 1)} for lane in range(lanes)]
    return hw.Unit(training(MODELS[name], examples), configs, name=name)


def show_models(num_examples: int) -> Iterator[str]:
    """Figure 4a: the improvement against the number of packed models, also where those that are alike become lanes."""
    raw = raw_images(num_examples)
    yield f"## Improvement by number of models (as Figure 4a; batch size 32, {num_examples} raw images)\n"
    yield "Time saved against one after the other; in brackets where the models, which are alike, train as lanes.\n"
    yield f"| model | {' | '.join(map(str, COUNTS))} |\n|---|{'---|' * len(COUNTS)}"
    for name in MODELS:
        cells = []
        for count in COUNTS:
            times = compare(lambda name=name, count=count: [unit(name, raw) for _ in range(count)])
            fused = statistics.median(
                clock(lambda name=name, count=count: run([unit(name, raw, lanes=count)])) for _ in range(NUM_ROUNDS)
            )
            cells.append(f"{times.improvement:.0%} ({1 - fused / times.apart:.0%})")
        yield f"| {name} | {' | '.join(cells)} |"


def show_batch_sizes(num_examples: int) -> Iterator[str]:
    """Figure 4b: the improvement of two models against their batch size."""
    raw = raw_images(num_examples)
    yield "\n## Improvement by batch size (as Figure 4b; two models)\n"
    yield f"| model | {' | '.join(map(str, BATCH_SIZES))} |\n|---|{'---|' * len(BATCH_SIZES)}"
    for name in MODELS:
        cells = [
            f"{compare(lambda name=name, size=size: [unit(name, raw, size) for _ in range(2)]).improvement:.0%}"
            for size in BATCH_SIZES
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def show_factors(num_examples: int) -> Iterator[str]:
    """Table 2: two models that have each of five things in common, or not."""
    kinds = {True: raw_images, False: ready_images}
    data = {(is_raw, start): kinds[is_raw](num_examples, start) for is_raw in kinds for start in (0, num_examples)}
    found: dict[tuple[bool, ...], Times] = {}
    for case in product((True, False), repeat=5):

        def build(case: tuple[bool, ...] = case) -> list[hw.Unit]:
            same_model, same_data, is_raw, same_optimizer, same_size = case
            second = unit(
                "MLP-3" if same_model else "MobileNet",
                data[is_raw, 0 if same_data else num_examples],
                32 if same_size else 50,
                MOMENTUM if same_optimizer else torch.optim.SGD,
            )
            return [unit("MLP-3", data[is_raw, 0]), second]

        found[case] = compare(build)
    yield "\n## What two models have in common (as Table 2; MLP-3 with itself or with MobileNet, 32 cases)\n"
    yield "| factor | same, or yes | different, or no | faster packed, of 16 |\n|---|---|---|---|"
    for place, factor in enumerate(("model", "training data", "preprocessing", "optimizer", "batch size")):
        means, wins = [], []
        for value in (True, False):
            times = [one.improvement for case, one in found.items() if case[place] is value]
            means.append(f"{statistics.mean(times):.0%} ({min(times):.0%} to {max(times):.0%})")
            wins.append(str(sum(one > 0 for one in times)))
        yield f"| {factor} | {' | '.join(means)} | {' and '.join(wins)} |"


def show_memory(num_examples: int) -> Iterator[str]:
    raw = raw_images(num_examples)
    yield "\n## Memory and switching (as Figure 5 and Table 1)\n"
    yield "| model | peak of one | peak of a pack of two | an epoch of two in a row | of one | SwOH(2) | a turn |"
    yield "|---|---|---|---|---|---|---|"
    turn = time_switch()
    for name in MODELS:
        peaks = []
        for count in (1, 2):
            peak = watch_peak(torch.device("cpu"))
            run([unit(name, raw, 100) for _ in range(count)])
            peaks.append(f"{(peak() or 0) / 2**20:.1f} MiB")
        ones, twos = [], []
        for _ in range(NUM_ROUNDS):
            ones.append(clock(lambda name=name: run([unit(name, raw)])))
            twos.append(clock(lambda name=name: [run([unit(name, raw)]) for _ in range(2)]))
        one, two = statistics.median(ones), statistics.median(twos)
        yield (
            f"| {name} | {' | '.join(peaks)} | {two:.3f} s | {one:.3f} s | {1e3 * (two - 2 * one):.0f} ms "
            f"| {1e6 * turn:.0f} us |"
        )


PARTS = {"models": show_models, "batch-sizes": show_batch_sizes, "factors": show_factors, "memory": show_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--examples", type=int, default=NUM_EXAMPLES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Packs against one model after the other"))
    run([unit("MLP-3", raw_images(64))])  # imports and the like
    for part in options.parts:
        for line in PARTS[part](options.examples):
            print(line, flush=True)


if __name__ == "__main__":
    main()
