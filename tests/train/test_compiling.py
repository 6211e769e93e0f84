"""A model that trains alone is compiled where that pays, and computes the same whether it is or not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config
from torch import Tensor, nn

from headwater.train.compiling import PRIOR, Compiler, Gain, pays

EAGER_TO_COMPILE = Gain(seconds_to_compile=1.0, share_saved=1.0)
TOLERANCE = 1e-5


class Bench:
    """A compiler whose clock says that a plain step takes a second; it notes what is compiled and what is told.

    By default, compiling changes nothing but the clock.
    """

    def __init__(
        self,
        seconds_compiled: float = 0.5,
        compile_call: Callable[..., Any] = lambda call, **_options: call,
        prior: Gain = EAGER_TO_COMPILE,
    ) -> None:
        self.now = 0.0
        self.notes: list[str] = []
        self.num_compilations = 0
        self.num_compiled_calls = 0
        self._seconds_compiled = seconds_compiled
        self._compile_call = compile_call
        self.compiler = Compiler(
            prior=prior,
            tell=self.notes.append,
            clock=lambda: self.now,
            wall_clock=lambda: self.now,
            compile_call=self._compile,
        )

    def _compile(self, call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        self.num_compilations += 1
        compiled = self._compile_call(call, **options)

        def run(*args: Any, **kwargs: Any) -> Any:
            self.now += self._seconds_compiled - 1
            self.num_compiled_calls += 1
            return compiled(*args, **kwargs)

        return run

    def train(self, model: nn.Module, num_steps: int = 24) -> list[float]:
        """Train, with a smaller batch at the end of each epoch of six steps, and an evaluation after it."""
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        numbers = []
        for step in range(num_steps):
            is_last = step % 6 == 5
            loss = model(torch.randn(3 if is_last else 8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.now += 1
            numbers.append(loss.item())
            if is_last:
                numbers.append(evaluate(model))
        return numbers


def evaluate(model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        value = model(torch.ones(8, 4)).sum().item()
    model.train()
    return float(value)


def double(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(2 * arg for arg in args)


def build(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 2))
    model[4].register_forward_pre_hook(double)
    return model


def always(num_steps: int | None) -> Callable[[], int | None]:
    return lambda: num_steps


def is_compiled(output: Tensor) -> bool:
    return "CompiledFunction" in type(output.grad_fn).__name__


def assert_alike(one: nn.Module, other: nn.Module) -> None:
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile for real, with nothing left of it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    yield
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("steps_left", "seconds_per_step", "expected"),
    [(4000, 0.1, False), (4001, 0.1, True), (0, 100.0, False), (400, 1.1, True)],
)
def test_compiling_pays_where_the_saving_exceeds_the_cost(
    steps_left: int, seconds_per_step: float, expected: bool
) -> None:
    assert pays(steps_left, seconds_per_step, seconds_to_compile=40.0, share_saved=0.1) is expected


@pytest.mark.parametrize("share", [0.0, -0.1])
def test_what_saves_nothing_never_pays(share: float) -> None:
    assert not pays(10**9, 1.0, seconds_to_compile=0.0, share_saved=share)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.timeout(300)
def test_compiled_training_equals_plain_training() -> None:
    plain, model = build(), build()
    bench = Bench(compile_call=torch.compile)
    settings = torch._functorch.config.donated_buffer, torch._inductor.config.fallback_random
    expected = bench.train(plain, 36)
    after = torch.get_rng_state()
    bench.compiler.attach(model, always(1000))
    losses = bench.train(model, 36)
    assert losses == pytest.approx(expected, abs=TOLERANCE)
    assert_alike(model, plain)
    assert bench.num_compiled_calls > 10
    assert ["was compiled in" in note for note in bench.notes] == [True]
    assert torch.equal(torch.get_rng_state(), after)
    assert (torch._functorch.config.donated_buffer, torch._inductor.config.fallback_random) == settings
    assert [is_compiled(model(torch.ones(size, 4))) for size in (8, 3)] == [True, False]
    loss = model(torch.ones(8, 4)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    bench.compiler.detach(model)
    assert vars(model).keys() == vars(plain).keys()


def test_a_model_is_compiled_for_the_kind_of_call_seen_most() -> None:
    model = build()
    sizes = []

    def compile_call(call: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def run(model: nn.Module, x_NI: Tensor) -> Any:
            sizes.append((len(x_NI), model.training))
            return call(model, x_NI)

        return run

    bench = Bench(compile_call=compile_call)
    bench.compiler.attach(model, always(1000))
    bench.train(model, 48)
    assert set(sizes) == {(8, True)}
    assert len(sizes) > 20


def test_nothing_changes_where_compiling_changes_nothing() -> None:
    plain, model, bench = build(), build(), Bench()
    expected = bench.train(plain)
    bench.compiler.attach(model, always(1000))
    assert bench.train(model) == expected
    assert bench.num_compilations == 1


@pytest.mark.parametrize("steps_left", [10, None])
def test_too_few_steps_or_nobody_knows_how_many(steps_left: int | None) -> None:
    model, bench = build(), Bench(prior=PRIOR)
    bench.compiler.attach(model, always(steps_left))
    bench.train(model)
    assert bench.num_compilations == 0
    assert ("_compiled_call_impl" in vars(model)) is (steps_left is None)


def test_steps_left_may_become_known_later() -> None:
    model, bench = build(), Bench()
    bench.compiler.attach(model, lambda: 1000 if bench.now > 15 else None)
    bench.train(model, 14)
    assert bench.num_compilations == 0
    bench.train(model)
    assert bench.num_compilations == 1


def test_a_slower_compiled_model_is_dropped_and_remembered() -> None:
    plain, model, bench = build(), build(), Bench(seconds_compiled=1.2)
    expected = bench.train(plain)
    bench.compiler.attach(model, always(1000))
    assert bench.train(model) == expected
    assert bench.notes == ["Sequential took 1.2e+03 ms a step instead of 1e+03 ms when compiled: it trains as written"]
    assert vars(model).keys() == vars(plain).keys()
    again = build(seed=1)
    bench.compiler.attach(again, always(10**9))
    bench.train(again)
    assert bench.num_compilations == 1


def test_what_was_measured_replaces_the_prior() -> None:
    bench = Bench()
    bench.compiler.attach(model := build(), always(1000))
    bench.train(model)
    assert [gain.share_saved for gain in bench.compiler.gains.values()] == [pytest.approx(0.5)]


def test_a_failure_to_compile_loses_no_step() -> None:
    def fail(_call: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        raise RuntimeError("no compiler here\nand much more")

    plain, model, bench = build(), build(), Bench(compile_call=fail)
    expected = bench.train(plain)
    bench.compiler.attach(model, always(1000))
    assert bench.train(model) == expected
    assert bench.notes == ["Sequential could not be compiled (RuntimeError: no compiler here): it trains as written"]
    assert vars(model).keys() == vars(plain).keys()


def test_a_failure_at_the_first_call_loses_no_step() -> None:
    def fail_late(call: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            call(*args)
            raise RuntimeError("cannot be traced")

        return run

    plain, model, bench = build(), build(), Bench(compile_call=fail_late)
    expected = bench.train(plain)
    bench.compiler.attach(model, always(1000))
    assert bench.train(model) == expected
    assert bench.num_compilations == 1


@pytest.mark.parametrize("wrong", ["outputs", "gradients"])
def test_a_compiled_model_that_computes_something_else_is_dropped(wrong: str) -> None:
    def miscompile(call: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            result = call(*args)
            return 1.1 * result if wrong == "outputs" else 1.1 * result - 0.1 * result.detach()

        return run

    plain, model, bench = build(), build(), Bench(compile_call=miscompile)
    expected = bench.train(plain)
    bench.compiler.attach(model, always(1000))
    assert bench.train(model) == expected
    assert len(bench.notes) == 1
    assert f"gave other {wrong} when compiled" in bench.notes[0]


def test_gradients_that_are_differentiated_are_left_alone() -> None:
    model, bench = build(), Bench()
    bench.compiler.attach(model, always(1000))
    for _ in range(10):
        x_NI = torch.randn(8, 4, requires_grad=True)
        (slope_NI,) = torch.autograd.grad(model(x_NI).sum(), x_NI, create_graph=True)
        slope_NI.square().sum().backward()
        bench.now += 1
    assert bench.num_compilations == 0
    assert "_compiled_call_impl" not in vars(model)


def test_several_calls_before_one_backward_pass_are_left_alone() -> None:
    model, bench = build(), Bench()
    bench.compiler.attach(model, always(1000))
    for _ in range(10):
        (model(torch.randn(8, 4)) - model(torch.randn(8, 4))).square().sum().backward()
        bench.now += 1
    assert bench.num_compilations == 0
    assert "_compiled_call_impl" not in vars(model)


def test_ever_new_shapes_are_left_alone() -> None:
    model, bench = build(), Bench()
    bench.compiler.attach(model, always(1000))
    for size in range(2, 60):
        model(torch.randn(size, 4)).sum().backward()
        bench.now += 1
    assert bench.num_compilations == 0
    assert "_compiled_call_impl" not in vars(model)


def test_copies_and_names_know_nothing_of_it() -> None:
    model, bench = build(), Bench()
    names = list(model.state_dict())
    bench.compiler.attach(model, always(1000))
    bench.train(model)
    twin = copy.deepcopy(model)
    num_calls = bench.num_compiled_calls
    twin(torch.ones(8, 4))
    assert bench.num_compiled_calls == num_calls
    assert "_compiled_call_impl" not in vars(twin)
    assert list(model.state_dict()) == names


def test_what_the_user_has_compiled_is_left_alone() -> None:
    model, bench = build(), Bench()
    model.compile(backend="eager")
    theirs = model._compiled_call_impl
    bench.compiler.attach(model, always(1000))
    bench.compiler.detach(model)
    assert model._compiled_call_impl is theirs


def test_nothing_depends_on_time_where_algorithms_are_deterministic() -> None:
    model, bench = build(), Bench()
    torch.use_deterministic_algorithms(True)
    try:
        bench.compiler.attach(model, always(1000))
    finally:
        torch.use_deterministic_algorithms(False)
    assert "_compiled_call_impl" not in vars(model)
