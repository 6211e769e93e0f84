"""Gradient accumulation: four small batches make one step."""

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

ACCUMULATION_STEPS = 4


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=16, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.AdamW, model, lr=trial.config["lr"], weight_decay=trial.config["weight_decay"]
    )

    for _ in trial.epochs(4):
        model.train()
        optimizer.zero_grad()
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y)
            (loss / ACCUMULATION_STEPS).backward()
            if (step + 1) % ACCUMULATION_STEPS == 0 or step + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()

        model.eval()
        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            valid_loss = F.cross_entropy(model(x), y)
        trial.report(loss=valid_loss.item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-4, 3e-2), "weight_decay": hw.loguniform(1e-4, 0.3)},
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
