"""The table of a service's studies, some of which are other users'."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from headwater.report.queue_table import queue_table
from headwater.serve.service.values import State, Submission


def draw(**progress: Any) -> str:  # Any: JSON values
    study = Submission(id="one", user="ada", file="a.py", options={}, state=State.RUNNING, created=0, progress=progress)
    console = Console(width=200, record=True)
    console.print(queue_table([study.as_json()]))
    return console.export_text()


@pytest.mark.parametrize("metric", ["[/]", "[link=https://example.org]loss[/link]", "[bold]loss"])
def test_markup_in_the_name_of_a_metric_is_text(metric: str) -> None:
    shown = draw(metric=metric, statuses={"running": 1}, best={"number": 3, "value": 0.5})
    assert f"{metric} 0.5 (trial 3)" in shown


def test_a_best_value_that_is_not_finite_is_said_to_be_so() -> None:
    assert "loss not finite (trial 3)" in draw(metric="loss", best={"number": 3, "value": None})
