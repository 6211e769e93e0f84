"""What a plan may come to: its steps as a graph, their times drawn at random, the longest way through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import fmean, quantiles

from headwater.plan.elastic import Prediction, predict
from headwater.plan.jobs import SECONDS_PER_HOUR, Billing, Job, JobStage
from headwater.plan.stage_times import Chain, list_chains

NUM_SAMPLES = 200


class Step(StrEnum):
    """What a node of the graph stands for."""

    SCALE = "scale"
    """Instances were asked for, and all wait until they are there."""
    INITIALISE = "initialise"
    """A new instance prepares itself."""
    TRAIN = "train"
    """A trial trains through its stage."""
    SYNC = "sync"
    """The trials of a stage are compared."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step of a plan, and those that come before it by their places in the graph."""

    step: Step
    stage: int
    before: tuple[int, ...]
    chain: Chain | None = None
    """What trains, of which this node is one round."""
    first_device: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a plan comes to over many draws: the means, and the middle nine tenths."""

    seconds: float
    seconds_range: tuple[float, float]
    cost_dollars: float
    cost_range: tuple[float, float]
    chance_in_time: float | None = None
    """The share of draws that kept to a deadline, where there was one."""


def build_graph(job: Job, devices: Sequence[int]) -> list[Node]:
    """Return the steps of a plan, each after those it waits for."""
    nodes: list[Node] = []
    front: tuple[int, ...] = ()
    held = 0
    for number, (stage, num_devices) in enumerate(zip(job.stages, devices, strict=True)):
        wanted = job.instance.count_for(num_devices)
        if wanted > held:
            nodes.append(Node(Step.SCALE, number, front))
            scale = len(nodes) - 1
            nodes.extend(Node(Step.INITIALISE, number, (scale,)) for _ in range(wanted - held))
            front = tuple(range(scale + 1, len(nodes)))
        held = wanted
        front = _add_training(nodes, job, number, stage, num_devices, front)
        nodes.append(Node(Step.SYNC, number, front))
        front = (len(nodes) - 1,)
    return nodes


def _add_training(
    nodes: list[Node], job: Job, number: int, stage: JobStage, num_devices: int, front: tuple[int, ...]
) -> tuple[int, ...]:
    """Add the trials of a stage; where devices are few, rounds of them one after the other; return where these end."""
    ends: list[int] = []
    place = 0
    for chain in (chain for chain, count in list_chains(job, stage, num_devices) for _ in range(count)):
        before = front
        for _ in range(chain.num_rounds):
            nodes.append(Node(Step.TRAIN, number, before, chain, place))
            before = (len(nodes) - 1,)
        ends.extend(before)
        place += chain.num_devices
    return tuple(ends)


def forecast(
    job: Job,
    devices: Sequence[int],
    deadline_s: float | None = None,
    *,
    num_samples: int = NUM_SAMPLES,
    seed: int = 0,
) -> Forecast:
    """Draw the times of a plan's steps many times over, and return what it comes to."""
    graph = build_graph(job, devices)
    rng = Random(seed)
    draws = [_draw(job, devices, graph, rng) for _ in range(num_samples if is_uncertain(job) else 1)]
    seconds, costs = [draw.seconds for draw in draws], [draw.cost_dollars for draw in draws]
    return Forecast(
        seconds=fmean(seconds),
        seconds_range=_middle(seconds),
        cost_dollars=fmean(costs),
        cost_range=_middle(costs),
        chance_in_time=None if deadline_s is None else fmean(time <= deadline_s for time in seconds),
    )


def is_uncertain(job: Job) -> bool:
    """Tell whether two runs of a plan may take unlike times."""
    instance = job.instance
    spreads = (job.epoch_seconds.spread, job.start_up.variance, job.checkpoint.variance)
    return any((*spreads, instance.provisioning.variance, instance.initialisation.variance, _rate(job)))


def _draw(job: Job, devices: Sequence[int], graph: Sequence[Node], rng: Random) -> Prediction:
    """Draw every step once; return when the last one ends, and what the instances cost by then."""
    ends: list[float] = []
    taken: list[float] = []
    plain = predict(job, devices)
    lost = [_draw_interruptions(job, place, plain, rng) for place in range(len(plain.instances))]
    for node in graph:
        taken.append(_draw_step(job, node, lost[node.stage], rng))
        ends.append(max((ends[place] for place in node.before), default=0.0) + taken[-1])
    cost = _charge_functions(job, graph, taken) if job.billing is Billing.FUNCTION else _charge(job, graph, ends, plain)
    cost += sum(map(sum, lost)) * job.instance.launch_dollars
    return Prediction(seconds=max(ends), cost_dollars=cost, devices=plain.devices, instances=plain.instances)


def _draw_interruptions(job: Job, place: int, plan: Prediction, rng: Random) -> list[int]:
    """Draw how often each instance of a stage is taken back while it would train without that."""
    if not _rate(job):
        return [0] * plan.instances[place]
    longest = list_chains(job, job.stages[place], plan.devices[place])[0][0]
    seconds = longest.count_seconds(job, job.stages[place])
    return [_count_events(_rate(job), seconds, rng) for _ in range(plan.instances[place])]


def _count_events(per_second: float, seconds: float, rng: Random) -> int:
    count, at = 0, rng.expovariate(per_second)
    while at < seconds:
        count, at = count + 1, at + rng.expovariate(per_second)
    return count


def _rate(job: Job) -> float:
    return job.instance.interruptions_per_hour / SECONDS_PER_HOUR


def _draw_step(job: Job, node: Node, lost: Sequence[int], rng: Random) -> float:
    if node.step is Step.SCALE:
        return job.instance.provisioning.draw(rng)
    if node.step is Step.INITIALISE:
        return job.instance.initialisation.draw(rng)
    if node.chain is None:
        return 0.0
    chain = node.chain
    last = node.first_device + chain.num_devices - 1
    own = lost[node.first_device // job.instance.num_devices : last // job.instance.num_devices + 1]
    trained = job.epoch_seconds.draw(chain.epoch_s, job.stages[node.stage].num_epochs, rng)
    around = job.start_up.draw(rng) + job.checkpoint.draw(rng)
    return trained + around + sum(own) * chain.recover_s(job) / chain.num_rounds


def _charge_functions(job: Job, graph: Sequence[Node], taken: Sequence[float]) -> float:
    instance = job.instance
    device_s = sum(node.chain.num_devices * seconds for node, seconds in zip(graph, taken, strict=True) if node.chain)
    num_launched = sum(node.step is Step.INITIALISE for node in graph)
    per_device = instance.dollars_per_second / instance.num_devices
    return device_s * per_device + num_launched * instance.launch_dollars


def _charge(job: Job, graph: Sequence[Node], ends: Sequence[float], plan: Prediction) -> float:
    """Charge each instance from its initialisation to the end of the last stage that needs it, the oldest first out."""
    instance = job.instance
    synced = [end for node, end in zip(graph, ends, strict=True) if node.step is Step.SYNC]
    launched = {node.stage: end for node, end in zip(graph, ends, strict=True) if node.step is Step.SCALE}
    held: list[float] = []
    charged_s, num_launched = 0.0, 0
    for stage, wanted in enumerate(plan.instances):
        num_new = max(0, wanted - len(held))
        released, held = held[wanted:], [launched[stage]] * num_new + held[:wanted] if num_new else held[:wanted]
        now = synced[stage - 1] if stage else 0.0
        charged_s += sum(max(instance.minimum_s, now - since) for since in released)
        num_launched += num_new
    charged_s += sum(max(instance.minimum_s, synced[-1] - since) for since in held)
    return charged_s * instance.dollars_per_second + num_launched * instance.launch_dollars


def _middle(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    cuts = quantiles(values, n=20)
    return cuts[0], cuts[-1]
