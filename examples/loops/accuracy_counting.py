"""Accuracy counted with `.item()`: the evaluation loop that most tutorials end with.

`correct` and `total` are ordinary Python numbers to this code. With many lanes `correct` holds one count per lane, and
`correct / total` one accuracy per lane.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
valid_set = TensorDataset(images[1400:], labels[1400:])


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    train_loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    valid_loader = trial.prepare_data_loader(valid_set, batch_size=100)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)

    for _ in trial.epochs(4):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        model.eval()
        correct = 0
        total = 0
        with torch.no_grad():
            for x, y in valid_loader:
                _, predicted = torch.max(model(x), 1)
                correct += (predicted == y).sum().item()
                total += y.size(0)
        trial.report(accuracy=correct / total, loss=loss.item())


study = hw.Study(train, space={"lr": hw.loguniform(1e-3, 0.3)}, metric="accuracy", mode="max")

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
