"""Mixed precision: the forward pass in bfloat16 under `torch.autocast`, weights and updates in float32."""

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
    optimizer = trial.prepare_optimizer(
        torch.optim.SGD, model, lr=trial.config["lr"], momentum=trial.config["momentum"]
    )

    for _ in trial.epochs(3):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(trial.device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        with torch.no_grad(), torch.autocast(trial.device.type, dtype=torch.bfloat16):
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            valid_loss = F.cross_entropy(model(x), y)
        trial.report(loss=valid_loss.item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.1), "momentum": hw.uniform(0.5, 0.95)},
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
