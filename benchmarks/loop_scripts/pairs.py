"""A Siamese network: two pictures, one encoder, a distance."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import Dataset

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import pictures


class PairDataset(Dataset):
    def __init__(self, count, seed):
        self.data, self.labels = pictures(count, seed=seed).tensors
        self.rng = random.Random(seed)
        self.pairs = []
        for i in range(count):
            want = self.rng.randint(0, 1)
            while True:
                j = self.rng.randrange(count)
                if int(self.labels[i] == self.labels[j]) == want:
                    break
            self.pairs.append((i, j, want))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        i, j, same = self.pairs[k]
        return self.data[i], self.data[j], torch.tensor(same, dtype=torch.get_default_dtype())


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn1 = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(inplace=True)
        )
        self.fc1 = nn.Sequential(nn.Linear(72, 24), nn.ReLU(inplace=True), nn.Linear(24, 8))

    def forward_once(self, x):
        return self.fc1(self.cnn1(x).view(x.size(0), -1))

    def forward(self, a, b):
        return self.forward_once(a), self.forward_once(b)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, label):
        d = F.pairwise_distance(a, b, keepdim=True)
        return torch.mean((1 - label) * torch.pow(d, 2) + label * torch.pow(torch.clamp(self.margin - d, min=0.0), 2))


def evaluate(net, loader, threshold):
    correct, total, ds = 0, 0, []
    net.eval()
    with torch.no_grad():
        for a, b, same in loader:
            d = F.pairwise_distance(*net(a, b))
            ds.append(d.mean().item())
            pred = (d < threshold).to(same.dtype)
            correct += pred.eq(same).sum().item()
            total += len(a)
    return correct / total, sum(ds) / len(ds)


@loop(margin=hw.uniform(0.5, 2.0))
def siamese_contrastive(trial):
    net = trial.prepare_model(SiameseNetwork())
    criterion = ContrastiveLoss(trial.config["margin"])
    optimizer = trial.prepare_optimizer(optim.Adam, net.parameters(), lr=trial.config["lr"])
    loader = trial.prepare_data_loader(PairDataset(128, 0), batch_size=16, shuffle=True)
    val = trial.prepare_data_loader(PairDataset(64, 1), batch_size=32)
    for _ in trial.epochs(4):
        net.train()
        total = 0.0
        for a, b, same in loader:
            optimizer.zero_grad()
            o1, o2 = net(a, b)
            loss = criterion(o1, o2, 1 - same[:, None])
            loss.backward()
            optimizer.step()
            total += loss.item()
        acc, d = evaluate(net, val, trial.config["margin"] / 2)
        trial.report(loss=total / len(loader), acc=acc, d=d)
