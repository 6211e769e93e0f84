"""Making a program smaller while it still shows a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.programs import Chain, Program
from tests.fuzz.sinks import LATE

PLAIN_SINK = next(sink for sink in LATE if (sink.family, sink.name) == ("report", "metric"))


def find_culprits(program: Program, differs: Callable[[Program], bool]) -> tuple[str, ...]:
    """Return the parts that differ by themselves; all parts where only several together do."""
    if len(program.labels) == 1:
        return program.labels
    found = [label for part in _single_parts(program) if differs(part) for label in part.labels]
    return tuple(found) or (" + ".join(program.labels),)


def _single_parts(program: Program) -> Iterator[Program]:
    for chain in program.chains:
        yield replace(program, chains=(chain,), features=())
    for feature in program.features:
        yield replace(program, chains=(), features=(feature,))


def shrink(program: Program, differs: Callable[[Program], bool]) -> Program:
    """Return the smallest program that still differs, by dropping one thing after the other."""
    while True:
        smaller = next((one for one in _smaller_ones(program) if differs(one)), None)
        if smaller is None:
            return program
        program = smaller


def _smaller_ones(program: Program) -> Iterator[Program]:
    """Yield programs with one thing less."""
    for chain in program.chains:
        yield replace(program, chains=tuple(one for one in program.chains if one is not chain))
    for feature in program.features:
        yield replace(program, features=tuple(one for one in program.features if one is not feature))
    if program.leavers:
        yield replace(program, leavers=frozenset())
    for place, chain in enumerate(program.chains):
        for simpler in _simpler_ones(chain):
            yield replace(program, chains=(*program.chains[:place], simpler, *program.chains[place + 1 :]))
    for place in range(len(program.configs) if len(program.configs) > 2 else 0):
        configs = program.configs[:place] + program.configs[place + 1 :]
        yield replace(program, configs=configs, leavers=frozenset())


def _simpler_ones(chain: Chain) -> Iterator[Chain]:
    if chain.home != "here":
        yield replace(chain, home="here")
    if chain.wrapper != "variable":
        yield replace(chain, wrapper="variable")
    if "config" in chain.read and chain.read != (usual := f'config["x{chain.number}"]') and not chain.kind.section:
        yield replace(chain, read=usual)
    if chain.sink is not PLAIN_SINK:
        yield replace(chain, sink=PLAIN_SINK)
