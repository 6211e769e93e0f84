"""What the benchmarks of packs train: models of the paper's kinds, small enough for a CPU, on raw CIFAR-10 images."""

from collections.abc import Callable
from functools import partial
from typing import Any

import data
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import headwater as hw

BATCH_SIZES = tuple(range(20, 75, 5))
RATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
MOMENTUM = partial(torch.optim.SGD, momentum=0.9)
OPTIMIZERS = (torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad, MOMENTUM)
ACTIVATIONS = ("Sigmoid", "LeakyReLU", "Tanh", "ReLU")


class RawImages(Dataset[Any]):
    """Images as bytes; each is cropped, flipped, halved in size and normalised whenever it is loaded."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        top, left, flips = torch.randint(0, 9, (3,)).tolist()
        x = F.pad(self._x[index], (4, 4, 4, 4))[:, top : top + 32, left : left + 32].float()
        return normalise(F.avg_pool2d(x.flip(2) if flips > 4 else x, 2)), self._y[index]

    def __len__(self) -> int:
        return len(self._x)


def raw_images(num_examples: int, start: int = 0) -> RawImages:
    x, y = data.cifar10_bytes()
    return RawImages(x[start : start + num_examples], y[start : start + num_examples])


def ready_images(num_examples: int, start: int = 0) -> TensorDataset:
    """The same images, halved and normalised once and for all."""
    raw = raw_images(num_examples, start)
    return TensorDataset(normalise(F.avg_pool2d(raw._x.float(), 2)), raw._y)


def normalise(x: Tensor) -> Tensor:
    return x.div_(255).sub_(0.47).div_(0.25)


def mlp3(activation: str = "ReLU") -> nn.Module:
    """Three hidden layers."""
    act = getattr(nn, activation)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 10)
    )


def mobilenet(activation: str = "ReLU") -> nn.Module:
    """Convolutions by channel and point in turns."""
    act = getattr(nn, activation)

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, inputs, 3, stride=2, padding=1, groups=inputs, bias=False), nn.BatchNorm2d(inputs), act(),
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), act(),
        ]  # fmt: skip

    stem = [nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), act()]
    body = [*stem, *block(8, 16), *block(16, 32)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Residual(nn.Module):
    def __init__(self, width: int, grows: bool = False) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.grows = grows

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        return torch.cat([x, y], 1) if self.grows else F.relu(x + y)


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), Residual(16), nn.MaxPool2d(2), Residual(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def densenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), Residual(8, grows=True), nn.MaxPool2d(2), Residual(16, grows=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {
    "MLP-3": mlp3, "MobileNet": mobilenet, "ResNet": resnet, "DenseNet": densenet,
}  # fmt: skip


def training(build: Callable[[], nn.Module], examples: Dataset[Any], num_epochs: int = 1) -> Callable[..., None]:
    """An ordinary loop."""

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(build)
        loader = trial.prepare_data_loader(examples, batch_size=trial.config["batch_size"], shuffle=True)
        optimizer = trial.prepare_optimizer(trial.config["optimizer"], model, lr=trial.config["lr"])
        for _ in trial.epochs(num_epochs):
            total = torch.zeros(())
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            trial.report(loss=total / len(loader))

    return train
