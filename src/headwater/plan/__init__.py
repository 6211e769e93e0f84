"""Where and how trials run, as pure functions of values."""

from headwater.plan.grouping import bucket_lanes, cut_groups, describe_bucket, halve_group
from headwater.plan.lanes import choose_num_lanes

__all__ = ["bucket_lanes", "choose_num_lanes", "cut_groups", "describe_bucket", "halve_group"]
