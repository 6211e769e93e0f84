"""Joint numbers say whose trial it is, and which."""

from __future__ import annotations

import pytest

from headwater.trials.joint_numbers import MOST_TRIALS, join_number, split_number


@pytest.mark.parametrize("member", [0, 1, 7])
@pytest.mark.parametrize("number", [0, 3, MOST_TRIALS - 1])
def test_a_joint_number_says_which_study_and_which_trial(member: int, number: int) -> None:
    assert split_number(join_number(member, number)) == (member, number)


def test_the_trials_of_the_first_study_keep_their_numbers() -> None:
    assert join_number(0, 12) == 12
