"""Kinds of values that a program may do something with: hyperparameters, and what training has computed.

A kind has traits, by which constructs say what they can be applied to:

- *any*: all kinds. *number*, *whole* (an int), *text*, *tuple*, *class*, *function*, *enum*: as they say.
- *shown*: its text is the same in every run, so that its digits or letters may be read.
- *key*: may be a key of a dictionary. *json*: may be written as JSON.
- *alone*: a constant of the module, so that `is` has a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a value may be."""

    name: str
    traits: frozenset[str]
    values: tuple[str, ...] = ()
    """Expressions of what a trial's configuration may hold; none for a value that is computed."""
    read: str = 'config["x"]'
    """The expression that a program gets the value by."""
    literals: tuple[str, str] = ("", "")
    """Two values of this kind to compare with."""
    section: str = ""
    """The part of the configuration that it is in; "maybe" is one whose keys only some trials have."""

    @property
    def is_computed(self) -> bool:
        """Whether it is known only while training."""
        return not self.values


def _kind(name: str, traits: str, values: str, **options: object) -> Kind:
    """Make a kind of hyperparameter; values are separated by bars, and the first two are compared with."""
    items = tuple(item.strip() for item in values.split("|"))
    literals = (items[0], items[1 % len(items)])
    return Kind(name=name, traits=frozenset(["any", *traits.split()]), values=items, literals=literals, **options)  # type: ignore[arg-type] # the caller's keywords


def _computed(name: str, traits: str, read: str, literals: tuple[str, str] = ("0.7", "0.4")) -> Kind:
    return Kind(name=name, traits=frozenset(["any", *traits.split()]), read=read, literals=literals)


HYPERPARAMETERS = (
    _kind("int", "number whole shown key json", "1 | 2 | 3 | 4"),
    _kind("float", "number shown key json", "0.5 | 1.5 | 0.25 | 2.0"),
    _kind("bool", "number truth shown key json alone", "True | False"),
    _kind("none or text", "shown key json alone", 'None | "batch" | "layer"'),
    _kind("text", "text shown key json", '"Tanh" | "ReLU" | "ELU"'),
    _kind("numeral", "text numeral shown key json", '"3" | "12" | "7"'),
    _kind("class", "class key alone", "nn.Tanh | nn.ReLU | nn.ELU"),
    _kind("function", "function key alone", "torch.tanh | F.relu | double"),
    _kind("tuple", "tuple shown key json", "(1, 2) | (2, 3, 1) | (4,)"),
    _kind("list", "tuple shown json", "[1, 2] | [2, 3, 1] | [4]"),
    _kind("int or float", "number mixed shown key json", "1 | 0.5 | 2 | 1.5"),
    _kind("none or number", "shown key json alone", "None | 0.5 | 1 | 2.5"),
    _kind("bool or number", "number mixed shown key json", "True | 0.5 | 2 | False"),
    _kind("enum", "enum key alone", "Mode.FAST | Mode.SLOW"),
    _kind("section", "number shown key json", "0.5 | 2 | 1.5", read='config["part"]["x"]', section="part"),
    _kind(
        "optional key", "number shown key json", "0.5 | 2 | 1.5", read='config["maybe"].get("x", 0.75)', section="maybe"
    ),
    _kind("equal in all", "number shown key json", "0.5"),
)

COMPUTED = (
    _computed("item", "number", "loss.item()"),
    _computed("float(tensor)", "number", "float(loss.detach())"),
    _computed("tolist", "number", "out.detach().flatten().tolist()[0]"),
    _computed("rounded item", "number shown key json", "round(loss.item(), 2)"),
    _computed("count", "number whole shown key json", "(out > 0).sum().item()", ("1", "2")),
    _computed("truth", "number truth shown key json alone", "(out.mean() > 0.1).item()", ("True", "False")),
    _computed("comparison", "number truth shown key json alone", "loss.item() > 0.9", ("True", "False")),
    _computed("place", "number whole shown key json", "int(out.detach().flatten().argmax())", ("0", "1")),
    _computed("norm", "number", "nn.utils.clip_grad_norm_(model.parameters(), 9.0).item()"),
    _computed("best", "number", "min(best, loss.item())"),
    _computed("tensor", "tensor", "loss.detach()"),
    _computed("truth of tensors", "tensor", "(out.detach().mean() > 0.1)"),
)

KINDS = (*HYPERPARAMETERS, *COMPUTED)
