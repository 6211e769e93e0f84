"""An averaged copy of the weights, whose decay is tuned, evaluated beside the weights themselves."""

import copy

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


@torch.no_grad()
def update_average(average, model, decay):
    for averaged, current in zip(average.parameters(), model.parameters(), strict=True):
        averaged.mul_(decay).add_(current, alpha=1 - decay)


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    average = copy.deepcopy(model)
    average.requires_grad_(False)
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)

    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            update_average(average, model, trial.config["decay"])

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            loss = F.cross_entropy(model(x), y)
            average_loss = F.cross_entropy(average(x), y)
        trial.report(average_loss=average_loss.item(), loss=loss.item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-2, 0.2), "decay": hw.uniform(0.8, 0.999)},
    metric="average_loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
