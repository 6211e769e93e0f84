"""What a plan may come to: its steps as a graph, their times drawn at random, the longest way through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import fmean, quantiles

from headwater.plan.elastic import Prediction, predict
from headwater.plan.jobs import Billing, Job, JobStage

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
    num_devices: int = 0
    epoch_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a plan comes to over many draws: the means, and the middle nine tenths."""

    seconds: float
    seconds_range: tuple[float, float]
    cost_dollars: float
    cost_range: tuple[float, float]


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
    first = len(nodes)
    if num_devices >= stage.num_trials:
        width = job.devices_per_trial(stage, num_devices)
        epoch_s = job.epoch_seconds.at(width)
        nodes.extend(Node(Step.TRAIN, number, front, width, epoch_s) for _ in range(stage.num_trials))
        return tuple(range(first, len(nodes)))
    ends: list[int] = []
    for length in job.list_chains(stage, num_devices):
        seconds, num_rounds = job.epoch_seconds.of_chain(length)
        before = front
        for _ in range(num_rounds):
            nodes.append(Node(Step.TRAIN, number, before, 1, seconds / num_rounds))
            before = (len(nodes) - 1,)
        ends.extend(before)
    return tuple(ends)


def forecast(job: Job, devices: Sequence[int], *, num_samples: int = NUM_SAMPLES, seed: int = 0) -> Forecast:
    """Draw the times of a plan's steps many times over, and return what it comes to."""
    graph = build_graph(job, devices)
    rng = Random(seed)
    is_certain = not job.epoch_seconds.spread
    draws = [_draw(job, devices, graph, rng) for _ in range(1 if is_certain else num_samples)]
    seconds, costs = [draw.seconds for draw in draws], [draw.cost_dollars for draw in draws]
    return Forecast(
        seconds=fmean(seconds),
        seconds_range=_middle(seconds),
        cost_dollars=fmean(costs),
        cost_range=_middle(costs),
    )


def _draw(job: Job, devices: Sequence[int], graph: Sequence[Node], rng: Random) -> Prediction:
    """Draw every step once; return when the last one ends, and what the instances cost by then."""
    ends: list[float] = []
    taken: list[float] = []
    for node in graph:
        taken.append(_draw_step(job, node, rng))
        ends.append(max((ends[place] for place in node.before), default=0.0) + taken[-1])
    plain = predict(job, devices)
    cost = _charge_functions(job, graph, taken) if job.billing is Billing.FUNCTION else _charge(job, graph, ends, plain)
    return Prediction(seconds=max(ends), cost_dollars=cost, devices=plain.devices, instances=plain.instances)


def _draw_step(job: Job, node: Node, rng: Random) -> float:
    if node.step is Step.TRAIN:
        return job.epoch_seconds.draw(node.epoch_s, job.stages[node.stage].num_epochs, rng)
    return {Step.SCALE: job.instance.provision_s, Step.INITIALISE: job.instance.initialise_s}.get(node.step, 0.0)


def _charge_functions(job: Job, graph: Sequence[Node], taken: Sequence[float]) -> float:
    instance = job.instance
    device_s = sum(node.num_devices * seconds for node, seconds in zip(graph, taken, strict=True))
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
