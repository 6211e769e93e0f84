"""The values that flow between stages: what to run, what was reported, what came of it."""

from headwater.trials.deadline import Deadline
from headwater.trials.parting import Question, Recipe
from headwater.trials.records import (
    Decision,
    Ending,
    Lane,
    Measurement,
    Outcome,
    Profile,
    Report,
    Segment,
    Status,
    TrainingTime,
    TrialGroup,
    TrialRecord,
)
from headwater.trials.replicas import average_replicas
from headwater.trials.result import Result
from headwater.trials.surrogate import START, Drift, Slope, StartCheck, Surrogate, Trust

__all__ = [
    "START",
    "Deadline",
    "Decision",
    "Drift",
    "Ending",
    "Lane",
    "Measurement",
    "Outcome",
    "Profile",
    "Question",
    "Recipe",
    "Report",
    "Result",
    "Segment",
    "Slope",
    "StartCheck",
    "Status",
    "Surrogate",
    "TrainingTime",
    "TrialGroup",
    "TrialRecord",
    "Trust",
    "average_replicas",
]
