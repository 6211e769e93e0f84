"""An activation chosen by name: a model has one activation, so trials with different ones part into groups.

Nothing here says so. `getattr(nn, name)` needs one name; the study notes which hyperparameter asked for it, sorts the
trials by it, and trains those that agree together.
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
    activation = getattr(nn, trial.config["activation"])
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), activation(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)

    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            logits = model(x)
            accuracy = (logits.argmax(dim=1) == y).float().mean().item()
            trial.report(accuracy=accuracy, loss=F.cross_entropy(logits, y).item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.2), "activation": hw.choice(["ReLU", "Tanh", "SiLU"])},
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
