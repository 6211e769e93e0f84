"""Label smoothing, tuned: the criterion is built once, with the configuration's value."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
valid_images, valid_labels = images[1400:], labels[1400:]


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    loader = trial.prepare_data_loader(DataLoader(train_set, batch_size=64, shuffle=True, drop_last=True))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=trial.config["label_smoothing"])

    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()

        with torch.no_grad():
            x, y = valid_images.to(trial.device), valid_labels.to(trial.device)
            logits = model(x)
            accuracy = (logits.argmax(dim=1) == y).float().mean().item()
            trial.report(accuracy=accuracy, loss=nn.functional.cross_entropy(logits, y).item())


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-2, 0.3), "label_smoothing": hw.uniform(0.0, 0.3)},
    metric="accuracy",
    mode="max",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
