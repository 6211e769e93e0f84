"""Tune a small network on digits that are turned and shifted anew whenever they are loaded.

Run it with `headwater run examples/packs.py --trials 24`. Trials with different batch sizes cannot train as one, but an
image need not be turned for each of them: the study measures what loading costs, and lets them share it as a pack. The
activation is chosen by name in the function that builds the model, so it parts no lanes.
"""

import math
import random

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
valid_images, valid_labels = images[1400:], labels[1400:]


class TurnedDigits(Dataset[tuple[Tensor, Tensor]]):
    """The training digits, each turned by up to 15 degrees and shifted by up to a pixel."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        angle = math.radians(random.uniform(-15, 15))
        cosine, sine = math.cos(angle), math.sin(angle)
        shift = [random.uniform(-0.25, 0.25) for _ in range(2)]
        turn = torch.tensor([[[cosine, -sine, shift[0]], [sine, cosine, shift[1]]]])
        places = F.affine_grid(turn, [1, 1, 8, 8], align_corners=False)
        return F.grid_sample(images[index : index + 1], places, align_corners=False)[0], labels[index]

    def __len__(self) -> int:
        return 1400


train_set = TurnedDigits()  # one object for all trials: this is how the study knows that they read the same


class Net(nn.Module):
    def __init__(self, activation: str) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.activation = getattr(nn, activation)()
        self.output = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.hidden(x.flatten(1))))


def train(trial: hw.Trial) -> None:
    config = trial.config
    model = trial.prepare_model(lambda: Net(config["activation"]))
    loader = trial.prepare_data_loader(train_set, batch_size=config["batch_size"], shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=config["lr"], momentum=0.9)
    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            accuracy = (model(x).argmax(1) == y).float().mean()
        trial.report(accuracy=accuracy.item(), loss=loss.item())


study = hw.Study(
    train,
    space={
        "lr": hw.loguniform(1e-3, 0.3),
        "batch_size": hw.choice([20, 35, 50, 70, 100, 140]),
        "activation": hw.choice(["ReLU", "Tanh", "SiLU"]),
    },
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=24).best
    print(best.config, best.metrics)
