"""What can be rented, and how fast devices are that nothing was measured on."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import PlanError
from headwater.plan.catalogue import extend_catalogue, find_offer, load_catalogue
from headwater.plan.estimates import Work, load_abilities, recognise_kind
from headwater.plan.profiles import Basis, TimeProfile, read_profile, write_profile

CATALOGUE = load_catalogue()
V100 = {"seconds_per_epoch": {1: 10.0, 2: 6.0}, "device": "cuda Tesla V100-SXM2-16GB"}


def test_every_offer_is_dated_has_a_known_kind_of_device_and_costs_less_at_the_spot_price() -> None:
    assert len(CATALOGUE) >= 15
    for offer in CATALOGUE.values():
        assert offer.kind in load_abilities()
        assert offer.date.startswith("20")
        assert offer.source != "given"
        if offer.spot_dollars_per_hour is not None:
            assert 0 < offer.rent(is_spot=True).dollars_per_hour < offer.rent().dollars_per_hour


def test_prices_of_the_paper_are_in_it() -> None:
    names = ("p3.2xlarge", "p3.8xlarge", "p3.16xlarge")
    assert [find_offer(CATALOGUE, name).dollars_per_hour for name in names] == [3.06, 12.24, 24.48]


def test_a_user_overrides_and_adds_offers() -> None:
    own = extend_catalogue(
        CATALOGUE,
        {
            "p3.8xlarge": {"dollars_per_hour": 10, "provision_s": {"mean": 90, "spread": 0.5}},
            "lab": {"devices": 2, "dollars_per_hour": 0.5},
        },
    )
    rented = own["p3.8xlarge"].rent()
    assert (rented.dollars_per_hour, rented.num_devices, rented.provision_s) == (10, 4, 90)
    assert rented.provision_spread == 0.5
    assert own["lab"].rent().num_devices == 2
    assert CATALOGUE["p3.8xlarge"].dollars_per_hour == 12.24


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lab": {"dollars_per_hour": 1}}, "needs devices"),
        ({"lab": {"devices": 1, "dollars_per_hour": -1}}, "at least 0"),
        ({"lab": {"colour": "red"}}, "'colour'"),
    ],
)
def test_offers_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        extend_catalogue(CATALOGUE, given)


def test_a_name_that_is_not_there_is_answered_with_near_ones() -> None:
    with pytest.raises(PlanError, match=r"p3\.8xlarge"):
        find_offer(CATALOGUE, "p3.8xlrge")
    with pytest.raises(PlanError, match="no spot price"):
        find_offer(CATALOGUE, "c5.4xlarge").rent(is_spot=True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cuda Tesla V100-SXM2-16GB", "V100"),
        ("cuda NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("cuda NVIDIA A100-SXM4-40GB", "A100"),
        ("cuda NVIDIA L4", "L4"),
        ("cuda NVIDIA L40S", "L40S"),
        ("cpu x86_64 Some Processor, 1 threads", "cpu"),
        ("cuda Something New", None),
    ],
)
def test_devices_are_recognised_by_their_names(name: str, kind: str | None) -> None:
    assert recognise_kind(name, load_abilities()) == kind


def test_times_hold_for_the_kind_they_were_measured_on() -> None:
    fitted, basis = read_profile(V100).fit_to(CATALOGUE["p3.8xlarge"].rent())
    assert basis is Basis.MEASURED
    assert fitted.epoch_seconds == read_profile(V100).epoch_seconds


def test_another_kind_is_scaled_as_the_user_says_or_estimated_as_such() -> None:
    profile, instance = read_profile(V100), CATALOGUE["g4dn.xlarge"].rent()
    scaled, basis = profile.fit_to(instance, 0.5)
    assert scaled.epoch_seconds is not None
    assert (scaled.epoch_seconds.at(1), basis) == (20.0, Basis.SCALED)
    estimated, basis = profile.fit_to(instance)
    assert estimated.epoch_seconds is not None
    assert basis is Basis.ESTIMATED
    assert estimated.epoch_seconds.at(1) == pytest.approx(10 * 900 / 320)
    computes = TimeProfile(epoch_seconds=profile.epoch_seconds, device=profile.device, work=Work(1e15))
    by_work, _ = computes.fit_to(instance)
    assert by_work.epoch_seconds is not None
    assert by_work.epoch_seconds.at(1) == pytest.approx(10 * 15.7 / 8.1)


def test_a_model_alone_gives_an_estimate() -> None:
    fitted, basis = read_profile({"flops_per_epoch": 1e15}).fit_to(CATALOGUE["p3.2xlarge"].rent())
    assert basis is Basis.ESTIMATED
    assert fitted.epoch_seconds is not None
    assert fitted.epoch_seconds.at(1) == pytest.approx(1e15 / 15.7e12 / 0.4)


def test_an_unknown_device_needs_a_word_from_the_user() -> None:
    profile = read_profile({**V100, "device": "cuda Something New"})
    with pytest.raises(PlanError, match="--relative-speed"):
        profile.fit_to(CATALOGUE["p3.2xlarge"].rent())


def test_what_is_written_is_read_back() -> None:
    given = {
        **V100,
        "seconds_per_epoch_by_lanes": {4: 20.0},
        "spread": 0.1,
        "start_up_s": {"mean": 3.0, "spread": 0.2},
        "checkpoint_s": 0.5,
    }
    profile = read_profile(given)
    assert read_profile(write_profile(profile)) == profile
