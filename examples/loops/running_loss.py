"""Accounts kept in plain Python: `float(loss)`, `max(best, accuracy)`, `math.exp` for a perplexity."""

import math

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


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.RMSprop, model, lr=trial.config["lr"], alpha=trial.config["alpha"])

    best = 0.0
    for _ in trial.epochs(4):
        running_loss = 0.0
        num_examples = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            running_loss += float(loss.detach()) * len(x)
            num_examples += len(x)
        mean_loss = running_loss / num_examples

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            accuracy = float((model(x).argmax(dim=1) == y).float().mean())
        best = max(best, accuracy)
        trial.report(perplexity=math.exp(mean_loss), loss=mean_loss, best=best)


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-4, 1e-2), "alpha": hw.uniform(0.8, 0.99)},
    metric="perplexity",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
