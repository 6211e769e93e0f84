"""Gradient clipping, with the limit tuned: every lane has a gradient norm and a limit of its own."""

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
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)

    for _ in trial.epochs(4):
        model.train()
        total_norm = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), trial.config["max_norm"])
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
            optimizer.step()
            total_norm += norm.item()

        model.eval()
        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            valid_loss = F.cross_entropy(model(x), y)
        trial.report(loss=valid_loss.item(), mean_norm=total_norm / len(loader))


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-2, 0.3), "max_norm": hw.loguniform(0.05, 5.0)},
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
