"""The policies by which devices are allocated to trials."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """How devices are allocated."""

    FIFO = "fifo"
    """A device for each trial, in the order given."""
    EVEN = "even"
    """As many devices for each as there are for all."""
    STATIC = "static"
    """The paper's shares at the start of a stage, then no change."""
    FLUID = "fluid"
    """The paper's rules: static shares, and anew over all devices when one is free and nothing waits."""
    OURS = "ours"
    """The plan that ends first in prediction, made anew whenever a change would gain more than it costs."""


ALLOCATIONS = ("ours", "fluid", "even", "fifo")
"""What a study can ask for."""
