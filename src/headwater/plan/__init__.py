"""Where and how trials run, as pure functions of values."""

from headwater.plan.agreement import correlate_ranks, measure_trust, order_by_merit, spread_over
from headwater.plan.grouping import (
    bucket_lanes,
    cut_alike,
    cut_groups,
    describe_bucket,
    halve_group,
    kind_of,
    share_lanes,
)
from headwater.plan.lanes import MAX_LANES, choose_num_lanes
from headwater.plan.packing import (
    NUM_AHEAD,
    Distance,
    Fits,
    PackCost,
    Packing,
    measure_distance,
    pack_by_cost,
    pack_by_key,
    pack_neighbours,
    pack_randomly,
    pack_singly,
    predict_pack,
    tabulate_distances,
)

__all__ = [
    "MAX_LANES",
    "NUM_AHEAD",
    "Distance",
    "Fits",
    "PackCost",
    "Packing",
    "bucket_lanes",
    "choose_num_lanes",
    "correlate_ranks",
    "cut_alike",
    "cut_groups",
    "describe_bucket",
    "halve_group",
    "kind_of",
    "measure_distance",
    "measure_trust",
    "order_by_merit",
    "pack_by_cost",
    "pack_by_key",
    "pack_neighbours",
    "pack_randomly",
    "pack_singly",
    "predict_pack",
    "share_lanes",
    "spread_over",
    "tabulate_distances",
]
