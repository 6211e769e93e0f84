"""How much each user may ask: often enough, not too often, and not too much at once."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headwater.errors import ServiceError
from headwater.serve.service.rates import AT_ONCE, MOST_UPLOADS, MOST_WAITING, PER_SECOND, RequestRates


class JumpingClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def ask_until_refused(rates: RequestRates, user: str, most: int = 10_000) -> int:
    for number in range(most):
        try:
            rates.count(user)
        except ServiceError:
            return number
    return most


def test_a_burst_is_answered_and_what_comes_after_it_in_time() -> None:
    clock = JumpingClock()
    rates = RequestRates(clock)
    assert ask_until_refused(rates, "ada") == AT_ONCE
    clock.now_s += 0.5
    assert ask_until_refused(rates, "ada") == PER_SECOND // 2
    clock.now_s += 3600
    assert ask_until_refused(rates, "ada") == AT_ONCE


def test_what_is_refused_can_be_tried_again() -> None:
    rates = RequestRates(JumpingClock())
    ask_until_refused(rates, "ada")
    with pytest.raises(ServiceError, match="user ada asks more than 50 times a second") as refused:
        rates.count("ada")
    assert refused.value.status == 429


def test_what_one_user_asks_is_no_others_concern() -> None:
    rates = RequestRates(JumpingClock())
    ask_until_refused(rates, "ada")
    rates.count("ben")


def test_who_keeps_to_the_pace_is_never_refused() -> None:
    clock = JumpingClock()
    rates = RequestRates(clock)
    for _ in range(3 * AT_ONCE):
        clock.now_s += 1 / PER_SECOND
        rates.count("ada")


def test_so_many_may_wait_at_once_and_others_when_they_have_ended() -> None:
    rates = RequestRates()
    with ExitStack() as waiting:
        for _ in range(MOST_WAITING):
            waiting.enter_context(rates.waiting("ada"))
        with pytest.raises(ServiceError, match="100 requests of user ada wait for news already"), rates.waiting("ada"):
            pass
        with rates.waiting("ben"):
            pass
    with rates.waiting("ada"):
        pass


def test_so_many_submissions_may_be_sent_at_once_and_others_when_they_are_there() -> None:
    rates = RequestRates()
    for _ in range(2):
        with ExitStack() as sending:
            for _ in range(MOST_UPLOADS):
                sending.enter_context(rates.uploading("ada"))
            with pytest.raises(ServiceError, match="submissions of user ada are being sent"), rates.uploading("ada"):
                pass
