"""Packs by hand: every unit ends as it would have alone, whatever it is packed with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import headwater as hw
from headwater.errors import StoreError, StudyError

torch.manual_seed(0)
X = torch.randn(230, 1, 8, 8)
DATA = TensorDataset(X, (X.mean((1, 2, 3)) > 0).long())


class Jittered(Dataset[Any]):
    """Data that are augmented while they load, with random numbers of torch, NumPy and Python."""

    def __init__(self) -> None:
        self.num_loaded = 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.num_loaded += 1
        x = X[index] + 0.1 * torch.randn(1, 8, 8) + float(np.random.normal())
        return x, index % 2

    def __len__(self) -> int:
        return len(X)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.lstm(x.squeeze(1))[0][:, -1])
        return answer


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )


def training(build: Callable[[], nn.Module], data: Any, num_epochs: int, seen: list[Tensor] | None = None) -> Any:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(build)
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"], shuffle=True)
        optimizer = trial.prepare_optimizer(trial.config["optimizer"], model, lr=trial.config["lr"])
        for _ in trial.epochs(num_epochs):
            total = 0.0
            for x, y in loader:
                if seen is not None:
                    seen.append(x.clone())
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            trial.report(loss=total)

    return train


def config(batch_size: int, optimizer: str = "SGD", lr: float = 0.1) -> dict[str, Any]:
    return {"batch_size": batch_size, "optimizer": optimizer, "lr": lr}


def unlike_units(data: Any, seen: list[list[Tensor]]) -> list[hw.Unit]:
    """Three kinds of models, four batch sizes and optimizers, several lengths, and lanes in one of them."""
    seen += [[] for _ in range(4)]
    return [
        hw.Unit(training(mlp, data, 3, seen[0]), config(20)),
        hw.Unit(training(cnn, data, 2, seen[1]), config(50, "Adam", 0.01)),
        hw.Unit(training(Recurrent, data, 4, seen[2]), config(80, "RMSprop", 0.01)),
        hw.Unit(training(mlp, data, 3, seen[3]), [config(100, "AdamW", 0.01 * lane) for lane in (1, 2, 3)]),
    ]


def run_alone(unit: hw.Unit) -> hw.Unit:
    (done,) = hw.pack([unit], device="cpu").run()
    return done


def require_same(unit: hw.Unit, alone: hw.Unit) -> None:
    """Bit for bit for one lane; how several are computed is chosen by measuring, and rounds accordingly."""
    assert unit.errors == alone.errors == {}
    tolerance = 0.0 if len(unit.reports) == 1 else 1e-4
    for mine, others in zip(unit.reports, alone.reports, strict=True):
        losses = [[report.metrics["loss"] for report in reports] for reports in (mine, others)]
        assert losses[0] == pytest.approx(losses[1], rel=tolerance, abs=0)
    assert unit.checkpoint is not None
    assert alone.checkpoint is not None
    for one, other in zip(unit.checkpoint.lanes, alone.checkpoint.lanes, strict=True):
        for name, value in one.models[0].items():
            torch.testing.assert_close(value, other.models[0][name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("make", [lambda: DATA, Jittered], ids=["tensors", "augmented"])
def test_every_unit_ends_as_it_would_have_alone(make: Callable[[], Any]) -> None:
    seen_alone: list[list[Tensor]] = []
    seen: list[list[Tensor]] = []
    alone = [run_alone(unit) for unit in unlike_units(make(), seen_alone)]
    units = unlike_units(make(), seen)
    done = list(hw.pack(units, device="cpu").run())
    assert set(done) == set(units)
    for unit, other in zip(units, alone, strict=True):
        require_same(unit, other)
    for mine, others in zip(seen, seen_alone, strict=True):
        assert [len(batch) for batch in mine] == [len(batch) for batch in others]
        assert all(torch.equal(batch, other) for batch, other in zip(mine, others, strict=True))


@pytest.mark.parametrize("sizes", [(20, 50, 100), (32, 64, 128), (128,) * 4, (230, 230)], ids=str)
def test_every_example_is_loaded_once_for_all(sizes: tuple[int, ...]) -> None:
    data = Jittered()
    pack = hw.pack([hw.Unit(training(mlp, data, 2), config(size)) for size in sizes], device="cpu")
    for _ in pack.run():
        pass
    assert data.num_loaded == pack.num_loaded == 2 * len(X)


def test_worker_processes_load_what_this_process_would() -> None:
    def train_with(num_workers: int) -> Any:
        def train(trial: hw.Trial) -> None:
            loader = trial.prepare_data_loader(Jittered(), batch_size=30, shuffle=True, num_workers=num_workers)
            for _ in trial.epochs(2):
                trial.report(loss=sum(x.sum().item() for x, _ in loader))

        return train

    units = [hw.Unit(train_with(num_workers), {}) for num_workers in (0, 2)]
    list(hw.pack(units, device="cpu").run())
    assert [report.metrics for report in units[0].reports[0]] == [report.metrics for report in units[1].reports[0]]


def test_each_batch_size_takes_the_steps_of_the_paper() -> None:
    data = TensorDataset(torch.arange(10_000))
    steps: dict[int, list[int]] = {20: [], 50: [], 100: []}

    def train(trial: hw.Trial) -> None:
        size = trial.config["batch_size"]
        for _ in trial.epochs(1):
            for (x,) in trial.prepare_data_loader(data, batch_size=size, shuffle=True):
                steps[size] += x.tolist()
            trial.report(num_steps=len(steps[size]) / size)

    units = [hw.Unit(train, {"batch_size": size}) for size in steps]
    list(hw.pack(units, device="cpu").run())
    assert [unit.reports[0][-1].metrics["num_steps"] for unit in units] == [500, 200, 100]
    assert steps[20] == steps[50] == steps[100]
    assert sorted(steps[20]) == list(range(10_000))


def test_a_waiting_unit_is_loaded_when_another_has_ended() -> None:
    late = hw.Unit(training(mlp, DATA, 2), config(10))
    pack = hw.pack([hw.Unit(training(mlp, DATA, epochs), config(50)) for epochs in (1, 5)], device="cpu")
    order = []
    for unit in pack.run():
        order.append(unit)
        if len(order) == 1:
            hw.load(late, pack)
    assert order[1] is late, "it joins at the place of the others, so that two epochs end before the four that are left"
    require_same(late, run_alone(hw.Unit(training(mlp, DATA, 2), config(10))))


def test_a_unit_that_is_freed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    alone, first = (hw.Unit(training(mlp, DATA, 4), config(50, "Adam", 0.01)) for _ in range(2))
    pack = hw.pack([first, hw.Unit(training(cnn, DATA, 1), config(20))], device="cpu")
    for unit in pack.run():
        if unit is not first:
            checkpoint = hw.free(first)
    assert first not in pack.units
    assert 1 <= checkpoint.epoch < 4
    checkpoint.save(tmp_path)
    rest = run_alone(hw.Unit(training(mlp, DATA, 4), config(50, "Adam", 0.01), checkpoint=hw.Checkpoint.load(tmp_path)))
    mine, whole = (one.checkpoint.lanes[0].models[0] for one in (rest, run_alone(alone)) if one.checkpoint)
    torch.testing.assert_close(mine, whole, rtol=0, atol=0)


def test_lanes_that_part_stay_in_the_pack() -> None:
    train = training(mlp, DATA, 2)
    unit = hw.Unit(train, [config(size) for size in (20, 50, 20)])
    others = [hw.Unit(train, [config(size)] * 3) for size in (20, 50)]  # for each lane one of its own batch size
    for one in (unit, *others):
        run_alone(one)
    for place, other in enumerate((others[0], others[1], others[0])):
        mine, alone = unit.reports[place], other.reports[place]
        assert [report.metrics["loss"] for report in mine] == pytest.approx([one.metrics["loss"] for one in alone])


def test_a_frozen_model_is_computed_once_for_each_example() -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8))
    calls: list[int] = []
    body[0].register_forward_hook(lambda module, args, answer: calls.append(len(answer)))

    def train(trial: hw.Trial) -> None:
        features = trial.prepare_frozen(body)
        head = trial.prepare_model(nn.Linear(8, 2))
        loader = trial.prepare_data_loader(DATA, batch_size=trial.config["batch_size"], shuffle=True)
        optimizer = trial.prepare_optimizer("SGD", head, lr=0.1)
        for _ in trial.epochs(2):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(head(features(x)), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            trial.report(loss=total)

    alone = [run_alone(hw.Unit(train, {"batch_size": size})) for size in (32, 64)]
    calls.clear()
    packed = [hw.Unit(train, {"batch_size": size}) for size in (32, 64)]
    list(hw.pack(packed, device="cpu").run())
    assert sum(calls) < 1.5 * 2 * len(X), "alone, each of the two computes all examples twice"
    for unit, other in zip(packed, alone, strict=True):
        mine, theirs = ([report.metrics["loss"] for report in one.reports[0]] for one in (unit, other))
        assert mine == pytest.approx(theirs, rel=1e-5)
    assert not body.training
    assert "features" not in str(packed[0].checkpoint.lanes[0].models if packed[0].checkpoint else "")


def test_lanes_that_parted_go_on_from_where_each_was_freed() -> None:
    train, configs = training(mlp, DATA, 4), [config(20), config(50)]
    whole, first = hw.Unit(train, configs), hw.Unit(train, configs)
    run_alone(whole)
    pack = hw.pack([first, hw.Unit(training(cnn, DATA, 2), config(10))], device="cpu")
    checkpoint = next(hw.free(first) for unit in pack.run() if unit is not first)
    rest = run_alone(hw.Unit(train, configs, checkpoint=checkpoint))
    for mine, others in zip(rest.reports, whole.reports, strict=True):
        assert mine[-1].metrics == others[-1].metrics


def test_a_checkpoint_is_not_changed_by_who_goes_on_from_it() -> None:
    train = training(mlp, DATA, 4)
    first = hw.Unit(train, config(50, "Adam", 0.01))
    pack = hw.pack([first, hw.Unit(training(cnn, DATA, 1), config(20))], device="cpu")
    checkpoint = next(hw.free(first) for unit in pack.run() if unit is not first)
    ends = [run_alone(hw.Unit(train, config(50, "Adam", 0.01), checkpoint=checkpoint)) for _ in range(2)]
    assert ends[0].reports[0][-1].metrics == ends[1].reports[0][-1].metrics


def test_examples_that_are_not_collated_are_each_units_own() -> None:
    class Ones(Dataset[Any]):
        def __getitem__(self, index: int) -> Tensor:
            return torch.ones(1)

        def __len__(self) -> int:
            return 48

    data = Ones()

    def train(trial: hw.Trial) -> None:
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"], collate_fn=list)
        for _ in trial.epochs(1):
            trial.report(total=sum(x.add_(1).item() for batch in loader for x in batch))

    units = [hw.Unit(train, {"batch_size": size}) for size in (12, 20, 48)]
    list(hw.pack(units, device="cpu").run())
    assert [unit.reports[0][-1].metrics["total"] for unit in units] == [96.0] * 3


def test_a_frozen_model_that_is_gone_is_not_taken_for_another() -> None:
    def train(trial: hw.Trial) -> None:
        loader = trial.prepare_data_loader(DATA, batch_size=230)
        for _ in trial.epochs(4):
            wrong = 0
            for x, _ in loader:
                for factor in (1.0, 2.0, 3.0):
                    body = nn.Linear(8, 8, bias=False)
                    nn.init.constant_(body.weight, factor)
                    wrong += not torch.equal(trial.prepare_frozen(body)(x), body(x))
                    del body
            trial.report(wrong=wrong)

    units = [hw.Unit(train, {}) for _ in range(2)]
    list(hw.pack(units, device="cpu").run())
    assert [unit.reports[0][-1].metrics["wrong"] for unit in units] == [0, 0]


def test_a_checkpoint_replaces_what_was_saved_there(tmp_path: Path) -> None:
    run = run_alone(hw.Unit(training(mlp, DATA, 1), [config(50), config(50, lr=0.2)]))
    one = run_alone(hw.Unit(training(mlp, DATA, 1), config(50)))
    for unit in (run, one):
        assert unit.checkpoint is not None
        unit.checkpoint.save(tmp_path)
    assert len(hw.Checkpoint.load(tmp_path).lanes) == 1


def test_a_unit_that_raises_leaves_the_others_alone() -> None:
    def fail(trial: hw.Trial) -> None:
        for x, _ in trial.prepare_data_loader(DATA, batch_size=50):
            raise ValueError(f"no {len(x)}")

    bad, good = hw.Unit(fail, {}), hw.Unit(training(mlp, DATA, 2), config(20))
    assert set(hw.pack([bad, good], device="cpu").run()) == {bad, good}
    assert "ValueError: no 50" in bad.errors[0]
    require_same(good, run_alone(hw.Unit(training(mlp, DATA, 2), config(20))))


def test_who_writes_into_a_batch_spoils_it_for_nobody() -> None:
    def train(trial: hw.Trial) -> None:
        for _ in trial.epochs(2):
            total = 0.0
            for x, _ in trial.prepare_data_loader(DATA, batch_size=trial.config["batch_size"]):
                total += x.sum().item()
                x.zero_()
            trial.report(total=total)

    units = [hw.Unit(train, {"batch_size": size}) for size in (10, 230)]
    list(hw.pack(units, device="cpu").run())
    for unit in units:
        assert unit.reports[0][-1].metrics["total"] == pytest.approx(X.sum().item(), abs=1e-2)


def test_data_read_in_inference_mode_can_be_trained_on_by_others() -> None:
    def look(trial: hw.Trial) -> None:
        loader = trial.prepare_data_loader(DATA, batch_size=50, shuffle=True)
        for _ in trial.epochs(1):
            with torch.inference_mode():
                trial.report(total=sum(x.sum().item() for x, _ in loader))

    good = hw.Unit(training(mlp, DATA, 1), config(20))
    list(hw.pack([hw.Unit(look, {}), good], device="cpu").run())
    assert good.errors == {}


def test_a_loader_whose_batches_have_no_order_of_examples_still_takes_turns() -> None:
    def train(trial: hw.Trial) -> None:
        loader = trial.prepare_data_loader(DataLoader(DATA, batch_sampler=[[0, 1, 2], [5, 3]]))
        for _ in trial.epochs(2):
            trial.report(total=sum(x.sum().item() for x, _ in loader))

    units = [hw.Unit(train, {}), hw.Unit(train, {})]
    list(hw.pack(units, device="cpu").run())
    assert units[0].reports[0][-1].metrics == units[1].reports[0][-1].metrics
    assert units[0].reports[0][-1].metrics["total"] == pytest.approx(X[[0, 1, 2, 5, 3]].sum().item(), rel=1e-5)


def test_an_exception_of_the_caller_ends_all_units() -> None:
    ended = []

    def train(trial: hw.Trial) -> None:
        try:
            for _ in trial.epochs(100):
                for _ in trial.prepare_data_loader(DATA, batch_size=50):
                    pass
                trial.report(loss=1.0)
        finally:
            ended.append(trial)

    run = hw.pack([hw.Unit(train, {}), hw.Unit(training(mlp, DATA, 1), config(50))], device="cpu").run()
    next(run)
    with pytest.raises(KeyError):
        run.throw(KeyError)  # type: ignore[attr-defined]  # a generator
    assert len(ended) == 1


def test_bad_input_is_refused(tmp_path: Path) -> None:
    unit = hw.Unit(training(mlp, DATA, 1), config(50))
    pack = hw.pack([unit], device="cpu")
    with pytest.raises(StudyError, match="is in a pack already"):
        hw.load(unit, pack)
    with pytest.raises(StudyError, match="at least one configuration"):
        hw.Unit(training(mlp, DATA, 1), [])
    with pytest.raises(StudyError, match="is in no pack; load it first"):
        hw.free(hw.Unit(training(mlp, DATA, 1), config(50)))
    with pytest.raises(StudyError, match="cannot be used"):
        hw.pack([unit], device="no such device")
    with pytest.raises(StoreError, match="cannot be read"):
        hw.Checkpoint.load(tmp_path)
    checkpoint = run_alone(hw.Unit(training(mlp, DATA, 1), config(50))).checkpoint
    with pytest.raises(StudyError, match="has 1 lanes, but the unit has 2 configurations"):
        hw.Unit(training(mlp, DATA, 1), [config(50), config(20)], checkpoint=checkpoint)


def test_who_breaks_off_can_go_on() -> None:
    units = [hw.Unit(training(mlp, DATA, epochs), config(50)) for epochs in (1, 3)]
    pack = hw.pack(units, device="cpu")
    for unit in pack.run():
        assert unit is units[0]
        break
    assert list(pack.run()) == [units[1]]
    require_same(units[1], run_alone(hw.Unit(training(mlp, DATA, 3), config(50))))
