"""The Pareto front is what comparing every pair gives."""

from __future__ import annotations

import random

import pytest

from headwater.trials.front import Candidate, find_front


def compare_all(candidates: list[Candidate]) -> list[int]:
    least = min(one.violation for one in candidates)
    sound = [one for one in candidates if one.violation == least]

    def is_beaten(one: Candidate) -> bool:
        return any(
            other.scores != one.scores and all(a <= b for a, b in zip(other.scores, one.scores, strict=True))
            for other in sound
        )

    return sorted(one.number for one in sound if not is_beaten(one))


@pytest.mark.parametrize("num_metrics", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_front_is_what_no_other_beats(num_metrics: int, seed: int) -> None:
    draw = random.Random(seed)
    candidates = [
        Candidate(number, tuple(float(draw.randrange(8)) for _ in range(num_metrics)), float(draw.randrange(2)))
        for number in range(60)
    ]
    assert find_front(candidates) == compare_all(candidates)


def test_equal_candidates_are_all_on_the_front() -> None:
    assert find_front([Candidate(2, (1.0, 2.0)), Candidate(0, (1.0, 2.0)), Candidate(1, (1.0, 3.0))]) == [0, 2]


def test_without_candidates_there_is_no_front() -> None:
    assert find_front([]) == []


def test_a_broken_constraint_keeps_a_candidate_off_unless_all_break_one() -> None:
    assert find_front([Candidate(0, (0.0,), violation=1.0), Candidate(1, (5.0,))]) == [1]
    assert find_front([Candidate(0, (0.0,), violation=2.0), Candidate(1, (5.0,), violation=1.0)]) == [1]
