"""An `if` that lanes answer differently: each lane goes its own way, if both ways are in a closed grammar.

The statements run once for each lane (`fuse/interpreting.py`), on the lane's own plain values and without any effect.
Then the lanes' variables and attributes are put together, and the calls that show or keep something are made. Code
outside of the grammar makes the lanes part by their answers; nothing has happened by then.

A lane alone would hold the very tensor that it has assigned or kept, here it holds a part of a new one. The difference
shows only where one of them is changed in place, so these are watched (`fuse/watches.py`).
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache
from numbers import Number
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse import files
from headwater.fuse.interpreting import (
    LEAVES,
    Answer,
    Effect,
    End,
    LaneRun,
    OutsideGrammar,
    Scope,
    Setting,
    gives_state,
)
from headwater.fuse.keeping import keep
from headwater.fuse.per_lane import PerLane, gather
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.roster import ROSTER, Roster
from headwater.torch_private import DisableTorchFunction, is_lane_tensor, lanes_of, stack_of

read_locals = builtins.locals
"""Reads the variables of the function that calls it."""
_CALLER = "headwater.train.running"
"""The module that calls training functions."""
_UNBOUND = object()


class Branch:
    """The lanes' different answers to the condition of an `if`."""

    def __init__(self, roster: Roster, answers: Sequence[bool]) -> None:
        self.roster = roster
        self.answers = tuple(answers)

    def part(self, reason: str) -> LanesPart:
        """Return the signal that the lanes part by their answers after all."""
        return self.roster.part(None, f"the code branches on what lanes computed: one side {reason}", self.answers)


def branch(test: Any) -> Any:
    """Return the condition of an `if`, or a Branch where lanes have computed different answers to it."""
    if isinstance(test, Tensor) and is_lane_tensor(test) and test.numel() == 1:
        test = test.item()
    if type(test) is not PerLane or test.recipe is not None or test.roster.place is not None:
        return test
    if test.roster.has_threads:
        return test  # another thread may read or write the same variables meanwhile
    answers = [bool(value) for value in test.values]
    return answers[0] if len({*answers}) == 1 else Branch(test.roster, answers)


def is_split(answer: Any) -> bool:
    """Tell whether lanes answer differently."""
    return type(answer) is Branch


def take_by_lane(
    rewrites: Rewrites, split: Branch, plan: tuple[str, str, Sequence[str], Sequence[str]], variables: dict[str, Any]
) -> dict[str, Any]:
    """Run an `if` for each lane; return the variables that were assigned, under "return" the value of the function.

    The plan has the source of the statements, the meaning of `break` and `return` in them, the variables that are used
    nowhere else, and those whose values no other variable can hold.
    """
    source, end, temporary, owned = plan
    frame = sys._getframe(2)
    caller = frame.f_back
    if end == "leave" and (caller is None or caller.f_globals.get("__name__") != _CALLER):
        end = "none"
    code = frame.f_code
    names = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    before = dict(variables)
    variables.clear()  # Python keeps the dictionary with the frame, and all that is in it
    setting = Setting(split.roster, rewrites, End(end))
    runs = [LaneRun(setting, place, Scope(names, before, frame.f_globals)) for place in range(len(split.roster))]
    try:
        signals = [_run(run, answer, source) for run, answer in zip(runs, split.answers, strict=True)]
        return _Joining(split.roster, runs, frozenset(owned), returns=end == "return").finish(signals, temporary)
    except CannotFuseError:
        raise
    except OutsideGrammar as error:
        raise split.part(str(error)) from error
    except Exception as error:  # of the user's code: only some lanes may see it
        raise split.part(f"fails: {error!r}") from error


def _run(run: LaneRun, answer: bool, source: str) -> Any:
    first, *others = _parse(source)
    assert isinstance(first, ast.If)
    return run.run([*(first.body if answer else first.orelse), *others])


@cache
def _parse(source: str) -> list[ast.stmt]:
    return ast.parse(source).body


def settle(tail: Sequence[tuple[str, str]], variables: dict[str, Any]) -> None:
    """Let lanes go that have left the last loop, with the weights that the end of the function loads into models."""
    roster = ROSTER.get()
    if roster is None or not roster.leavers:
        return
    for model, state in tail:
        _load_rows(variables[model], variables[state], roster)
    variables.clear()
    roster.watches.check(roster)
    roster.let_leavers_go()


def _load_rows(model: Any, state: Any, roster: Roster) -> None:
    """Do what `model.load_state_dict(state)` does for the lanes that leave."""
    own = model.state_dict() if isinstance(model, torch.nn.Module) and gives_state(model) else {}
    if not own or type(state) not in (dict, OrderedDict) or state.keys() != own.keys():
        raise roster.part(None, "a lane that leaves the last loop loads something else than a state dict into a model")
    with torch.no_grad(), DisableTorchFunction():
        for name, target in own.items():
            for place in roster.leavers:
                source = state[name]
                row = stack_of(source)[place] if is_lane_tensor(source) else source
                stack_of(target)[place].copy_(row)


class _Joining:
    """Puts together the values that lanes have assigned."""

    def __init__(self, roster: Roster, runs: Sequence[LaneRun], owned: frozenset[str], *, returns: bool) -> None:
        self._roster = roster
        self._runs = runs
        self._owned = owned
        self._returns = returns
        self._watched: dict[int, Tensor] = {}

    def finish(self, signals: Sequence[Any], temporary: Sequence[str]) -> dict[str, Any]:
        """Write attributes, show and keep, note the lanes that leave, and return the variables."""
        names = dict.fromkeys(name for run in self._runs for name in run.scope.assigned if name not in temporary)
        variables = {name: self._join_variable(name) for name in names}
        attributes = [(owner, name, self._join_attribute(owner, name)) for owner, name in self._attributes()]
        if self._returns:
            answers = [signal.value if isinstance(signal, Answer) else None for signal in signals]
            variables["return"] = self._join([*map(self._use, self._runs, answers)], "")
        for tensor in self._watched.values():
            if not self._roster.watches.add(tensor):
                raise OutsideGrammar("keeps too many tensors that other variables hold too")
        for owner, name, value in attributes:
            vars(owner)[name] = value
        for place, run in enumerate(self._runs):
            _perform(run.effects, place, self._roster)
        self._roster.leavers |= {place for place, signal in enumerate(signals) if signal is LEAVES}
        return variables

    def _attributes(self) -> list[tuple[Any, str]]:
        found = {(key): owner for run in self._runs for key, (owner, _) in run.attributes.items()}
        return [(owner, name) for (_, name), owner in found.items()]

    def _join_variable(self, name: str) -> Any:
        old = self._runs[0].scope.before.get(name, _UNBOUND)
        values = []
        for run in self._runs:
            if name not in run.scope.assigned and old is _UNBOUND:
                raise OutsideGrammar(f"assigns `{name}` for the first time")
            is_new = name in run.scope.assigned
            values.append(self._use(run, run.scope.assigned[name]) if is_new else self._keep(run, old))
        return self._join(values, name)

    def _join_attribute(self, owner: Any, name: str) -> Any:
        values = []
        for run in self._runs:
            _, value = run.attributes.get((id(owner), name), (owner, _UNBOUND))
            values.append(self._keep(run, vars(owner)[name]) if value is _UNBOUND else self._use(run, value))
        return self._join(values, "")

    def _use(self, run: LaneRun, value: Any) -> Any:
        """Return a value that a lane has assigned; watch the tensor that it shares memory with."""
        if isinstance(value, Tensor) and id(value) in run.sources:
            original = run.sources[id(value)][1]
            if value.numel() != 1:
                raise OutsideGrammar("keeps a tensor itself, not a copy of it")
            self._watched[id(original)] = original
        if type(value) in (tuple, dict, OrderedDict):
            for item in value if type(value) is tuple else value.values():
                self._use(run, item)
        return value

    def _keep(self, run: LaneRun, old: Any) -> Any:
        """Return the value that a lane has from before; watch it."""
        if isinstance(old, Tensor):
            self._watched[id(old)] = old
        if type(old) in (dict, OrderedDict):
            return _like(old, ((key, self._keep(run, item)) for key, item in old.items()))
        return run.read(old)

    def _join(self, values: Sequence[Any], name: str) -> Any:
        first = values[0]
        if all(value is first for value in values):
            return first
        if any(type(value) is not type(first) for value in values) and not all(map(_is_plain, values)):
            raise OutsideGrammar(f"assigns a {type(first).__name__} in the place of another value")
        if isinstance(first, Tensor):
            return self._join_tensors(values)
        if type(first) is tuple and all(len(value) == len(first) for value in values):
            return tuple(self._join(items, "") for items in zip(*values, strict=True))
        if type(first) in (dict, OrderedDict) and name in self._owned and all([*each] == [*first] for each in values):
            return _like(first, ((key, self._join([value[key] for value in values], "")) for key in first))
        if not all(map(_is_plain, values)):
            raise OutsideGrammar(f"assigns a {type(first).__name__} in the place of another")
        return gather(values, self._roster, None)

    def _join_tensors(self, values: Sequence[Tensor]) -> Tensor:
        kinds = {(value.shape, value.dtype, value.device, type(value)) for value in values}
        if len(kinds) > 1 or type(values[0]) is not Tensor or any(value.is_inference() for value in values):
            raise OutsideGrammar("assigns a tensor of another shape or type")
        with DisableTorchFunction():
            joined = lanes_of(torch.stack([*values]))
        self._watched[id(joined)] = joined
        return joined


def _like(old: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    """Return a dictionary of the same kind; a state dict has metadata beside its items."""
    made = type(old)(items)
    if type(old) is OrderedDict:
        vars(made).update(vars(old))
    return made


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, Number | str | bool)


def _perform(effects: Sequence[Effect], place: int, roster: Roster) -> None:
    """Make the calls of a lane that show or keep something."""
    before, roster.mask = roster.mask, tuple(each == place for each in range(len(roster)))
    try:
        for effect in effects:
            if effect.function is torch.save:
                keep(effect.function, *effect.args)
            elif getattr(effect.function, "__module__", "") == "shutil":
                _copy_file(effect.function, effect.args, place, roster)
            else:
                effect.function(*effect.args, **effect.kwargs)
    finally:
        roster.mask = before


def _copy_file(function: Any, paths: Sequence[Any], place: int, roster: Roster) -> None:
    """Copy the lane's own file, or one that all lanes share, to where the lane keeps its own."""
    source, target = paths
    if files.is_kept(roster, source):
        source = files.trial_path(roster, source, place)
    own = Path(files.trial_path(roster, target, place))
    own.parent.mkdir(parents=True, exist_ok=True)
    roster.kept.files.add(str(Path(target).absolute()))
    function(source, own)
