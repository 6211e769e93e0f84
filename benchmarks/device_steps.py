"""What one training step asks of an accelerator: operators, scalars that the host reads, copies, and waits.

    python benchmarks/device_steps.py

It trains on the simulated accelerator of the tests, whose counters do not depend on the speed of the machine. A row is
one step, from the end of one optimizer step to the end of the next: the most that any step of the last epoch took.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NUM_LANES = 4


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    importlib.import_module("tests.accelerator.building").load_accelerator()
    steps = importlib.import_module("tests.accelerator.steps")
    cases = [(model, optimizer, ()) for model in steps.MODELS for optimizer in ("SGD", "AdamW", "Muon")]
    cases += [("MLP", "AdamW", (extra,)) for extra in steps.EXTRAS]
    cases.append(("MLP", "AdamW", steps.EXTRAS))
    print("| model | optimizer | trials | " + " | ".join(steps.COUNTERS).replace("_", " ") + " |")
    print("|---|---|---|" + "---|" * len(steps.COUNTERS))
    for model, optimizer, extras in cases:
        for num_lanes in (1, NUM_LANES):
            counters = steps.count_step(model, optimizer, num_lanes, extras)
            label = "one, plain PyTorch" if num_lanes == 1 else f"{num_lanes} lanes"
            row = " | ".join(str(counters[name]) for name in steps.COUNTERS)
            print(f"| {model} | {', '.join((optimizer, *extras))} | {label} | {row} |", flush=True)


if __name__ == "__main__":
    main()
