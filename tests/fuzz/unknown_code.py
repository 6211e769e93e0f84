"""Programs with code that Headwater need not know: a call, a number that differs by lane, and the place of the call."""

from __future__ import annotations

import re
from random import Random
from string import Template
from textwrap import indent

from tests.fuzz.slots import Part, part
from tests.fuzz.unknown_calls import CALLS, UnknownCall
from tests.fuzz.unknown_objects import OBJECTS

VALUES = {
    "hyperparameter": 'config["w"]',
    "computed hyperparameter": '(config["w"] * 2 - 0.1)',
    "loss": "loss.item()",
    "loss by hyperparameter": '(loss.item() * config["w"])',
    "float of a tensor": "float(out.detach().mean())",
}
"""Expressions of numbers that differ by lane."""
KEYS = {"w": "0.5 | 1.5 | 0.25 | 2.0"}
CONDITION = 'loss.item() * config["w"] > 1.0'
"""A condition that lanes answer differently."""


def _step(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    return {"stepped": act}


def _branch(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    return {"stepped": f"if {CONDITION}:\n{indent(act, '    ')}"}


def _other_branch(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    return {"stepped": f"if {CONDITION}:\n    more = 1.0\nelse:\n{indent(act, '    ')}\n    more = 2.0"}


def _attempt(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    code = f"try:\n{indent(act, '    ')}\nexcept Exception:\n    num_caught += 1"
    return {"start": "num_caught = 0", "stepped": code, "ended": 'metrics["caught"] = num_caught'}


def _condition(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    read = Template(call.read).safe_substitute(s="state")
    return {"stepped": f"{act}\nif {read} > 1.0:\n    total += 0.5"}


def _function(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    body = Template(call.act).safe_substitute(s="s", v="v")
    return {"top": f"def note(s, v):\n{indent(body, '    ')}\n    return s", "stepped": f"state = note(state, {value})"}


def _key(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    read = Template(call.read).safe_substitute(s="state")
    lines = ["def rank(item):", *([] if "state" not in _assigned(act) else ["    nonlocal state"]), indent(act, "    ")]
    text = "\n".join([*lines, f"    return (item - {value}) * (1 + 0.1 * {read})"])
    return {"stepped": f"{text}\ntotal += 0.1 * max([0.1, 0.9, 1.7], key=rank)"}


def _comprehension(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    body = Template(call.act).safe_substitute(s="s", v="v")
    top = f"def note(s, v):\n{indent(body, '    ')}\n    return s"
    return {"top": top, "stepped": f"state = [note(state, one) for one in [{value}, 0.5]][-1]"}


def _forward(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    body = Template(call.act).safe_substitute(s="self.state", v="self.weight")
    read = Template(call.read).safe_substitute(s="self.state")
    top = f"""class Layer(nn.Module):
    def __init__(self, weight, state):
        super().__init__()
        self.weight, self.state = weight, state

    def forward(self, x):
{indent(body, "        ")}
        return x * (1 + 0.1 * {read})"""
    model = (
        'model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), Layer(config["w"], {}), nn.Linear(hidden, 1)))'
    )
    return {"top": top, "model": model.format(call.setup)}


def _data_set(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    body = Template(call.act).safe_substitute(s="self.state", v="self.weight")
    read = Template(call.read).safe_substitute(s="self.state")
    top = f"""class Data(torch.utils.data.Dataset):
    def __init__(self, weight, state):
        self.weight, self.state = weight, state

    def __len__(self):
        return 8

    def __getitem__(self, place):
{indent(body, "        ")}
        return INPUTS[place] * (1 + 0.1 * {read}), TARGETS[place]"""
    return {
        "top": top,
        "scheduler": f'loader = trial.prepare_data_loader(Data(config["w"], {call.setup}), batch_size=4, shuffle=True)',
    }


def _collate(call: UnknownCall, value: str, act: str) -> dict[str, str]:
    body = Template(call.act).safe_substitute(s="self.state", v="self.weight")
    read = Template(call.read).safe_substitute(s="self.state")
    top = f"""class Collate:
    def __init__(self, weight, state):
        self.weight, self.state = weight, state

    def __call__(self, items):
{indent(body, "        ")}
        return torch.stack([a for a, _ in items]) * (1 + 0.1 * {read}), torch.stack([b for _, b in items])"""
    loader = (
        f'trial.prepare_data_loader(DATA, batch_size=4, shuffle=True, collate_fn=Collate(config["w"], {call.setup}))'
    )
    return {"top": top, "scheduler": f"loader = {loader}"}


PLACES = {
    "step": _step,
    "if block": _branch,
    "else block": _other_branch,
    "try block": _attempt,
    "condition": _condition,
    "function": _function,
    "key function": _key,
    "comprehension": _comprehension,
    "forward of a module": _forward,
    "data set": _data_set,
    "collate function": _collate,
}
"""Functions that write a call at a place of the training function."""
OWN_STATE = ("forward of a module", "data set", "collate function")
"""Places at which an object of the user holds the state."""


def place_call(call: UnknownCall, place: str, value: str, scope: str) -> Part:
    """Return the part of a program that makes a call at a place with a value; `scope` is where the state begins."""
    act = Template(call.act).safe_substitute(s="state", v=VALUES[value])
    code = PLACES[place](call, VALUES[value], act)
    if place not in OWN_STATE:
        code = _join({scope: f"state = {call.setup}"}, code)
        code = _join(code, {"ended": f'metrics["kept"] = {Template(call.read).safe_substitute(s="state")}'})
    else:
        value = "hyperparameter"
    tops = [text for text in (_import(call), call.top, code.pop("top", "")) if text]
    code["top"] = "\n\n".join(tops)
    family = call.family if place in ("step", "function", "condition", "comprehension") else f"{place}: {call.family}"
    return part(family, f"{call.name} ({place}, {value}, {scope})", KEYS, **code)


NUM_UNKNOWN = len(CALLS) + len(OBJECTS)


def draw_unknown(rng: Random, number: int) -> Part:
    """Return the object of this number, or draw a place and a value for the call of this number."""
    if number >= len(CALLS):
        return OBJECTS[number - len(CALLS)]
    scope = rng.choice(("start", "begun", "begun"))
    return place_call(CALLS[number], rng.choice(list(PLACES)), rng.choice(list(VALUES)), scope)


def _assigned(act: str) -> str:
    return " ".join(re.findall(r"^(\w+)(?: [|+]?=| \+=)", act, re.MULTILINE))


def _join(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    places = dict.fromkeys([*one, *other])
    return {place: "\n".join(text[place] for text in (one, other) if place in text) for place in places}


def _import(call: UnknownCall) -> str:
    text = " ".join((call.setup, call.act, call.read))
    return "\n".join(line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\.", text))


_IMPORTS = {
    "array": "import array",
    "contextvars": "import contextvars",
    "weakref": "import weakref",
    "scipy": "import scipy.interpolate, scipy.optimize, scipy.special, scipy.stats",
    "sklearn": "import sklearn.metrics, sklearn.preprocessing",
}
