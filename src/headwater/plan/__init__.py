"""Where and how trials run, as pure functions of values."""

from headwater.plan.agreement import correlate_ranks, measure_trust, spread_over
from headwater.plan.grouping import bucket_lanes, cut_groups, describe_bucket, halve_group
from headwater.plan.lanes import choose_num_lanes

__all__ = [
    "bucket_lanes",
    "choose_num_lanes",
    "correlate_ranks",
    "cut_groups",
    "describe_bucket",
    "halve_group",
    "measure_trust",
    "spread_over",
]
