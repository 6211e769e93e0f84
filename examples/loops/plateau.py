"""ReduceLROnPlateau: each lane's learning rate falls when that lane's own validation loss stops falling."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
valid_images, valid_labels = images[1400:], labels[1400:]


def train(trial: hw.Trial) -> None:
    config = trial.config
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=128, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=config["lr"], momentum=0.9)
    scheduler = trial.prepare_scheduler(
        ReduceLROnPlateau, optimizer, mode="min", factor=config["factor"], patience=0, threshold=config["threshold"]
    )

    for _ in trial.epochs(8):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        model.eval()
        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            valid_loss = F.cross_entropy(model(x), y)
        scheduler.step(valid_loss)
        trial.report(loss=valid_loss.item(), lr=optimizer.param_groups[0]["lr"])


study = hw.Study(
    train,
    space={
        "lr": hw.loguniform(1e-2, 0.5),
        "factor": hw.uniform(0.1, 0.8),
        "threshold": hw.uniform(0.02, 0.2),
    },
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
