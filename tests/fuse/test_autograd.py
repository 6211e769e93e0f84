"""Gradients of lanes are those of each lane alone, however they are asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.fuse.parity import Agreement, make_mode
from torch import Tensor, nn
from torch.autograd.functional import hvp, jacobian

from headwater.errors import CannotFuseError
from headwater.torch_private import is_lane_tensor, lanes_of


def gradient_penalty(w: Tensor) -> Any:
    x = torch.ones(3, 4, dtype=w.dtype)
    x.requires_grad_()
    out = torch.tanh(x @ w).sum(1)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return out.sum() + ((grad.norm(dim=1) - 1) ** 2).mean(), grad


def gradient_penalty_of_a_factory(w: Tensor) -> Any:
    x = torch.ones(3, 4, dtype=w.dtype, requires_grad=True)
    out = torch.tanh(F.linear(x, w.t())).sum(1)
    return torch.autograd.grad(out, [x], torch.ones_like(out), create_graph=True)[0].pow(2).sum()


def gradient_of_the_input(w: Tensor) -> Any:
    x = torch.full((3, 4), 0.3, dtype=w.dtype)
    x.requires_grad = True
    between = x * 2
    (between @ w).pow(2).sum().backward()
    return x.grad, between.requires_grad, x.is_leaf


def perturbation(w: Tensor) -> Any:
    delta = torch.zeros_like(w, requires_grad=True)
    ((w.detach() + delta) ** 3).sum().backward()
    return delta.grad


def second_derivative(w: Tensor) -> Any:
    (grad,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    return torch.autograd.grad(grad.sum(), w, create_graph=True)


def hooks(w: Tensor) -> Any:
    seen: list[Tensor] = []
    doubled = w * 2
    doubled.register_hook(lambda grad: grad / grad.norm())
    w.register_hook(lambda grad: seen.append(grad.norm()))
    (doubled**2).sum().backward()
    grad, w.grad = w.grad, None
    return grad, seen


def kept_gradients(w: Tensor) -> Any:
    product = torch.einsum("ij,kj->ki", w, w)
    product.retain_grad()
    product.register_hook(lambda grad: grad * 3)
    (product**2).sum().backward()
    grad, w.grad = w.grad, None
    return grad, product.grad, product.retains_grad, product.is_leaf


def hook_after_accumulation(w: Tensor) -> Any:
    own, seen = w.detach().clone().requires_grad_(), []
    own.register_post_accumulate_grad_hook(lambda p: seen.append((p.grad * p).sum().detach()))
    (own**2).sum().backward()
    return seen


def accumulation(w: Tensor) -> Any:
    for power in range(3):
        (w**power).sum().backward()
    first, w.grad = w.grad, torch.ones_like(w)
    w.grad *= 2
    w.grad += w.detach()
    second = w.grad.clone()
    w.grad.zero_()
    third, w.grad = w.grad.clone(), None
    return first, second, third, w.grad is None


def data(w: Tensor) -> Any:
    own = w.detach().clone().requires_grad_()
    own.data = own.data * 2
    own.data[0] = 1
    with torch.no_grad():
        own += 1
    (own**2).sum().backward()
    return own, own.grad, (w * 1).data


def shared_data(w: Tensor) -> Any:
    first, second = w.detach().clone(), w.detach() * 0
    second.data = first.data
    first.mul_(2)
    return second


def seeds(w: Tensor) -> Any:
    square = w * w
    square.backward(torch.full((4, 5), 2.0, dtype=w.dtype), retain_graph=True)
    square.backward(gradient=square.detach())
    torch.autograd.backward([(w * w).sum(), w.sum()])
    grad, w.grad = w.grad, None
    return grad


def chosen_inputs(w: Tensor) -> Any:
    other = w.detach().clone().requires_grad_()
    (w * other).sum().backward(inputs=[other])
    unused = torch.autograd.grad((w * w).sum(), [w, other], allow_unused=True)
    zeros = torch.autograd.grad((w * w).sum(), [w, other], materialize_grads=True)
    return other.grad, w.grad is None, unused[0], unused[1] is None, zeros


def switches(w: Tensor) -> Any:
    own = torch.einsum("ij,kj->ki", w, w).detach().requires_grad_()
    on, off = (own * 2).requires_grad, (own.requires_grad_(False) * 2).requires_grad
    own.requires_grad = True
    (own * own).sum().backward()
    return on, off, own.grad, own.is_leaf


def modes(w: Tensor) -> Any:
    with torch.no_grad():
        frozen = w * 2
    with torch.inference_mode():
        seen = (w * 3).sum().item()
    return frozen * w, frozen.requires_grad, seen, (w * w.detach()).sum()


def parameters(w: Tensor) -> Any:
    learnt, fixed = nn.Parameter(w.detach() * 2), nn.Parameter(w.detach(), requires_grad=False)
    (learnt * w).sum().backward()
    grad, w.grad = w.grad, None
    return learnt.grad, grad, isinstance(learnt, nn.Parameter), fixed.requires_grad


def copies(w: Tensor) -> Any:
    own = w.detach().clone().requires_grad_()
    (own**2).sum().backward()
    copied = copy.deepcopy(own)
    assert own.grad is not None
    own.grad.zero_()
    return copied, copied.grad, copied.requires_grad


def clipping(w: Tensor) -> Any:
    (w**2).sum().backward()
    norm = nn.utils.clip_grad_norm_([w], 1.0)
    after = w.grad.clone() if w.grad is not None else None
    largest = nn.utils.clip_grad_norm_([w], 0.5, norm_type=float("inf"), foreach=False)
    nn.utils.clip_grad_value_([w], 0.05)
    grad, w.grad = w.grad, None
    return norm, after, largest, grad


def saved_tensors(w: Tensor) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        return (w.exp() * w).sum()


def vectors(w: Tensor) -> Any:
    own = w.detach().clone()
    vector = nn.utils.parameters_to_vector([w, w * 2])
    nn.utils.vector_to_parameters(vector.detach()[20:], [own])
    return vector, own


PROGRAMS: list[Callable[[Tensor], Any]] = [
    gradient_penalty, gradient_penalty_of_a_factory, gradient_of_the_input, perturbation, second_derivative, hooks,
    kept_gradients, hook_after_accumulation, accumulation, data, shared_data, seeds, chosen_inputs, switches, modes,
    parameters, copies, clipping, saved_tensors, vectors,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_those_of_each_lane(program: Callable[[Tensor], Any]) -> None:
    Agreement().check(program, torch.randn(3, 4, 5, dtype=torch.float64))


def test_jacobians_are_those_of_each_lane() -> None:
    def program(w: Tensor) -> Any:
        return jacobian(lambda a: (a * a).sum(0), w), hvp(lambda a: (a**3).sum(), w, torch.ones_like(w))[1]

    Agreement().check(program, torch.randn(3, 4, 5, dtype=torch.float64))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Rprop"])
@pytest.mark.parametrize("foreach", [True, False])
def test_a_torch_optimizer_steps_lanes_as_each_alone(name: str, foreach: bool) -> None:
    def program(w: Tensor) -> Any:
        own = w.detach().clone().requires_grad_()
        optimizer = getattr(torch.optim, name)([own], lr=0.1, foreach=foreach)
        for _ in range(3):
            optimizer.zero_grad()
            (own.sin() + own**2).sum().backward()
            optimizer.step()
        return own

    Agreement().check(program, torch.randn(3, 4, 5, dtype=torch.float64))


def test_learning_rates_that_differ_reach_a_torch_optimizer() -> None:
    def program(w: Tensor, lr: Any, decay: Any) -> Any:
        own = w.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([own], lr=lr, weight_decay=decay, foreach=False)
        for _ in range(3):
            optimizer.zero_grad()
            (own**2).sum().backward()
            optimizer.step()
        return own

    numbers = [(0.1, 0.2, 0.05), (0.3, 0.1, 0.2)]
    Agreement().check(program, torch.randn(3, 4, 5, dtype=torch.float64), numbers=numbers)


def test_a_parameter_that_belongs_to_no_prepared_model_is_refused() -> None:
    weight, x = nn.Parameter(torch.ones(3)), lanes_of(torch.ones(2, 3))
    with make_mode(2), pytest.raises(CannotFuseError, match="prepare_model"):
        (x * weight).sum()


def test_what_came_from_an_unprepared_parameter_is_refused_everywhere() -> None:
    weight, x = nn.Parameter(torch.ones(1, 2, 4, 4)), lanes_of(torch.ones(2, 1, 2, 4, 4))
    with make_mode(2), pytest.raises(CannotFuseError, match="prepare_model"):
        F.scaled_dot_product_attention(x, weight * 2, weight * 2)


def test_a_parameter_made_of_a_fresh_leaf_stays_plain_until_it_is_prepared() -> None:
    with make_mode(2):
        parameter = nn.Parameter(torch.ones(3, requires_grad=True))
    assert not is_lane_tensor(parameter)
    assert parameter.requires_grad


def test_hooks_on_nodes_of_the_graph_are_refused() -> None:
    stack = torch.ones(2, 3, requires_grad=True)
    with make_mode(2):
        node = (lanes_of(stack) * 2).grad_fn
        assert node is not None
        with pytest.raises(CannotFuseError, match="register it on the tensor"):
            node.register_hook(lambda *_: None)


def test_the_gradient_of_what_lanes_share_is_refused() -> None:
    stack = torch.ones(2, 3, requires_grad=True)
    plain = torch.ones(3)
    with make_mode(2), pytest.raises(CannotFuseError, match="all lanes share"):
        torch.autograd.grad((lanes_of(stack) * plain).sum(), plain)
