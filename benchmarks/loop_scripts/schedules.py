"""Schedules, precision, losses and data that are tuned, as repositories write them."""

import copy
import math
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from torch.utils.data import Dataset

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import blobs, table, waves

train_set, test_set = table(256), table(128, seed=1)
x_test, y_test = blobs(128, seed=1)
series, later_series = waves(192), waves(64, seed=1)


def mlp():
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4))


@loop(accumulation_scale=hw.uniform(0.5, 2.0))
def gradient_accumulation(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("AdamW", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=16, shuffle=True)
    accumulation_steps = 4
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y) / accumulation_steps
            loss.backward()
            if (i + 1) % accumulation_steps == 0 or (i + 1) == len(loader):
                optimizer.step()
                optimizer.zero_grad()
        trial.report(loss=loss.item() * accumulation_steps)


@loop(clip=hw.uniform(0.5, 5.0))
def autocast_scaler(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    scaler = torch.amp.GradScaler("cpu")
    for _ in trial.epochs(3):
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), trial.config["clip"])
            scaler.step(optimizer)
            scaler.update()
        trial.report(loss=loss.item(), scale=scaler.get_scale())


class Forecaster(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.lstm = nn.LSTM(1, 12, num_layers=2, dropout=dropout, batch_first=True)
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1, :])


@loop(dropout=hw.uniform(0.0, 0.4))
def lstm_dropout(trial):
    model = trial.prepare_model(Forecaster(trial.config["dropout"]))
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(series, batch_size=32, shuffle=True)
    best_loss = float("inf")
    patience, trigger_times = 2, 0
    for epoch in trial.epochs(3):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val_loss = F.mse_loss(model(later_series.tensors[0]), later_series.tensors[1]).item()
        trial.report(loss=val_loss)
        if val_loss < best_loss:
            best_loss = val_loss
            trigger_times = 0
            best_model = copy.deepcopy(model.state_dict())
        else:
            trigger_times += 1
            if trigger_times >= patience:
                print(f"Early stopping at epoch {epoch}")
                break
    model.load_state_dict(best_model)


class CellModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 12), nn.LSTMCell(12, 12), nn.Linear(12, 1)

    def forward(self, x, future=0):
        h_t, c_t = (torch.zeros(x.size(0), 12, dtype=x.dtype) for _ in range(2))
        h_t2, c_t2 = (torch.zeros(x.size(0), 12, dtype=x.dtype) for _ in range(2))
        outputs = []
        for input_t in x.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


@loop()
def time_sequence_cells(trial):
    data = series.tensors[0][:32, :, 0]
    model = trial.prepare_model(CellModel())
    criterion = nn.MSELoss()
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    for i in trial.epochs(3):
        print("STEP: ", i)
        for _ in range(2):
            optimizer.zero_grad()
            loss = criterion(model(data[:, :-1]), data[:, 1:])
            print("loss:", loss.item())
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            pred = model(data[:, :-1], future=4)
            loss = criterion(pred[:, :-4], data[:, 1:])
            y = pred.detach().numpy()
        trial.report(loss=loss.item(), far=float(y[:, -1].mean()))


@loop(delta=hw.uniform(0.2, 2.0))
def huber(trial):
    model = trial.prepare_model(nn.Sequential(nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 4)))
    criterion = nn.HuberLoss(delta=trial.config["delta"])
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(series, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        trial.report(loss=F.mse_loss(model(later_series.tensors[0]), later_series.tensors[1]))


@loop(head_factor=hw.loguniform(1, 20), weight_decay=hw.loguniform(1e-4, 1e-1))
def layer_groups_warmup_lambda(trial):
    model = trial.prepare_model(mlp())
    groups = [
        {"params": model[0].parameters(), "lr": trial.config["lr"]},
        {"params": model[2].parameters(), "lr": trial.config["lr"] * trial.config["head_factor"], "weight_decay": 0.0},
    ]
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, groups, weight_decay=trial.config["weight_decay"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    total, warmup = 4 * len(loader), 6
    scheduler = trial.prepare_scheduler(
        lr_scheduler.LambdaLR, optimizer,
        lr_lambda=lambda step: min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / total)))  # fmt: skip
    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
        print("lr: {:.2e}".format(scheduler.get_last_lr()[0]), "loss: %.4f" % loss.item())
        trial.report(loss=loss.item())


@loop(eta_min=hw.loguniform(1e-5, 1e-3))
def cosine_restarts(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9, nesterov=True)
    scheduler = trial.prepare_scheduler(
        "CosineAnnealingWarmRestarts", optimizer, T_0=2, eta_min=trial.config["eta_min"]
    )
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    iters = len(loader)
    for epoch in trial.epochs(4):
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step(epoch + i / iters)
        trial.report(loss=loss.item())


@loop(factor=hw.uniform(0.1, 0.7))
def plateau_stop(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    scheduler = trial.prepare_scheduler("ReduceLROnPlateau", optimizer, factor=trial.config["factor"], patience=0)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    best, wait, path = math.inf, 0, tempfile.mkdtemp() + "/best.pt"
    for epoch in trial.epochs(5):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val = F.cross_entropy(model(x_test), y_test).item()
        scheduler.step(val)
        trial.report(loss=val)
        if val < best - 1e-4:
            best, wait = val, 0
            torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        else:
            wait += 1
            if wait > 1:
                break
        if optimizer.param_groups[0]["lr"] < 1e-6:
            break


class Noisy(Dataset):
    def __init__(self, noise):
        self.noise = noise

    def __len__(self):
        return len(train_set)

    def __getitem__(self, index):
        x, y = train_set[index]
        return x + self.noise * torch.randn_like(x), y


@loop(noise=hw.uniform(0.0, 0.5))
def noisy_dataset(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(Noisy(trial.config["noise"]), batch_size=32, shuffle=True)
    for _ in trial.epochs(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())


class SmoothedCutout(Dataset):
    def __init__(self, smoothing, size, probability):
        self.smoothing, self.size, self.probability = smoothing, size, probability

    def __len__(self):
        return len(train_set)

    def __getitem__(self, index):
        x, y = train_set[index]
        if random.random() < self.probability:
            x = x.clone()
            start = random.randrange(16)
            x[start : start + int(self.size)] = 0
        label = torch.full((4,), self.smoothing / 3)
        label[y] = 1 - self.smoothing
        return x, label


@loop(smoothing=hw.uniform(0.0, 0.3), size=hw.uniform(1, 8), probability=hw.uniform(0.2, 0.8))
def smoothed_cutout_dataset(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    data = SmoothedCutout(trial.config["smoothing"], trial.config["size"], trial.config["probability"])
    loader = trial.prepare_data_loader(data, batch_size=32, shuffle=True)
    for _ in trial.epochs(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            trial.report(loss=F.cross_entropy(model(x_test), y_test).item())


@loop(std=hw.loguniform(0.01, 0.3))
def initial_scale(trial):
    net = mlp()
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=trial.config["std"])
            nn.init.zeros_(module.bias)
    model = trial.prepare_model(net)
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())


@loop(smoothing=hw.uniform(0.0, 0.2))
def plain_counting_without_epochs(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    best = float("inf")
    for _epoch in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=trial.config["smoothing"])
            loss.backward()
            optimizer.step()
        if loss.item() < best:
            best = loss.item()
        trial.report(loss=loss.item(), best=best)
