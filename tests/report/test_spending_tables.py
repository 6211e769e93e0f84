"""What nodes cost is said beside what was planned."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

from rich.console import Console

from headwater.report.spending_tables import describe_spending, show_spending, stages_table
from headwater.trials import NodeStay, Spending, StageSpending

STAGE = StageSpending(num_trials=9, num_epochs=1, planned_nodes=3, planned_s=60.0, planned_dollars=1.5)
SPENDING = Spending(
    seconds=50.0,
    cost_dollars=1.25,
    num_nodes=3,
    forecast_s=110.0,
    forecast_dollars=2.75,
    planned_s=100.0,
    planned_dollars=2.5,
    deadline_s=120.0,
    budget_dollars=5.0,
    stages=(STAGE,),
)


def test_a_line_of_progress_has_what_is_spent_foreseen_and_planned() -> None:
    assert show_spending(SPENDING) == "$1.25 spent, $2.75 foreseen, $2.50 planned, 3 nodes"
    assert show_spending(Spending(seconds=1.0, cost_dollars=0.5, num_nodes=1)) == "$0.50 spent, 1 node"
    assert show_spending(None) == ""
    again = Spending(seconds=1.0, cost_dollars=0.5, num_nodes=1, earlier_s=60.0, earlier_dollars=2.0)
    assert show_spending(again) == "$0.50 spent, $2.00 in earlier runs, 1 node"
    assert describe_spending(again).plain == "$0.50 in 1.0 s; earlier runs took $2.00 and 1 min 0 s"


def test_at_the_end_it_is_said_how_far_the_plan_was_off() -> None:
    text = describe_spending(replace(SPENDING, num_nodes=0, seconds=110.0, cost_dollars=2.25)).plain
    assert text.startswith("$2.25 in 1 min 50 s; planned were $2.50 in 1 min 40 s (-10% and +10%); ")
    assert text.endswith("a deadline of 2 min 0 s and a budget of $5.00")


def test_what_spot_nodes_cost_and_how_many_were_lost_is_said() -> None:
    text = describe_spending(replace(SPENDING, spot_dollars=1.0, num_lost=2)).plain
    assert "; $1.00 at the spot price and $0.25 on demand; 2 nodes taken back or lost; foreseen are" in text


def test_stages_stand_beside_their_plan() -> None:
    stage = replace(STAGE, num_nodes=3, seconds=66.0, cost_dollars=1.65)
    console = Console(file=StringIO(), width=120)
    console.print(stages_table(replace(SPENDING, stages=(stage, STAGE))))
    assert isinstance(console.file, StringIO)
    first, second = console.file.getvalue().strip().splitlines()[-2:]
    assert first.split() == ["1", "9", "1", "3", "3", "1", "min", "6", "s", "1", "min", "0", "s", "$1.65", "$1.50"]
    assert second.split() == ["2", "9", "1", "3", "1", "min", "0", "s", "$1.50"], "it has not ended"


def test_it_comes_back_from_json_as_it_was() -> None:
    stays = (NodeStay(node="a", begin_s=1.0, is_spot=True),)
    spending = replace(SPENDING, spot_dollars=1.0, stays=stays, prices=((60.0, 4.0), (90.0, 2.5)))
    facts = json.loads(json.dumps(dict(spending.list_facts())))
    assert Spending.from_json(facts["spending"], facts["node stays"], facts["price over deadline"]) == spending


def test_what_has_not_changed_is_not_written_again() -> None:
    spending = replace(SPENDING, stays=(NodeStay(node="a", begin_s=1.0),), prices=((60.0, 4.0),))
    later = replace(spending, seconds=55.0)
    assert [key for key, _ in later.list_facts(spending)] == ["spending"]
