"""A loss of one's own: a focal loss with a tuned exponent, and a tuned L2 penalty over `model.parameters()`."""

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


class FocalLoss(nn.Module):
    """Cross-entropy that counts hard examples more: (1 - p)^gamma * -log p."""

    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits, target):
        log_p = F.log_softmax(logits, dim=-1).gather(1, target.unsqueeze(1)).squeeze(1)
        return -((1 - log_p.exp()) ** self.gamma * log_p).mean()


def l2_penalty(model):
    return sum(p.pow(2).sum() for p in model.parameters())


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.Adam, model, lr=trial.config["lr"])
    criterion = FocalLoss(trial.config["gamma"])

    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y) + trial.config["l2"] * l2_penalty(model)
            loss.backward()
            optimizer.step()

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            logits = model(x)
            accuracy = (logits.argmax(dim=1) == y).float().mean().item()
            trial.report(accuracy=accuracy, loss=criterion(logits, y).item(), penalty=l2_penalty(model))


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-4, 1e-2), "gamma": hw.uniform(0.5, 4.0), "l2": hw.loguniform(1e-6, 1e-3)},
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
