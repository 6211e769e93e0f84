"""Leaving the loop early: `break` after a number of batches, and a look at how far the epoch came."""

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
valid_images, valid_labels = images[1400:], labels[1400:]

MAX_BATCHES = 12


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.SGD, model, lr=trial.config["lr"], momentum=trial.config["momentum"], nesterov=True
    )

    for _ in trial.epochs(5):
        num_batches = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            num_batches += 1
            if num_batches >= MAX_BATCHES:
                break

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            accuracy = (model(x).argmax(dim=1) == y).float().mean()
        trial.report(accuracy=accuracy.item(), batches=num_batches)


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.3), "momentum": hw.uniform(0.5, 0.95)},
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
