"""What a program does besides computing comes to the same in plain PyTorch, one by one and in lanes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.comparing import compare_ways
from tests.fuzz.programs import Program
from tests.fuzz.running import ALONE, LANES, run_program
from tests.fuzz.side_effects import SIDE_EFFECTS
from tests.fuzz.slots import Part

RATES = ("0.1", "0.05", "0.2")


@pytest.mark.parametrize("feature", SIDE_EFFECTS, ids=lambda feature: f"{feature.family}: {feature.name}")
def test_every_trial_gets_its_own_numbers(feature: Part, tmp_path: Path) -> None:
    choices = {key: [value.strip() for value in values.split("|")] for key, values in feature.keys.items()}
    configs = tuple(
        {"lr": rate} | {key: values[place % len(values)] for key, values in choices.items()}
        for place, rate in enumerate(RATES)
    )
    program = Program(seed=0, index=0, chains=(), features=(feature,), configs=configs, leavers=frozenset())
    ways = run_program(program, tmp_path, [ALONE, LANES])
    assert [trial.note for trial in ways.plain] == [""] * len(configs)
    assert compare_ways(ways) == []
