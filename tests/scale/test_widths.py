"""Shrinking the zoo: every model at every scale runs, learns, and keeps the sizes of its input and answer."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.scale.zoo.models import LARGE, SMALL, Example, first_of
from tests.scale.zoo.resnets import resnet18
from torch import Tensor, nn

from headwater.scale.shrinking import Shrinker, shrink, structure_key

MODELS = {**LARGE, **SMALL}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def require_learning(model: nn.Module, example: Example) -> Tensor:
    answer = first_of(model(*example.args))
    answer.square().mean().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    return answer


@pytest.mark.parametrize("name", MODELS)
def test_a_smaller_model_runs_and_learns_and_answers_in_the_same_shape(name: str) -> None:
    example = MODELS[name]
    model = example.build()
    before = copy.deepcopy(model.state_dict())
    shape = first_of(model(*example.args)).shape
    shrinker = Shrinker()
    counts = [count(model)]
    for scale in example.scales:
        small = shrinker.shrink(model.load_state_dict(before) and model, scale, example.args, {})
        assert require_learning(small, example).shape == shape
        counts.append(count(small))
    assert counts == sorted(set(counts), reverse=True)
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0)


def test_resnet18_has_the_known_numbers_of_parameters() -> None:
    model, args = resnet18(), (torch.randn(2, 3, 32, 32),)
    shrinker = Shrinker()
    counts = [count(model), *(count(shrinker.shrink(model, scale, args, {})) for scale in (2, 4, 8))]
    assert counts == [11_173_962, 2_797_610, 701_466, 176_402]


def test_the_couplings_of_one_structure_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    example = SMALL["twice"]
    shrinker = Shrinker()
    first = shrinker.shrink(example.build(), 2, example.args, {})
    known = dict(shrinker.known)
    second = shrinker.shrink(example.build(), 4, example.args, {})
    assert list(shrinker.known) == list(known)
    assert count(second) < count(first)


def test_models_that_differ_only_in_values_have_one_structure() -> None:
    build = SMALL["grouped"].build
    assert structure_key(build()) == structure_key(build())
    assert structure_key(build()) != structure_key(SMALL["twice"].build())
    assert hash(structure_key(build())) == hash(structure_key(build()))


def test_scale_one_is_a_copy_with_fresh_tensors() -> None:
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    same = shrink(model, 1, (torch.randn(2, 4),), {})
    for one, other in zip(model.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(one, other)
        assert one.data_ptr() != other.data_ptr()
