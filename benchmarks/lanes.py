"""CPU time per lane-step: separate training, plain torch.func.vmap, and lanes; and the group size the profile picks.

Run `python benchmarks/lanes.py` (about half an hour) or with `--models MLP --widths 16` for a part of it. The table
goes to standard output as Markdown; the committed one is benchmarks/lanes.md.
"""

import argparse
import copy
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeAlias

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from measuring import heading, time_in_turns
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

import headwater as hw
from headwater.fuse.roster import Roster
from headwater.fuse.strategies import Strategies
from headwater.train.config import LaneConfig
from headwater.train.engines import LaneEngine
from headwater.train.memory import keep_freed_memory
from headwater.train.profiling import profile_lanes
from headwater.train.running import Workshop
from headwater.trials import Lane

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MOMENTUM = 0.9
NUM_ROUNDS = 2
BLOCK_S = 0.03
WARM_UP_STEPS, WARM_UP_S = 32, 3.0
MOST_BYTES = 14 * 2**30
"""What plain vmap may take."""
Steps: TypeAlias = Callable[[int], None]
"""Takes this many steps."""


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class LanguageModel(nn.Module):
    """A tiny GPT-2 as Hugging Face writes it, without dropout so that plain vmap has no more to do than the others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        import transformers

        transformers.logging.set_verbosity_error()
        config = transformers.GPT2Config(
            vocab_size=64, n_positions=16, n_embd=width, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        self.gpt2 = transformers.GPT2LMHeadModel(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.gpt2(input_ids=x, use_cache=False).logits.flatten(0, 1)


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def cnn(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip


@dataclass(frozen=True)
class Workload:
    build: Callable[[int], nn.Module]
    x: Tensor
    y: Tensor


def workloads() -> dict[str, Workload]:
    torch.manual_seed(0)
    tokens = torch.randint(0, 64, (8, 16))
    return {
        "MLP": Workload(mlp, torch.randn(64, 64), torch.randint(0, 10, (64,))),
        "CNN": Workload(cnn, torch.randn(16, 3, 8, 8), torch.randint(0, 10, (16,))),
        "LSTM": Workload(Recurrent, torch.randint(0, 32, (16, 16)), torch.randint(0, 10, (16,))),
        "GPT-2": Workload(LanguageModel, tokens, tokens.flatten()),
    }


def separate(work: Workload, width: int) -> Callable[[], None]:
    model = work.build(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=MOMENTUM)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(work.x), work.y).backward()
        optimizer.step()

    return step


def plain_vmap(work: Workload, width: int, num_lanes: int) -> Callable[[], None] | str:
    """What a user of torch.func writes: vmap over the gradient of a functional call, and a stacked SGD."""
    models = [work.build(width) for _ in range(num_lanes)]
    params, buffers = stack_module_state(models)
    params = {name: value.detach() for name, value in params.items()}
    skeleton = copy.deepcopy(models[0]).to("meta")

    def loss(one: dict[str, Tensor], state: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(functional_call(skeleton, (one, state), (work.x,)), work.y)

    gradients = vmap(grad(loss))
    rates = torch.linspace(0.001, 0.01, num_lanes)
    views = [-rates.view(-1, *(1,) * (value.dim() - 1)) for value in params.values()]
    momenta = [torch.zeros_like(value) for value in params.values()]

    def step() -> None:
        found = gradients(params, buffers)
        torch._foreach_mul_(momenta, MOMENTUM)
        torch._foreach_add_(momenta, [found[name] for name in params])
        torch._foreach_addcmul_(list(params.values()), momenta, views)

    try:
        step()
    except Exception as error:
        return str(error).splitlines()[0]
    return step


def lanes(work: Workload, width: int, num_lanes: int) -> Steps:
    """The loop of `separate`, under the engine that the user's function runs under."""
    members = list(members_of(num_lanes))
    roster = Roster([lane.config for lane in members])
    engine = LaneEngine(members, roster, torch.device("cpu"), Strategies())
    function = training_function(work, width)
    model = engine.add_model(lambda: work.build(width), None)
    rates = LaneConfig(roster)["lr"]
    optimizer = engine.add_optimizer(torch.optim.SGD, model, {"lr": rates, "momentum": MOMENTUM}, None)

    def steps(count: int) -> None:
        with engine.running(function):  # once, as in a study
            for _ in range(count):
                optimizer.zero_grad()
                F.cross_entropy(model(work.x), work.y).backward()
                optimizer.step()

    return steps


def members_of(num_lanes: int) -> Iterator[Lane]:
    for number in range(num_lanes):
        yield Lane(number=number, config={"lr": 0.001 * (1 + number / 16)}, seed=0)


def training_function(work: Workload, width: int) -> Callable[[hw.Trial], None]:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(lambda: work.build(width))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=MOMENTUM)
        for _ in range(100):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(work.x), work.y)
            loss.backward()
            optimizer.step()
        trial.report(loss=loss)

    return train


@dataclass(frozen=True)
class Cell:
    num_lanes: int
    separate: float
    vmap: float | str
    lanes: float
    """CPU seconds per lane-step."""


def measure_row(name: str, width: int, sizes: list[int], seconds: float) -> list[Cell]:
    """Measure the cells of a row in turns, and keep the least of each: other work on the machine only adds time."""
    rounds = [[measure_cell(name, width, size, seconds / NUM_ROUNDS) for size in sizes] for _ in range(NUM_ROUNDS)]
    return [least(turns) for turns in zip(*rounds, strict=True)]


def least(cells: Sequence[Cell]) -> Cell:
    vmaps = [cell.vmap for cell in cells if not isinstance(cell.vmap, str)]
    return Cell(
        num_lanes=cells[0].num_lanes,
        separate=min(cell.separate for cell in cells),
        vmap=min(vmaps) if vmaps else cells[0].vmap,
        lanes=min(cell.lanes for cell in cells),
    )


def measure_cell(name: str, width: int, num_lanes: int, seconds: float) -> Cell:
    ways = ("separate", "vmap", "lanes")
    times = {way: run_apart(time_way, way, name, width, num_lanes, seconds) for way in ways}
    return Cell(num_lanes=num_lanes, **times)


def run_apart(function: Callable[..., Any], *args: object) -> Any:
    """Call in a process of its own, as a user would have one: no way profits or suffers from another's memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(function, *args).result()


def time_way(way: str, name: str, width: int, num_lanes: int, seconds: float) -> float | str:
    """Return CPU seconds per lane-step: the lower quartile of blocks of steps. Or why there is none."""
    work = workloads()[name]
    if way == "separate":
        steps, num_lanes = repeat(separate(work, width)), 1
    elif way == "lanes":
        keep_freed_memory()  # as a study does
        steps = lanes(work, width, num_lanes)
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))  # with GPT-2 it keeps memory at every step
        vmapped = plain_vmap(work, width, num_lanes)
        if isinstance(vmapped, str):
            return vmapped
        steps = repeat(vmapped)
    try:
        warm_up(steps)
        count = count_steps(steps)
        return time_in_turns({way: partial(steps, count)}, seconds)[way] / count / num_lanes
    except (RuntimeError, MemoryError):
        return "out of memory"


def pick(name: str, width: int) -> int:
    """Return the group size that the profile of a study picks."""
    keep_freed_memory()
    work = workloads()[name]
    profile, ending = profile_lanes(Workshop(training_function(work, width)), list(members_of(128)))
    assert ending is None, ending
    return profile.num_lanes


def warm_up(steps: Steps) -> None:
    """Take so many steps that the ways of computing are chosen, unless that takes too long."""
    begin = time.process_time()
    for _ in range(WARM_UP_STEPS):
        steps(1)
        if time.process_time() - begin > WARM_UP_S:
            return


def count_steps(steps: Steps) -> int:
    """Return how many steps fill a block, which is long enough for the clock."""
    steps(1)
    begin = time.process_time()
    steps(1)
    return max(1, round(BLOCK_S / (time.process_time() - begin)))


def repeat(step: Callable[[], None]) -> Steps:
    def steps(count: int) -> None:
        for _ in range(count):
            step()

    return steps


def show_row(name: str, width: int, cells: list[Cell], picked: int) -> list[str]:
    best = min(cell.lanes for cell in cells)
    lines = []
    for cell in cells:
        alone = cell.separate
        vmapped = "-" if isinstance(cell.vmap, str) else f"{cell.vmap * 1e6:,.0f}"
        against = "-" if isinstance(cell.vmap, str) else f"{cell.vmap / cell.lanes:.2f}"
        mark = " ← picked" if cell.num_lanes == picked else ""
        lines.append(
            f"| {name} | {width} | {cell.num_lanes}{mark} | {alone * 1e6:,.0f} | {vmapped} | {cell.lanes * 1e6:,.0f} "
            f"| {alone / cell.lanes:.2f} | {against} | {best / cell.lanes:.2f} |"
        )
    return lines


def judge(rows: dict[tuple[str, int], tuple[list[Cell], int]]) -> list[str]:
    """Compare with the aims."""
    slower, narrow, picks = [], [], []
    for (name, width), (cells, picked) in rows.items():
        for cell in cells:
            if not isinstance(cell.vmap, str):
                ratio = cell.vmap / cell.lanes
                if ratio < 1:
                    slower.append(f"{name} {width} x {cell.num_lanes}: {ratio:.2f}")
                if width == 16 and cell.num_lanes == 32:
                    narrow.append(f"{name} {ratio:.2f}")
        alone = min(cell.separate for cell in cells)
        times = {cell.num_lanes: alone if cell.num_lanes == 1 else cell.lanes for cell in cells}
        if picked in times:
            gain, of_best = alone / times[picked], min(times.values()) / times[picked]
            picks.append(f"{name} {width}: {picked} lanes, {gain:.2f} x separate, {of_best:.2f} of best")
    return [
        "", "## Aims", "",
        f"- Cells slower than plain vmap: {'; '.join(slower) or 'none'}.",
        f"- Against plain vmap at width 16 and 32 lanes (aim 1.5): {', '.join(narrow)}.",
        "- Picked sizes (aims: at least 0.97 x separate, at least 0.95 of the best size of the row):",
        *(f"  - {line}" for line in picks),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=["MLP", "CNN", "LSTM", "GPT-2"])
    parser.add_argument("--widths", nargs="*", type=int, default=[16, 64, 256])
    parser.add_argument("--lanes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=0.6, help="CPU seconds to spend on each way of each cell")
    parser.add_argument("--keep-memory", action="store_true", help="give the other ways Headwater's memory setting too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.keep_memory:
        keep_freed_memory()
    warnings.simplefilter("ignore")
    print(heading("Lanes against separate training and plain vmap"))
    print(
        "CPU microseconds per lane-step (SGD with momentum, cross-entropy); above 1, lanes are faster. Each way has a"
    )
    print("process of its own, as its users run it; only Headwater's keeps freed memory for the next step.\n")
    print("| model | width | lanes | separate | vmap | Headwater | x separate | x vmap | of row's best |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = {}
    for name in options.models:
        for width in options.widths:
            picked = run_apart(pick, name, width)
            cells = measure_row(name, width, options.lanes, options.seconds)
            rows[name, width] = cells, picked
            print("\n".join(show_row(name, width, cells, picked)), flush=True)
    failed = {cell.vmap for cells, _ in rows.values() for cell in cells if isinstance(cell.vmap, str)}
    print("\n".join(judge(rows)))
    print(*(f"\n- plain vmap does not run: {reason}" for reason in failed))


if __name__ == "__main__":
    main()
