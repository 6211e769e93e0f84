"""The user's own objects are what trains: parts, parameters and closures taken before `prepare_model` belong to it.

PYTEST_DONT_REWRITE: lanes run functions in variants of their source, and functions with rewritten asserts have none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from tests.train.lab import go_on, run, run_alone, run_done
from tests.train.plain import PlainTrial, require_as_plain, train_plainly
from torch import Tensor, nn

from headwater.torch_private import is_lane_tensor
from headwater.train import Trial
from headwater.trials import Decision, Outcome, Report

CONFIGS = [{"lr": 0.1 * (number + 1)} for number in range(3)]
X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(16, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _double() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def fit(trial: Trial, model: Callable[[Tensor], Tensor], optimizer: Any, num_epochs: int = 4) -> None:
    for _ in trial.epochs(num_epochs):
        optimizer.zero_grad()
        loss = (model(X) - Y).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)


def parts_in_groups(trial: Trial) -> None:
    backbone, head = nn.Linear(4, 8), nn.Linear(8, 2)
    model = trial.prepare_model(nn.Sequential(backbone, nn.Tanh(), head))
    lr = trial.config["lr"]
    groups = [{"params": backbone.parameters()}, {"params": list(head.parameters()), "lr": 2 * lr}]
    fit(trial, model, trial.prepare_optimizer(torch.optim.SGD, groups, lr=lr))


class Closed(nn.Module):
    """Computes through a closure over its parts, and keeps a list of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = parts = nn.ModuleDict({"inner": nn.Linear(4, 8), "outer": nn.Linear(8, 2)})
        self.compute: Callable[[Tensor], Tensor] = lambda x: parts["outer"](torch.tanh(parts["inner"](x)))
        self.all = list(self.parameters())

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x) + 0.01 * sum(parameter.square().sum() for parameter in self.all)


def closures(trial: Trial) -> None:
    model = trial.prepare_model(Closed())
    fit(trial, model, trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"]))


def closures_of_a_factory(trial: Trial) -> None:
    torch.manual_seed(3)
    weights = Closed().state_dict()

    def build() -> nn.Module:
        model = Closed()
        model.load_state_dict(weights)
        return model

    is_plain = isinstance(cast("object", trial), PlainTrial)
    model = build() if is_plain else trial.prepare_model(build)
    fit(trial, model, trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"]))


def a_part_of_two_models(trial: Trial) -> None:
    body = nn.Linear(4, 8)
    models = [nn.Sequential(body, act, nn.Linear(8, 2)) for act in (nn.Tanh(), nn.ReLU())]
    models = [trial.prepare_model(model) for model in models]
    optimizers = [trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"]) for model in models]
    for _ in trial.epochs(4):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss = (model(X) - Y).square().mean()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss + models[0](X).sum())


def a_model_prepared_twice(trial: Trial) -> None:
    model = nn.Linear(4, 2)
    first, second = trial.prepare_model(model), trial.prepare_model(model)
    assert first is second is model
    fit(trial, first, trial.prepare_optimizer(torch.optim.AdamW, second, lr=trial.config["lr"]))


def a_frozen_part_and_copies(trial: Trial) -> None:
    model = nn.Linear(4, 2)
    model.bias.requires_grad_(False)
    trial.prepare_model(model)
    average, start = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    trained = [{"params": filter(lambda parameter: parameter.requires_grad, model.parameters())}]
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, trained, lr=trial.config["lr"])
    for _ in trial.epochs(4):
        optimizer.zero_grad()
        (model(X) - Y).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mine, new in zip(average.parameters(), model.parameters(), strict=True):
                mine.lerp_(new, 0.1)
        trial.report(loss=(average(X) - Y).square().mean() + start["weight"].sum() + model.bias.sum())


def filters_in_added_groups(trial: Trial) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].bias.requires_grad_(False)
    trial.prepare_model(model)
    first = (parameter for parameter in model[0].parameters() if parameter.requires_grad)
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, first, lr=trial.config["lr"])
    optimizer.add_param_group({"params": filter(lambda parameter: parameter.requires_grad, model[1].parameters())})
    fit(trial, model, optimizer)


def filters_of_named_parameters(trial: Trial) -> None:
    model = trial.prepare_model(nn.Linear(4, 2))
    named = ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
    fit(trial, model, trial.prepare_optimizer(torch.optim.AdamW, [{"params": named}], lr=trial.config["lr"]))


def hooks_on_parameters(trial: Trial) -> None:
    model = nn.Linear(4, 2)
    model.weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    model.bias.register_hook(lambda grad: grad * 9).remove()

    def halve(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(0.5)

    model.bias.register_post_accumulate_grad_hook(halve)
    trial.prepare_model(model)
    fit(trial, model, trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"]))


def a_dry_run_for_the_size_of_the_head(trial: Trial) -> None:
    body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    answer = body(X[:1])
    model = trial.prepare_model(nn.Sequential(body, nn.Linear(answer.shape[1], 2)))
    fit(trial, model, trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"]))


@pytest.mark.parametrize(
    "function",
    [
        parts_in_groups, closures, closures_of_a_factory, a_part_of_two_models, a_model_prepared_twice,
        a_frozen_part_and_copies, filters_in_added_groups, filters_of_named_parameters, hooks_on_parameters,
        a_dry_run_for_the_size_of_the_head,
    ],
)  # fmt: skip
def test_what_was_taken_before_belongs_to_the_model_that_trains(function: Callable[[Trial], None]) -> None:
    require_as_plain(function, CONFIGS)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize(
    "norm",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
    ],
)
def test_models_that_compute_their_weights_train(norm: Callable[[nn.Module], nn.Module]) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(norm(nn.Linear(4, 8)), nn.Tanh(), norm(nn.Linear(8, 2))))
        fit(trial, model, trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"]))

    require_as_plain(train, CONFIGS)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.inner, self.head = kind(4, 3, 2, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.inner(x.unsqueeze(1))[0][:, -1])
        return answer


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_model_trains_on_when_a_lane_leaves(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(Recurrent(kind))
        fit(trial, model, trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"]))

    notes = run_done(train, CONFIGS, decide=leave_after_the_first)
    for number in (1, 2):
        assert notes.history(number) == pytest.approx(train_plainly(train, CONFIGS[number]), rel=1e-9)


def leave_after_the_first(report: Report) -> Decision:
    return Decision.STOP if (report.number, report.epoch) == (0, 1) else Decision.CONTINUE


@pytest.mark.parametrize("has_graph", [False, True])
def test_memory_that_a_state_dict_from_before_shares_makes_lanes_train_apart(has_graph: bool) -> None:
    def train(trial: Trial) -> None:
        model = nn.Linear(4, 2)
        weights = model.state_dict()
        graph = model(X).sum() if has_graph else None
        optimizer = trial.prepare_optimizer(torch.optim.SGD, trial.prepare_model(model), lr=trial.config["lr"])
        for _ in trial.epochs(2):
            optimizer.zero_grad()
            (model(X) - Y).square().mean().backward()
            optimizer.step()
            trial.report(loss=weights["weight"].sum())
        assert (graph is not None) is has_graph

    done = run(train, CONFIGS)
    assert done.outcome is Outcome.APART
    assert "shares its memory with other tensors" in done.reason
    assert run_alone(train, CONFIGS[0]).history(0) == train_plainly(train, CONFIGS[0])


class Worn(nn.Module):
    """Changes in every way in which a model can."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.total = nn.Buffer(torch.zeros(2))
        self.tensor = torch.zeros(2)
        self.num_calls = 0
        self.seen: dict[str, list[int]] = {"calls": []}
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        self.seen["calls"].append(self.num_calls)
        noise = torch.rand((), generator=self.generator)
        answer: Tensor = self.outer(self.norm(self.inner(x))) + noise / self.num_calls
        self.total.add_(answer.detach().mean(dim=0))
        self.tensor.add_(answer.detach().mean(dim=0))
        return answer + self.tensor + len(self.seen["calls"])


OUTSIDE: dict[str, Any] = {}


def put_outside() -> None:
    torch.manual_seed(3)
    OUTSIDE["model"] = Worn()


def wear(trial: Trial) -> None:
    model = trial.prepare_model(OUTSIDE["model"])
    model.register_forward_hook(lambda module, inputs, output: output * 1.1)
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"])
    fit(trial, model, optimizer, 2)
    model.outer.requires_grad_(False)
    model.outer = nn.Linear(8, 2)
    model.eval()


def test_every_trial_finds_a_model_that_lives_outside_as_it_was() -> None:
    require_as_plain(wear, CONFIGS, reset=put_outside)
    model = OUTSIDE["model"]
    put_outside()
    fresh = OUTSIDE["model"]
    assert model.training
    assert (model.num_calls, model.seen) == (0, {"calls": []})
    assert not model._forward_hooks
    assert not is_lane_tensor(model.tensor)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, fresh.state_dict()[name])
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("always_fuse", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("end", ["raise", "interrupt", "leave", "part"])
def test_a_model_outside_is_put_back_however_the_run_ends(always_fuse: bool, end: str) -> None:
    model = nn.Linear(4, 2)
    before = copy.deepcopy(model.state_dict())

    def train(trial: Trial) -> None:
        trial.prepare_model(model)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(1):
            model(X).sum().backward()
            optimizer.step()
            if end == "raise":
                raise ValueError("no")
            if end == "interrupt":
                raise Interrupted
            if end == "part":
                [1, 2, 3][int(trial.config["lr"] > 0.15)]
            trial.report(loss=0.0)

    decide = (lambda report: Decision.STOP) if end == "leave" else go_on
    try:
        run(train, CONFIGS if always_fuse else CONFIGS[:1], decide=decide, always_fuse=always_fuse)
    except Interrupted:
        assert end == "interrupt"
    assert not any(is_lane_tensor(parameter) for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.weight.grad is None


def test_a_lazy_module_outside_is_lazy_again_afterwards() -> None:
    model = nn.LazyLinear(2)

    def train(trial: Trial) -> None:
        trial.prepare_model(model)
        model(X)
        fit(trial, model, trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"]), 1)

    first, second = (run_alone(train, CONFIGS[0]).history(0) for _ in range(2))
    assert first == second
    assert type(model) is nn.LazyLinear
