"""The parts that a program is put together from, and the places in a training function where they go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

SKELETON = """
def train(trial):
    config = trial.config
    hidden, activation, rate, options = 3, nn.Tanh, config["lr"], {}
    best = 9.0
    @start
    @model
    @prepared
    loader = trial.prepare_data_loader(DATA, batch_size=4, shuffle=True)
    @optimizer
    @scheduler
    @count
    for epoch in count:
        total = 0.0
        @begun
        model.train()
        for a, b in loader:
            @batch
            @zeroed
            out = model(a)
            @forward
            loss = F.mse_loss(out, b)
            @loss
            @backward
            @gradients
            @step
            @stepped
            total += loss.item()
        metrics = {"loss": total}
        @ended
        trial.report(**metrics)
"""
"""A training function as people write it; lines with `@` are places."""

DEFAULTS = {
    "model": "model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1)))",
    "optimizer": "optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=rate, **options)",
    "count": "count = trial.epochs(3)",
    "zeroed": "optimizer.zero_grad()",
    "backward": "loss.backward()",
    "step": "optimizer.step()",
}
"""What stands at a place that no part has claimed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Code for some places of a program; at a place of `DEFAULTS` it stands instead of what is there."""

    name: str
    family: str
    code: Mapping[str, str]
    """By place; `top` is outside of the function. `$r` is the number it works with, `$n` is unique in the program."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Hyperparameters of its own: expressions of their values, separated by bars."""
    is_seeded_by_study: bool = False
    """Whether it draws random numbers while examples are loaded, which are seeded in a way of Headwater's own."""

    @property
    def claims(self) -> frozenset[str]:
        """The places that no other part may claim."""
        return frozenset(self.code) & frozenset(DEFAULTS)


def part(family: str, name: str, keys: Mapping[str, str] | None = None, /, **code: str) -> Part:
    """Make a part."""
    return Part(name, family, {place: dedent(text).strip("\n") for place, text in code.items()}, keys or {})
