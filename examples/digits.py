"""Tune a small classifier of handwritten digits: the loop is plain PyTorch, and dozens of trials of it train at once.

Run it with `headwater run examples/digits.py --trials 64`, or `make demo`.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
valid_images, valid_labels = images[1400:], labels[1400:]


class Net(nn.Module):
    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def train(trial: hw.Trial) -> None:
    config = trial.config
    model = trial.prepare_model(Net(config["hidden"], config["dropout"]))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.SGD, model, lr=config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"]
    )
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.ExponentialLR, optimizer, gamma=config["gamma"])
    for _ in trial.epochs(15):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=config["label_smoothing"])
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            predicted = model(x).argmax(1)
        accuracy = (predicted == y).sum().item() / len(y)
        trial.report(accuracy=accuracy, loss=loss.item())


study = hw.Study(
    train,
    space={
        "lr": hw.loguniform(1e-3, 1.0),
        "momentum": hw.uniform(0.5, 0.99),
        "weight_decay": hw.loguniform(1e-6, 1e-2),
        "gamma": hw.uniform(0.7, 1.0),
        "dropout": hw.uniform(0.05, 0.5),
        "label_smoothing": hw.uniform(0.0, 0.2),
        "hidden": hw.choice([16, 32]),
    },
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=64).best
    print(best.config, best.metrics)
