"""An activation chosen by name in a function that builds the model: trials with different ones train as one group.

The function is called once for each trial and sees that trial's own configuration. The models that it builds have the
same weights to train, so they share every layer; only in the activation does each trial go its own way.
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


class Net(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.activation = getattr(nn, activation)()
        self.output = nn.Linear(32, 10)

    def forward(self, x):
        return self.output(self.activation(self.hidden(x)))


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(lambda: Net(trial.config["activation"]))
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
