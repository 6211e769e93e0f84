"""Loops whose evaluation leaves torch: scikit-learn, NumPy, statistics, JSON."""

import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, mean_squared_error, roc_auc_score

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import blobs, table

train_set, test_set = table(256), table(128, seed=1)
x_test, y_test = blobs(128, seed=1)


def mlp(dropout=0.1):
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Dropout(dropout), nn.Linear(24, 4))


class FactorizationMachine(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(48, 6), nn.Embedding(48, 1)
        self.bias = nn.Parameter(torch.zeros((1,)))
        nn.init.xavier_uniform_(self.embedding.weight.data)

    def forward(self, x):
        emb = self.embedding(x)
        square_of_sum = emb.sum(dim=1) ** 2
        sum_of_square = (emb**2).sum(dim=1)
        pairs = 0.5 * (square_of_sum - sum_of_square).sum(1)
        return torch.sigmoid(self.linear(x).sum(dim=(1, 2)) + self.bias + pairs)


fields = torch.randint(16, (256, 3), generator=torch.Generator().manual_seed(0)) + torch.tensor([0, 16, 32])
clicks = ((fields.sum(dim=1) % 7) > 3).to(torch.get_default_dtype())


class EarlyStopper:
    def __init__(self, num_trials, save_path):
        self.num_trials = num_trials
        self.trial_counter = 0
        self.best_accuracy = 0
        self.save_path = save_path

    def is_continuable(self, model, accuracy):
        if accuracy > self.best_accuracy:
            self.best_accuracy = accuracy
            self.trial_counter = 0
            torch.save(model.state_dict(), self.save_path)
            return True
        if self.trial_counter + 1 < self.num_trials:
            self.trial_counter += 1
            return True
        return False


@loop("auc", "max", weight_decay=hw.loguniform(1e-6, 1e-3))
def factorization_machine(trial):
    model = trial.prepare_model(FactorizationMachine())
    criterion = torch.nn.BCELoss()
    optimizer = trial.prepare_optimizer(
        torch.optim.Adam, params=model.parameters(), lr=trial.config["lr"], weight_decay=trial.config["weight_decay"]
    )
    loader = trial.prepare_data_loader(torch.utils.data.TensorDataset(fields, clicks), batch_size=32, shuffle=True)
    early_stopper = EarlyStopper(num_trials=2, save_path=tempfile.mkdtemp() + "/fm.pt")
    for epoch_i in trial.epochs(4):
        model.train()
        for x, target in loader:
            y = model(x)
            loss = criterion(y, target.to(y.dtype))
            model.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        targets, predicts = [], []
        with torch.no_grad():
            for x, target in loader:
                targets.extend(target.tolist())
                predicts.extend(model(x).tolist())
        auc = roc_auc_score(targets, predicts)
        print("epoch:", epoch_i, "validation: auc:", auc)
        trial.report(auc=auc)
        if not early_stopper.is_continuable(model, auc):
            print(f"validation: best auc: {early_stopper.best_accuracy}")
            break


@loop("f1", "max", dropout=hw.uniform(0.0, 0.5))
def confusion(trial):
    model = trial.prepare_model(mlp(trial.config["dropout"]))
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(x_test)
        pred = logits.argmax(dim=1).cpu().numpy()
        truth = y_test.cpu().numpy()
        cm = confusion_matrix(truth, pred, labels=[0, 1, 2, 3])
        per_class = cm.diagonal() / cm.sum(axis=1)
        print(cm)
        trial.report(f1=f1_score(truth, pred, average="macro"), acc=accuracy_score(truth, pred), worst=per_class.min())


@loop("accuracy", "max", margin=hw.uniform(0.5, 2.0))
def siamese_knn(trial):
    encoder = trial.prepare_model(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)))
    optimizer = trial.prepare_optimizer("Adam", encoder, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        for x, y in loader:
            a, b = encoder(x), encoder(x.roll(1, 0))
            same = (y == y.roll(1, 0)).to(a.dtype)
            distance = F.pairwise_distance(a, b)
            loss = torch.mean(
                same * distance.pow(2) + (1 - same) * torch.clamp(trial.config["margin"] - distance, min=0.0).pow(2)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            bank = encoder(train_set.tensors[0]).numpy()
            query = encoder(x_test).numpy()
        distances = ((query[:, None, :] - bank[None, :, :]) ** 2).sum(-1)
        nearest = np.argsort(distances, axis=1)[:, :5]
        votes = train_set.tensors[1].numpy()[nearest]
        guess = np.array([np.bincount(row, minlength=4).argmax() for row in votes])
        accuracy = float((guess == y_test.numpy()).mean())
        trial.report(accuracy=accuracy, loss=loss.item())


@loop(dropout=hw.uniform(0.0, 0.5))
def history_as_json(trial):
    model = trial.prepare_model(mlp(trial.config["dropout"]))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    history = {"train_loss": [], "val_loss": []}
    path = Path(tempfile.mkdtemp()) / "history.json"
    for _ in trial.epochs(4):
        model.train()
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            val_loss = F.cross_entropy(model(x_test), y_test).item()
        history["train_loss"].append(statistics.mean(losses))
        history["val_loss"].append(val_loss)
        trial.report(loss=val_loss, spread=statistics.stdev(losses))
        with open(path, "w") as f:
            json.dump(history, f, indent=2)


@loop("rmse", dropout=hw.uniform(0.0, 0.3))
def numpy_regression(trial):
    model = trial.prepare_model(
        nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Dropout(trial.config["dropout"]), nn.Linear(24, 1))
    )
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for epoch in trial.epochs(4):
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x).squeeze(-1), y.to(x.dtype))
            if np.isnan(loss.item()):
                raise RuntimeError("loss is not a number")
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        preds, labels = [], []
        with torch.no_grad():
            for x, y in loader:
                preds.append(model(x).squeeze(-1).detach().cpu().numpy())
                labels.append(y.numpy())
        preds, labels = np.concatenate(preds), np.concatenate(labels)
        mae = np.abs(preds - labels).mean()
        rmse = np.sqrt(mean_squared_error(labels, preds))
        print(f"epoch {epoch} train {np.sqrt(np.mean(losses)):.4f} mae {mae:.4f} rmse {rmse:.4f}")
        trial.report(rmse=rmse, mae=mae, train=np.exp(-np.mean(losses)))


@loop("acc", "max", smoothing=hw.uniform(0.0, 0.3))
def label_smoothing_minutes(trial):
    model = trial.prepare_model(mlp())
    criterion = nn.CrossEntropyLoss(label_smoothing=trial.config["smoothing"])
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    running = 0.0
    for epoch in trial.epochs(4):
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item()
            if i % 4 == 3:
                print("[%d, %5d] loss: %.3f" % (epoch + 1, i + 1, running / 4))
                running = 0.0
        with torch.no_grad():
            acc = (model(x_test).argmax(1) == y_test).float().mean().item()
        minutes, seconds = divmod(acc * 1000, 60)
        print("accuracy %.2f%% after %d:%02d" % (100 * acc, minutes, seconds))
        trial.report(acc=acc, minutes=minutes)
