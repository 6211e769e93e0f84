"""A nested space with conditions: what an optimizer takes depends on which one it is.

Momentum is drawn for SGD alone, and Adam's learning rate from a range of its own. The `if` needs one answer, so trials
part by the optimizer's name; within each group everything else differs by lane.
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
valid_images, valid_labels = images[1400:], labels[1400:]


def train(trial: hw.Trial) -> None:
    config = trial.config
    model = trial.prepare_model(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(config["model"]["dropout"]), nn.Linear(32, 10))
    )
    loader = trial.prepare_data_loader(train_set, batch_size=config["data"]["batch_size"], shuffle=True)
    settings = config["optimizer"]
    if settings["name"] == "sgd":
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=settings["lr"], momentum=settings["momentum"])
    else:
        optimizer = trial.prepare_optimizer(torch.optim.Adam, model, lr=settings["lr"])

    for _ in trial.epochs(4):
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
        trial.report(loss=valid_loss.item())


def is_sgd(config):
    return config["optimizer"]["name"] == "sgd"


study = hw.Study(
    train,
    space={
        "data": {"batch_size": 64},
        "model": {"dropout": hw.uniform(0.05, 0.5)},
        "optimizer": {
            "name": hw.choice(["sgd", "adam"]),
            "lr": lambda config: hw.loguniform(1e-2, 0.3) if is_sgd(config) else hw.loguniform(1e-4, 1e-2),
            "momentum": lambda config: hw.uniform(0.5, 0.95) if is_sgd(config) else None,
        },
    },
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
