"""What a page is told of the nodes that a study pays for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.page_studies import SPENT, write_paid, write_plain

from headwater.report.page.spending import describe_cost, pack_spending
from headwater.report.page.study_page import StudyPage
from headwater.store import open_store
from headwater.trials import SPENDING, NodeStay, Spending


def test_lines_are_those_of_the_figure_and_of_the_plan() -> None:
    packed = pack_spending(SPENT)
    assert packed["costs"][-1] == (100.0, pytest.approx(2.5))
    assert packed["planned_costs"] == [(0.0, 0.0), (90.0, 1.5)]
    assert packed["lost"] == [(40.0, 1)]
    assert packed["prices"][0] == (60.0, 4.0)


def test_a_run_that_goes_on_has_no_prices_of_the_whole() -> None:
    assert pack_spending(replace(SPENT, earlier_s=10.0, earlier_dollars=1.0))["prices"] == []


def test_what_all_runs_have_cost_is_said() -> None:
    assert describe_cost(None) is None
    said = describe_cost(replace(SPENT, earlier_dollars=1.0, forecast_dollars=2.5, num_nodes=1))
    assert said == {"dollars": 3.0, "planned_dollars": 1.5, "forecast_dollars": 2.5, "budget_dollars": 3.0}


def test_a_run_without_a_plan_has_no_planned_lines() -> None:
    packed = pack_spending(Spending(seconds=10.0, cost_dollars=1.0, num_nodes=1))
    assert (packed["planned_sizes"], packed["planned_costs"]) == ([], [])


def test_the_lines_of_thousands_of_nodes_are_thinned() -> None:
    stays = tuple(NodeStay(node=str(place), begin_s=float(place), end_s=place + 1.5) for place in range(5_000))
    packed = pack_spending(replace(SPENT, seconds=6_000.0, stays=stays))
    assert 500 < len(packed["sizes"]) <= 2_001
    assert packed["sizes"][-1][0] == 6_000.0


def test_a_study_tells_its_cost_as_it_grows_and_none_where_it_pays_nothing(tmp_path: Path) -> None:
    write_paid(tmp_path / "paid.db")
    write_plain(tmp_path / "free.db")
    with open_store(tmp_path / "paid.db") as store, open_store(tmp_path / "free.db", create=False) as free:
        page, other = StudyPage(store, store.study()), StudyPage(free, free.study())
        page.refresh()
        other.refresh()
        assert page.head["cost"]["dollars"] == 2.0
        assert (other.head["cost"], other.whole()["spending"]) == (None, None)
        store.add_fact(store.study().id, SPENDING, replace(SPENT, cost_dollars=2.25).as_json())
        patch = page.refresh()
        assert patch is not None
        assert patch["spending"]["cost_dollars"] == 2.25
        assert patch["head"]["cost"]["dollars"] == 2.25
