"""What a run was to hold and to cost over time, and what it held and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.page_studies import SPENT

from headwater.report.figures.nodes import add_costs, count_nodes, draw_nodes, plan_costs, plan_sizes


def test_nodes_are_counted_from_when_they_come_until_they_go() -> None:
    sizes = dict(count_nodes(SPENT.stays, SPENT.seconds))
    assert [sizes[at_s] for at_s in (0.0, 40.0, 45.0, 100.0)] == [2, 1, 2, 0]
    assert count_nodes([], 5.0)[-1] == (5.0, 0.0)


def test_costs_add_up_to_what_was_paid() -> None:
    costs = dict(add_costs(SPENT.stays, SPENT.seconds))
    assert costs[0.0] == 0
    assert costs[50.0] == pytest.approx(0.4 + 0.5 + 0.1)
    assert costs[100.0] == pytest.approx(0.4 + 1.0 + 1.1)


def test_the_plan_is_drawn_by_its_stages() -> None:
    assert plan_sizes(SPENT) == [(0.0, 0.0), (0.0, 2), (90.0, 2), (90.0, 0.0)]
    assert plan_costs(SPENT) == [(0.0, 0.0), (90.0, 1.5)]


def test_limits_and_losses_are_drawn() -> None:
    drawing = draw_nodes("mine", SPENT)
    assert drawing.count("<title>a node was lost</title>") == 1
    assert drawing.count(">deadline<") == 2
    assert drawing.count(">budget<") == 1


def test_lines_are_told_apart_without_their_colours_and_thousands_are_written_out() -> None:
    drawing = draw_nodes("mine", replace(SPENT, seconds=1_500.0, deadline_s=None))
    assert drawing.count('stroke-dasharray="7 4"') == 3, "the plan, twice and in the legend"
    assert ">1000<" in drawing
    assert "1e3" not in drawing
