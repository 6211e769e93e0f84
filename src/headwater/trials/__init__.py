"""The values that flow between stages: what to run, what was reported, what came of it."""

from headwater.trials.constraints import Constraint, read_constraints
from headwater.trials.deadline import Deadline
from headwater.trials.device_pool import DevicePool, DeviceWish
from headwater.trials.events import (
    Ended,
    Event,
    Finding,
    Foreseen,
    GroupEvent,
    Lost,
    Measured,
    Noted,
    Reported,
    Saved,
    Spent,
    Started,
    Starting,
    Stepped,
)
from headwater.trials.failures import Failure, read_failure
from headwater.trials.learnt import ChosenWay, KindProfile, KindTimes, Learnt
from headwater.trials.measurements import LoadingCost, Measurement, Profile, TrainingTime, UnitCost
from headwater.trials.objective import INFEASIBLE, Objective
from headwater.trials.parting import Question
from headwater.trials.placements import Brief, Device, Order, Placement, Purpose, StatesPlace
from headwater.trials.recipes import Recipe
from headwater.trials.records import (
    Arrival,
    Decision,
    Ending,
    Lane,
    Outcome,
    Report,
    Segment,
    Status,
    TrialGroup,
    TrialRecord,
)
from headwater.trials.replicas import MOST_SEEDS, average_replicas, join_arrivals
from headwater.trials.result import DeviceGains, Result
from headwater.trials.spans import Span, SpanPurpose
from headwater.trials.spending import NODE_STAYS, PRICES, SPENDING, NodeStay, Spending, StageSpending
from headwater.trials.surrogate import AUTO_SCALES, START, Drift, Slope, StartCheck, Surrogate, Trust
from headwater.trials.watching import PhaseWatcher, Pulse, Silence, Watcher

__all__ = [
    "AUTO_SCALES",
    "INFEASIBLE",
    "MOST_SEEDS",
    "NODE_STAYS",
    "PRICES",
    "SPENDING",
    "START",
    "Arrival",
    "Brief",
    "ChosenWay",
    "Constraint",
    "Deadline",
    "Decision",
    "Device",
    "DeviceGains",
    "DevicePool",
    "DeviceWish",
    "Drift",
    "Ended",
    "Ending",
    "Event",
    "Failure",
    "Finding",
    "Foreseen",
    "GroupEvent",
    "KindProfile",
    "KindTimes",
    "Lane",
    "Learnt",
    "LoadingCost",
    "Lost",
    "Measured",
    "Measurement",
    "NodeStay",
    "Noted",
    "Objective",
    "Order",
    "Outcome",
    "PhaseWatcher",
    "Placement",
    "Profile",
    "Pulse",
    "Purpose",
    "Question",
    "Recipe",
    "Report",
    "Reported",
    "Result",
    "Saved",
    "Segment",
    "Silence",
    "Slope",
    "Span",
    "SpanPurpose",
    "Spending",
    "Spent",
    "StageSpending",
    "StartCheck",
    "Started",
    "Starting",
    "StatesPlace",
    "Status",
    "Stepped",
    "Surrogate",
    "TrainingTime",
    "TrialGroup",
    "TrialRecord",
    "Trust",
    "UnitCost",
    "Watcher",
    "average_replicas",
    "join_arrivals",
    "read_constraints",
    "read_failure",
]
