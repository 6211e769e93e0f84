"""CPU time per lane-step: separate training, plain torch.func.vmap, and lanes; and the group size the profile picks.

Run `python benchmarks/lanes.py` (about half an hour) or with `--models MLP --widths 16` for a part of it. The table
goes to standard output as Markdown; the committed one is benchmarks/lanes.md.
"""

import argparse
import copy
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from measuring import heading
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from turns import BLOCK_S, MOST_BYTES, OUT_OF_MEMORY, Race, Steps, Time, Way, call_apart

import headwater as hw
from headwater.fuse.roster import Roster
from headwater.fuse.strategies import Strategies
from headwater.train.config import LaneConfig
from headwater.train.engines import LaneEngine
from headwater.train.memory import keep_freed_memory
from headwater.train.profiling import profile_lanes
from headwater.train.running import TrainingSetup
from headwater.trials import Lane

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MOMENTUM = 0.9
NUM_LOOKS = 3
"""In so many processes is a size measured once more."""
WARM_UP_STEPS, WARM_UP_S = 32, 3.0
SPARED_BYTES = 3 * 2**30
"""What plain vmap must leave of the memory of a row."""

EXPLANATION = f"""\
CPU microseconds per lane-step (SGD with momentum, cross-entropy); above 1, lanes are faster. Each way and size has a
process of its own, as its users run it; only Headwater's keep freed memory for the next step. Those of a row take
turns of {BLOCK_S * 1000:.0f} ms (or of a step, if that is longer) and share {MOST_BYTES / 2**30:.0f} GiB.
The lower quartile of the turns is shown.
"""


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


def plain_vmap(work: Workload, width: int, num_lanes: int) -> Callable[[], None]:
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
    vmap: Time
    lanes: Time
    """CPU seconds per lane-step."""


@dataclass(frozen=True)
class Row:
    name: str
    width: int
    separate: float
    cells: list[Cell]
    picks: list[int]
    """The sizes that the profile of a study picked, each time in a new process."""
    rematch: Mapping[int, float]
    """The picks and the best size once more: the least of several noisy numbers looks better than it is."""

    @property
    def times(self) -> dict[int, float]:
        """CPU seconds per lane-step of each size, where one lane trains separately."""
        measured = {cell.num_lanes: cell.lanes for cell in self.cells if cell.num_lanes > 1}
        return {1: self.separate} | {size: time for size, time in measured.items() if not isinstance(time, str)}


def measure_row(name: str, width: int, sizes: list[int], seconds: float, num_picks: int) -> Row:
    """Measure all ways and sizes of a row in turns, with the picks before, between and after them."""
    work = workloads()[name]
    alone = Way(lambda: repeat(separate(work, width)))
    stacked = {size: Way(partial(prepare_lanes, work, width, size)) for size in sizes}
    # what plain vmap keeps of GPT-2 at every step must not leave the others without memory
    vmapped = {size: Way(partial(prepare_vmap, work, width, size), SPARED_BYTES) for size in sizes}
    race = Race([alone, *stacked.values(), *vmapped.values()], seconds)
    picks, num_parts = [], max(num_picks - 1, 1)
    for part in range(max(num_picks, num_parts)):
        if part < num_picks:
            picks.append(call_apart(pick, name, width))
        if part < num_parts:
            race.run(race.num_rounds * (part + 1) // num_parts - race.num_rounds * part // num_parts)
    race.end()
    cells = [Cell(size, per_lane(vmapped[size], size), per_lane(stacked[size], size)) for size in sizes]
    assert not isinstance(alone.seconds, str), alone.seconds
    row = Row(name, width, alone.seconds, cells, [size for size in picks if size is not None], {})
    best = min(row.times, key=lambda size: row.times[size])
    return replace(row, rematch=measure_again(work, width, sorted({best, *row.picks}), seconds))


def measure_again(work: Workload, width: int, sizes: Sequence[int], seconds: float) -> dict[int, float]:
    """Return what lanes of each size take, the median of several processes, for where its memory lies counts too."""
    if len(sizes) == 1:
        return {}
    ways = {size: [Way(partial(prepare_size, work, width, size)) for _ in range(NUM_LOOKS)] for size in sizes}
    race = Race([way for looks in ways.values() for way in looks], seconds)
    race.run(race.num_rounds)
    race.end()
    times = {size: [per_lane(way, size) for way in looks] for size, looks in ways.items()}
    return {size: median(time for time in found if not isinstance(time, str)) for size, found in times.items()}


def prepare_size(work: Workload, width: int, num_lanes: int) -> Steps:
    return repeat(separate(work, width)) if num_lanes == 1 else prepare_lanes(work, width, num_lanes)


def per_lane(way: Way, num_lanes: int) -> Time:
    return way.seconds if isinstance(way.seconds, str) else way.seconds / num_lanes


def prepare_lanes(work: Workload, width: int, num_lanes: int) -> Steps:
    keep_freed_memory()  # as a study does
    steps = lanes(work, width, num_lanes)
    warm_up(steps)
    return steps


def prepare_vmap(work: Workload, width: int, num_lanes: int) -> Steps:
    return repeat(plain_vmap(work, width, num_lanes))


def warm_up(steps: Steps) -> None:
    """Take so many steps that the ways of computing are chosen, unless that takes too long."""
    begin = time.process_time()
    for _ in range(WARM_UP_STEPS):
        steps(1)
        if time.process_time() - begin > WARM_UP_S:
            return


def pick(name: str, width: int) -> int:
    """Return the group size that the profile of a study picks."""
    keep_freed_memory()
    work = workloads()[name]
    profile, ending = profile_lanes(TrainingSetup(training_function(work, width)), list(members_of(128)))
    assert ending is None, ending
    return profile.num_lanes


def repeat(step: Callable[[], None]) -> Steps:
    def steps(count: int) -> None:
        for _ in range(count):
            step()

    return steps


def show_row(row: Row) -> list[str]:
    best = min((cell.lanes for cell in row.cells if not isinstance(cell.lanes, str)), default=row.separate)
    lines = []
    for cell in row.cells:
        num_picks = row.picks.count(cell.num_lanes)
        mark = f" ← picked {num_picks} of {len(row.picks)}" if num_picks else ""
        lines.append(
            f"| {row.name} | {row.width} | {cell.num_lanes}{mark} | {row.separate * 1e6:,.0f} | {show(cell.vmap)} "
            f"| {show(cell.lanes)} | {ratio(row.separate, cell.lanes)} | {ratio(cell.vmap, cell.lanes)} "
            f"| {ratio(best, cell.lanes)} |"
        )
    return lines


def show(seconds: Time) -> str:
    if isinstance(seconds, str):
        return OUT_OF_MEMORY if seconds == OUT_OF_MEMORY else "-"
    return f"{seconds * 1e6:,.0f}"


def ratio(slower: Time, faster: Time) -> str:
    return "-" if isinstance(slower, str) or isinstance(faster, str) else f"{slower / faster:.2f}"


def judge(rows: Sequence[Row]) -> list[str]:
    """Compare with the aims."""
    slower, narrow, picks = [], [], []
    for row in rows:
        for cell in row.cells:
            if isinstance(cell.vmap, str) or isinstance(cell.lanes, str):
                continue
            gain = cell.vmap / cell.lanes
            if gain < 1:
                slower.append(f"{row.name} {row.width} x {cell.num_lanes}: {gain:.2f}")
            if row.width == 16 and cell.num_lanes == 32:
                narrow.append(f"{row.name} {gain:.2f}")
        picks += [f"{row.name} {row.width}: {judge_pick(row, picked)}" for picked in row.picks]
    return [
        "", "## Aims", "",
        f"- Cells slower than plain vmap: {'; '.join(slower) or 'none'}.",
        f"- Against plain vmap at width 16 and 32 lanes (aim 1.5): {', '.join(narrow)}.",
        "- Picked sizes (aims: at least 0.97 x separate, at least 0.95 of the best size of the row):",
        *(f"  - {line}" for line in picks),
    ]  # fmt: skip


def judge_pick(row: Row, picked: int) -> str:
    if picked not in row.times:
        return f"{picked} lanes, which was not measured"
    seconds = row.times[picked]
    gain, of_best = row.separate / seconds, min(row.times.values()) / seconds
    again = f", measured again {min(row.rematch.values()) / row.rematch[picked]:.2f}" if row.rematch else ""
    return f"{picked} lanes, {gain:.2f} x separate, {of_best:.2f} of best{again}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=["MLP", "CNN", "LSTM", "GPT-2"])
    parser.add_argument("--widths", nargs="*", type=int, default=[16, 64, 256])
    parser.add_argument("--lanes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=1.5, help="CPU seconds to spend on each way of each size")
    parser.add_argument("--picks", type=int, default=3, help="how often the profile picks a size for each row")
    parser.add_argument("--keep-memory", action="store_true", help="give the other ways Headwater's memory setting too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.keep_memory:
        keep_freed_memory()
    warnings.simplefilter("ignore")
    gc.freeze()  # what was imported is not looked through before every turn
    print(heading("Lanes against separate training and plain vmap"))
    print(EXPLANATION)
    print("| model | width | lanes | separate | vmap | Headwater | x separate | x vmap | of row's best |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for name in options.models:
        for width in options.widths:
            rows.append(measure_row(name, width, options.lanes, options.seconds, options.picks))
            print("\n".join(show_row(rows[-1])), flush=True)
    print("\n".join(judge(rows)))
    for way in ("vmap", "lanes"):
        failures = {getattr(cell, way) for row in rows for cell in row.cells} - {OUT_OF_MEMORY}
        print(*(f"- {way} does not run: {reason}\n" for reason in failures if isinstance(reason, str)), sep="", end="")


if __name__ == "__main__":
    main()
