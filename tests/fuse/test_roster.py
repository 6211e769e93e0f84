"""Who rides in a group, by the size of a value that was made then."""

from __future__ import annotations

import pytest

from headwater.errors import CannotFuseError
from headwater.fuse.roster import Roster


def test_a_value_from_before_lanes_left_is_narrowed_to_those_that_stayed() -> None:
    roster = Roster([{"lr": rate} for rate in (0.1, 0.2, 0.3, 0.4)])
    roster.narrow([1, 3])
    assert roster.places_since(4) == [1, 3]
    assert roster.places_since(2) == [0, 1]


def test_a_value_of_no_such_size_sends_lanes_apart() -> None:
    roster = Roster([{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}])
    roster.narrow([0, 2])
    with pytest.raises(CannotFuseError, match="cannot be told"):
        roster.places_since(5)
    assert roster.halt is not None
