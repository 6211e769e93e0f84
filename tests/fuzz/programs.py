"""Programs: drawn from a seed and an index, and written out as Python modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from string import Template
from textwrap import indent
from typing import Any

from tests.fuzz.constructs import GENERAL, Construct
from tests.fuzz.control_constructs import CONSTRUCTS_OF_FLOW, READS, WRAPPERS
from tests.fuzz.features import GROUPS, MODELS, SCALING
from tests.fuzz.kinds import COMPUTED, HYPERPARAMETERS, Kind
from tests.fuzz.loop_state import LOOP_STATE
from tests.fuzz.prelude import DATA, DEFINITIONS, PRELUDE
from tests.fuzz.process_state import PROCESS_STATE
from tests.fuzz.sinks import EARLY, LATE
from tests.fuzz.slots import DEFAULTS, SKELETON, Part
from tests.fuzz.specific_constructs import SPECIFIC
from tests.fuzz.state_features import CAUGHT, FUNCTIONS, STATE
from tests.fuzz.unknown_code import NUM_UNKNOWN, draw_unknown
from tests.fuzz.usual_features import CONFIG, USUAL

CONSTRUCTS = (*GENERAL, *SPECIFIC, *CONSTRUCTS_OF_FLOW)
FEATURES = (*GROUPS, *MODELS, *SCALING, *CAUGHT, *FUNCTIONS, *STATE, *CONFIG, *USUAL)
GIVEN_PAIRS = tuple((kind, one) for kind in HYPERPARAMETERS for one in CONSTRUCTS if one.fits(kind.traits))
COMPUTED_PAIRS = tuple((kind, one) for kind in COMPUTED for one in CONSTRUCTS if one.fits(kind.traits))
HOMES = ("here", "here", "here", "function", "method", "other module", "table", "wrapper")
RATES = (0.05, 0.1, 0.02, 0.2, 0.15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A value of some kind, what is done with it, and where the number goes that comes of it."""

    number: int
    kind: Kind
    read: str
    """The expression that gets the value."""
    wrapper: str
    construct: Construct
    sink: Part
    home: str
    """Where the construct stands: in the training function, a function, a method, another module, or only in a table or
    an object of another module."""

    @property
    def place(self) -> str:
        """Where in the training function it stands."""
        if not self.kind.is_computed:
            return "start"
        return "gradients" if self.kind.name == "norm" else "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a program is made of."""

    seed: int
    index: int
    chains: tuple[Chain, ...]
    features: tuple[Part, ...]
    configs: tuple[dict[str, Any], ...]
    """Expressions by key, nested as the configuration is."""
    leavers: frozenset[int]
    """The trials that are told to end after their first epoch."""

    @property
    def is_seeded_by_study(self) -> bool:
        """Whether plain PyTorch cannot draw the random numbers that it draws."""
        return any(one.is_seeded_by_study for one in self.features)

    @property
    def has_process_state(self) -> bool:
        """Whether it depends on the process that it runs in."""
        return any(one.family.startswith("process: ") for one in self.features)

    @property
    def labels(self) -> tuple[str, ...]:
        """What is in it, for tables."""
        own = [f"{one.construct.family}: {one.construct.name} ({one.kind.name})" for one in self.chains]
        return (*own, *(f"{one.family}: {one.name}" for one in self.features))


ROUND = ("unknown",) * 9 + ("state",) * 5 + ("feature",) * 2 + ("given",) * 3 + ("computed",)
"""The risky part of each program in a row of programs, in any order: one part is enough for most programs."""
ROUND_WITHOUT_UNKNOWN = tuple(risk for risk in ROUND if risk != "unknown")


def draw_program(seed: int, index: int, *, has_unknown_code: bool = True) -> Program:
    """Draw a program; over the indices of a seed, all parts of a table come up equally often.

    Most programs have one risky part, so that a difference has one cause and lanes are not split by another part first.
    """
    rng = Random(f"{seed}/{index}")
    risks = ROUND if has_unknown_code else ROUND_WITHOUT_UNKNOWN
    number, place = divmod(index, len(risks))
    turn = _draw_order(len(risks), f"{seed}/risks")[place]
    risk = risks[turn]
    count = number * risks.count(risk) + turn - risks.index(risk)
    chains, features = _draw_risk(rng, risk, seed, count)
    if rng.random() < 0.15:
        features.append(rng.choice(LOOP_STATE))
    elif rng.random() < 0.1:
        features.append(rng.choice(FEATURES))
    chosen, kept = _without_clashes(chains, features)
    num_lanes = rng.choice((2, 3, 3, 3, 4))
    configs = tuple(_draw_configs(rng, num_lanes, chosen, kept))
    leavers = frozenset(rng.sample(range(num_lanes), rng.randrange(1, num_lanes)) if rng.random() < 0.2 else ())
    return Program(seed=seed, index=index, chains=chosen, features=kept, configs=configs, leavers=leavers)


def _draw_risk(rng: Random, risk: str, seed: int, count: int) -> tuple[list[Chain], list[Part]]:
    """Draw the risky part of a program: the next of its table."""
    if risk == "unknown":
        return [], [draw_unknown(rng, _turn(range(NUM_UNKNOWN), seed, count))]
    if risk == "state":
        return [], [_turn((*LOOP_STATE, *PROCESS_STATE), seed, count)]
    if risk == "feature":
        return [], [_turn(FEATURES, seed, count)]
    return [_draw_chain(rng, 1, _turn(GIVEN_PAIRS if risk == "given" else COMPUTED_PAIRS, seed, count))], []


def _turn(items: Sequence[Any], seed: int, index: int) -> Any:
    """Take the items in turn, each round in another order."""
    number, place = divmod(index, len(items))
    return items[_draw_order(len(items), f"{seed}/round {number}")[place]]


@cache
def _draw_order(count: int, seed: str) -> list[int]:
    return Random(seed).sample(range(count), count)


def _draw_chain(rng: Random, number: int, pair: tuple[Kind, Construct]) -> Chain:
    kind, construct = pair
    sinks: Sequence[Part] = LATE if kind.is_computed else rng.choice((EARLY, LATE))
    if kind.name == "norm":
        sinks = tuple(sink for sink in LATE if "loss" not in sink.code and "gradients" not in sink.code)
    wrapper = rng.choice(list(WRAPPERS)) if rng.random() < 0.3 else rng.choice(("variable", "direct"))
    home = rng.choice(HOMES)
    read = rng.choice(READS) if kind.read == 'config["x"]' and rng.random() < 0.25 else kind.read
    read = re.sub(r"\bx\b", f"x{number}", read) if not kind.is_computed else read
    wrapper = "variable" if wrapper == "direct" and home != "here" else wrapper
    sink = rng.choice(sinks)
    return Chain(number=number, kind=kind, read=read, wrapper=wrapper, construct=construct, sink=sink, home=home)


def _without_clashes(chains: Sequence[Chain], features: Sequence[Part]) -> tuple[tuple[Chain, ...], tuple[Part, ...]]:
    """Leave out what cannot be in one program with what comes before it."""
    sinks: list[Chain] = []
    for one in chains:
        if not any(_clash(one.sink, other.sink) for other in sinks):
            sinks.append(one)
    kept: list[Part] = []
    for feature in features:
        if not any(_clash(feature, other) for other in (*(one.sink for one in sinks), *kept)):
            kept.append(feature)
    return tuple(sinks), tuple(kept)


def _clash(one: Part, other: Part) -> bool:
    """Whether both claim the same place, or one builds another model than the other counts on."""
    is_model = any("model" in a.claims and _uses_layers(b) for a, b in ((one, other), (other, one)))
    return one is other or bool(one.claims & other.claims) or is_model


def _uses_layers(one: Part) -> bool:
    """Whether a part counts on the layers of the usual model."""
    return "model" not in one.code and any("model[" in text for text in one.code.values())


def _draw_configs(
    rng: Random, num_lanes: int, chains: Sequence[Chain], features: Sequence[Part]
) -> list[dict[str, Any]]:
    rates = rng.sample(RATES, num_lanes)
    configs: list[dict[str, Any]] = [{"lr": repr(rate)} for rate in rates]
    for one in chains:
        for config, value in zip(configs, _spread(rng, one.kind.values, num_lanes), strict=True):
            place = config.setdefault(one.kind.section, {}) if one.kind.section else config
            if value and not (one.kind.section == "maybe" and rng.random() < 0.4):
                place[f"x{one.number}"] = value
    for feature in features:
        for key, values in feature.keys.items():
            choices = tuple(value.strip() for value in values.split("|"))
            for config, value in zip(configs, _spread(rng, choices, num_lanes), strict=True):
                config[key] = value
    return configs


def _spread(rng: Random, values: Sequence[str], count: int) -> list[str]:
    """Give each trial a value, such that they are not all equal if there are two values or more."""
    if not values:
        return [""] * count
    few = rng.sample(values, min(len(values), rng.choice((2, 2, 3))))
    drawn = [*few, *rng.choices(few, k=count)][:count]
    rng.shuffle(drawn)
    return drawn


def write_program(program: Program) -> dict[str, str]:
    """Return the text of its module, under "main", and of another one that it imports, if any."""
    places: dict[str, list[str]] = {}
    functions: dict[str, list[str]] = {"main": [], "other": []}
    for one in program.chains:
        _write_chain(one, places, functions)
    for feature in program.features:
        for place, text in feature.code.items():
            places.setdefault(place, []).append(text)
    top = "\n\n".join(places.pop("top", []))
    body = _fill(places)
    configs = "CONFIGS = [\n" + "".join(f"    {_show(config)},\n" for config in program.configs) + "]\n"
    main = "\n\n".join([top, *functions["main"], configs, body])
    title = f'"""Program {program.index} of seed {program.seed}: {"; ".join(program.labels)}."""\n\n'
    if not functions["other"]:
        return {"main": f"{title}{PRELUDE}{DATA}\n{_define(main)}\n\n{main}"}
    other = "\n\n".join(functions["other"])
    other = f'"""Functions of program {program.index}."""\n\n{PRELUDE}\n{_define(other + main)}\n\n{other}\n'
    return {"main": f"{title}{PRELUDE}from @other import *\n{DATA}\n\n{main}", "other": other}


def _write_chain(one: Chain, places: dict[str, list[str]], functions: dict[str, list[str]]) -> None:
    """Put a chain's code to its places, and into functions where it has a home outside of the training function."""
    n = one.number
    names = {"r": f"r{n}", "n": str(n), "a": one.kind.literals[0], "b": one.kind.literals[1]}
    value = f"v{n}"
    lines = places.setdefault(one.place, [])
    if one.wrapper == "direct":
        value = f"({one.read})"
    else:
        lines.append(f"{value} = {Template(WRAPPERS[one.wrapper]).substitute(v=one.read)}")
    code = Template(one.construct.code).safe_substitute(names, v=value if one.home == "here" else "value")
    squash = f"r{n} = 0.1 + (r{n} % 7) / 10"
    if one.home == "here":
        lines += [code, squash]
    else:
        where = functions["other" if one.home in ("other module", "table", "wrapper") else "main"]
        head = f"def derive{n}(value):\n"
        text = head + indent(f"{code}\nreturn r{n}", "    ")
        if one.home == "method":
            text = f"class Chooser{n}:\n" + indent("@staticmethod\n" + text, "    ")
        where.append(text + _KEPT.get(one.home, "").replace("$n", str(n)))
        call = (
            f"Chooser{n}.derive{n}" if one.home == "method" else f"TABLE{n}[0]" if one.home in _KEPT else f"derive{n}"
        )
        lines += [f"r{n} = {call}({value})", squash]
    for place, text in one.sink.code.items():
        places.setdefault(place, []).append(Template(text).safe_substitute(names))


_KEPT = {
    "table": "\nTABLE$n = [derive$n]\ndel derive$n",
    "wrapper": "\nTABLE$n = [Wrapper(derive$n)]\ndel derive$n",
}
"""What leaves a function nowhere but in a list."""


def _fill(places: dict[str, list[str]]) -> str:
    """Write the training function with the code at its places."""
    lines: list[str] = []
    for line in SKELETON.strip("\n").split("\n"):
        name = line.strip().removeprefix("@")
        if not line.strip().startswith("@"):
            lines.append(line)
            continue
        found = places.get(name, [DEFAULTS[name]] if name in DEFAULTS else [])
        margin = line[: len(line) - len(line.lstrip())]
        lines += [indent(text, margin) for text in found if text]
    return "\n".join(lines) + "\n"


def _define(text: str) -> str:
    """Return the definitions that a text uses, and those that these use, in their order."""
    used: set[str] = set()
    while True:
        whole = text + "".join(DEFINITIONS[name] for name in used)
        more = {name for name in DEFINITIONS if re.search(rf"\b{name}\b", whole)} - used
        if not more:
            break
        used |= more
    return "\n\n".join(DEFINITIONS[name].strip("\n") for name in DEFINITIONS if name in used)


def _show(config: dict[str, Any]) -> str:
    items = (f"{key!r}: {_show(value) if isinstance(value, dict) else value}" for key, value in config.items())
    return "{" + ", ".join(items) + "}"
