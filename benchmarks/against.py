"""Has anything become slower? What this tree needs, against a tree of another commit, in CPU time.

Run `git worktree add ../before COMMIT` and `python benchmarks/against.py --before ../before` (about five minutes).
Every case runs in a process of its own, by the scripts of this tree, first on the sources of one tree, then on those of
the other, and so on in turns; its workers count too. The ratio is the median of those of the turns, so that a machine
that is busier for a while is so for both. Packages must be installed where this interpreter has its own: an earlier
commit takes those that lie elsewhere for the user's code, and rewrites it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import heading

HERE = Path(__file__).parent.parent
OVERHEAD = "benchmarks/overhead.py"
OVERHEAD_SCRIPT = """
import json, sys; sys.path.insert(0, "benchmarks")
import torch; torch.set_num_threads(1)
import overhead
cases = {
    "300 trials that report, lanes='auto' (ms each)": lambda folder: overhead.headwater_study(300, folder, "auto"),
    "300 trials that report, lanes=1 (ms each)": lambda folder: overhead.headwater_study(300, folder, 1),
    "128 lanes, 20 epochs, random (ms a report)": lambda folder: overhead.headwater_epochs("random", folder),
    "128 lanes, 20 epochs, ASHA (ms a report)":
        lambda folder: overhead.headwater_epochs(overhead.ASHA(concurrency=128), folder),
}
overhead.cost(lambda folder: overhead.headwater_study(1, folder, 1))
rounds = [{name: overhead.cost(run)[0] for name, run in cases.items()} for _ in range(3)]
print(json.dumps({name: min(each[name] for each in rounds) for name in cases}))
"""
"""What benchmarks/overhead.py times, thrice in one process; the least of each, for the first has things to import."""
DEMO = "headwater run examples/digits.py --trials 64 (s)"
TUNING = "end_to_end.py, MLP, 8 trials, 1000 examples, no surrogate (s)"
REQUEST = {
    "who": "Headwater",
    "workload": "MLP",
    "search": "random",
    "num_trials": 8,
    "scale": None,
    "num_examples": 1000,
}
"""Few trials and examples, so that a turn of both trees need not take long."""
COMMANDS: Mapping[str, Sequence[str]] = {
    OVERHEAD: ("-c", OVERHEAD_SCRIPT),
    DEMO: ("-m", "headwater", "run", "examples/digits.py", "--trials", "64", "--storage", "{folder}/record.db"),
    TUNING: ("benchmarks/end_to_end.py", "--request", json.dumps(REQUEST)),
}


def measure(tree: Path, name: str) -> dict[str, float]:
    """Return what a command says that it took, or the CPU seconds of its process and of all that it has started."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+") as output:
        command = [sys.executable, *(argument.replace("{folder}", folder) for argument in COMMANDS[name])]
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=output, stderr=output)
        _, process.returncode, used = os.wait4(process.pid, 0)
        text = Path(output.name).read_text()
    if process.returncode:
        raise RuntimeError(text)
    if name == DEMO:
        return {name: used.ru_utime + used.ru_stime}
    costs: dict[str, float] = json.loads(text.splitlines()[-1], parse_constant=float)
    return {name: costs["cpu_seconds"]} if name == TUNING else costs  # it also trains the winner in a plain script


def compare(name: str, before: Path, num_turns: int) -> Iterator[str]:
    """Yield a row for each case of a command: the medians of both trees, and of the ratios of the turns."""
    turns = [(measure(before, name), measure(HERE, name)) for _ in range(num_turns)]
    for case in turns[0][0]:
        pairs = [(then[case], now[case]) for then, now in turns]
        medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
        ratios = sorted(now / then for then, now in pairs)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        yield f"| {case} | {medians[0]:.3f} | {medians[1]:.3f} | **{statistics.median(ratios):.2f}** | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a tree of the commit to compare with")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--commands", nargs="*", choices=list(COMMANDS), default=list(COMMANDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = options.before.resolve()
    git = ["git", "-C", str(before), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    print(heading("Has anything become slower?"))
    print(
        f"Before: {commit}. CPU time, medians of {options.turns} turns, on cores that had other work too: the load was"
    )
    print(f"{os.getloadavg()[0]:.1f} at the beginning.\n")
    print("| case | before | now | ratio | of the turns |\n|---|---|---|---|---|", flush=True)
    for name in options.commands:
        for row in compare(name, before, options.turns):
            print(row, flush=True)


if __name__ == "__main__":
    main()
