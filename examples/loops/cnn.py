"""A convolutional network with BatchNorm and a residual connection."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
valid_images, valid_labels = images[1400:], labels[1400:]


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(x + self.norm2(self.conv2(y)))


class Net(nn.Module):
    def __init__(self, channels=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.block = Block(channels)
        self.head = nn.Linear(channels * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        x = F.adaptive_avg_pool2d(self.block(x), 2)
        return self.head(torch.flatten(x, 1))


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(Net())
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9, weight_decay=trial.config["weight_decay"]
    )

    for _ in trial.epochs(3):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        model.eval()
        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            logits = model(x)
            accuracy = (logits.argmax(dim=1) == y).float().mean().item()
            trial.report(accuracy=accuracy, loss=F.cross_entropy(logits, y).item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.1), "weight_decay": hw.loguniform(1e-5, 1e-2)},
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
