"""Dropout, tuned: each lane drops exactly the units that its trial would drop alone."""

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


class Net(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.hidden = nn.Linear(64, 48)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(48, 10)

    def forward(self, x):
        return self.output(self.dropout(F.relu(self.hidden(x))))


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(Net(trial.config["dropout"]))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)

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
        trial.report(loss=valid_loss.item(), train_loss=loss.item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-2, 0.2), "dropout": hw.uniform(0.05, 0.6)},
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
