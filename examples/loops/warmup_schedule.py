"""A linear warm-up, then a cosine: three schedulers, stepped after every batch."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
valid_images, valid_labels = images[1400:], labels[1400:]

EPOCHS = 4
WARMUP_STEPS = 20


def train(trial: hw.Trial) -> None:
    config = trial.config
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=config["lr"])

    warmup = trial.prepare_scheduler(LinearLR, optimizer, start_factor=config["start_factor"], total_iters=WARMUP_STEPS)
    cosine = trial.prepare_scheduler(
        CosineAnnealingLR, optimizer, T_max=EPOCHS * len(loader) - WARMUP_STEPS, eta_min=config["lr"] / 100
    )
    scheduler = trial.prepare_scheduler(SequentialLR, optimizer, schedulers=[warmup, cosine], milestones=[WARMUP_STEPS])

    for _ in trial.epochs(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            valid_loss = F.cross_entropy(model(x), y)
        trial.report(loss=valid_loss.item(), lr=scheduler.get_last_lr()[0])


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 3e-2), "start_factor": hw.loguniform(1e-3, 0.5)},
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
