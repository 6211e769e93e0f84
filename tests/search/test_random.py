from __future__ import annotations

from collections import Counter

from headwater.search import RandomSearch
from headwater.space import Space, choice, grid, loguniform, qloguniform, quniform

ENDLESS = Space({"lr": loguniform(1e-4, 1.0), "depth": choice([2, 4])})


def test_other_seeds_draw_other_configurations() -> None:
    assert RandomSearch(ENDLESS, 0, 5).propose(5) != RandomSearch(ENDLESS, 1, 5).propose(5)


def test_neighbouring_seeds_do_not_share_trials() -> None:
    drawn = [segment.config["lr"] for seed in range(20) for segment in RandomSearch(ENDLESS, seed, 20).propose(20)]
    assert len(set(drawn)) == 400


def test_a_trial_does_not_depend_on_how_many_there_are() -> None:
    assert RandomSearch(ENDLESS, 0, 3).propose(3) == RandomSearch(ENDLESS, 0, 300).propose(3)


def test_an_endless_space_goes_on_without_a_number_of_trials() -> None:
    assert len(RandomSearch(ENDLESS, 0).propose(500)) == 500


def test_every_configuration_has_its_turn_at_the_first_trial() -> None:
    space = Space({"x": choice([0, 1, 2, 3])})
    first = Counter(RandomSearch(space, seed, 1).propose(1)[0].config["x"] for seed in range(2000))
    assert all(400 < first[x] < 600 for x in range(4))


def test_a_large_finite_space_is_never_listed_for_a_few_trials() -> None:
    space = Space({name: quniform(0, 1_000_000, 1) for name in "abcdef"})
    assert len(RandomSearch(space, 0, 50).propose(50)) == 50


def test_rare_configurations_are_reached_too() -> None:
    space = Space({"width": qloguniform(1, 300, 1)})
    widths = [segment.config["width"] for segment in RandomSearch(space, 0, 1000).propose(1000)]
    assert sorted(widths) == list(range(1, 301))


def test_configurations_that_make_up_nearly_all_of_an_endless_space_may_come_again() -> None:
    space = Space(
        {"method": grid(["plain", "tuned"]), "x": lambda config: 0 if config["method"] == "plain" else loguniform(1, 2)}
    )
    methods = [segment.config["method"] for segment in RandomSearch(space, 0, 6).propose(6)]
    assert methods == ["plain", "tuned"] * 3


def test_grids_are_walked_through_and_the_rest_is_drawn() -> None:
    space = Space({"batch_size": grid([64, 128, 256]), "lr": loguniform(1e-4, 1.0)})
    segments = RandomSearch(space, 0, 6).propose(6)
    assert [segment.config["batch_size"] for segment in segments] == [64, 128, 256] * 2
    assert len({segment.config["lr"] for segment in segments}) == 6
