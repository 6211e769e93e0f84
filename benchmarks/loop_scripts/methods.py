"""Ways of learning beyond the plain loop, as repositories write them."""

import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Beta, Categorical
from torch.func import functional_call

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import blobs, table

train_set, test_set = table(256), table(128, seed=1)
x_test, y_test = blobs(128, seed=1)


def mlp():
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4))


def info_nce_loss(features, temperature):
    labels = torch.cat([torch.arange(features.shape[0] // 2) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).to(features.dtype)
    features = F.normalize(features, dim=1)
    similarity_matrix = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
    positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1)
    return logits / temperature, torch.zeros(logits.shape[0], dtype=torch.long)


@loop(temperature=hw.loguniform(0.05, 0.5))
def simclr(trial):
    model = trial.prepare_model(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8)))
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True, drop_last=True)
    for epoch in trial.epochs(3):
        for x, _ in loader:
            views = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])
            logits, labels = info_nce_loss(model(views), trial.config["temperature"])
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            top1 = (logits.argmax(1) == labels).float().mean() * 100
        print(f"Epoch: {epoch}\tLoss: {loss}\tTop1 accuracy: {top1}")
        trial.report(loss=loss.item(), top1=top1.item())


@loop(inner_lr=hw.loguniform(0.01, 0.5))
def maml(trial):
    model = trial.prepare_model(nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)))
    meta_optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    for epoch in trial.epochs(3):
        total = 0.0
        for _ in range(4):
            meta_optimizer.zero_grad()
            outer_loss = 0.0
            for _ in range(2):
                amplitude, phase = random.uniform(0.1, 5.0), random.uniform(0, math.pi)
                x = torch.rand(20, 1) * 10 - 5
                y = amplitude * torch.sin(x + phase)
                fast = dict(model.named_parameters())
                inner_loss = F.mse_loss(functional_call(model, fast, (x[:10],)), y[:10])
                grads = torch.autograd.grad(inner_loss, list(fast.values()), create_graph=True)
                fast = {k: p - trial.config["inner_lr"] * g for (k, p), g in zip(fast.items(), grads, strict=True)}
                outer_loss = outer_loss + F.mse_loss(functional_call(model, fast, (x[10:],)), y[10:])
            outer_loss.backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 10.0)
            meta_optimizer.step()
            total += outer_loss.item() / 2
        print("epoch %d meta loss %.3f" % (epoch, total / 4))
        trial.report(loss=total / 4)


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, x, adj):
        return torch.spmm(adj, torch.mm(x, self.weight)) + self.bias


class GCN(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(16, 12), GraphConvolution(12, 4)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    return correct.sum() / len(labels)


@loop("acc_val", "max", dropout=hw.uniform(0.1, 0.7), weight_decay=hw.loguniform(1e-5, 1e-2))
def gcn(trial):
    features, labels = train_set.tensors
    near = torch.cdist(features, features) < 5.0
    adj = near.to(features.dtype) / near.sum(1, keepdim=True)
    idx_train, idx_val = torch.arange(64), torch.arange(64, 256)
    model = trial.prepare_model(GCN(trial.config["dropout"]))
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"], weight_decay=trial.config["weight_decay"])
    for epoch in trial.epochs(8):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        acc_train = accuracy(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        model.eval()
        output = model(features, adj)
        acc_val = accuracy(output[idx_val], labels[idx_val])
        print("Epoch: {:04d}".format(epoch + 1), "loss_train: {:.4f}".format(loss_train.item()),
              "acc_train: {:.4f}".format(acc_train.item()), "acc_val: {:.4f}".format(acc_val.item()))  # fmt: skip
        trial.report(acc_val=acc_val.item())


class Cart:
    """A toy with the interface of an environment: keep a point near the middle."""

    def reset(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.normal(size=2) * 0.1
        self.num_steps = 0
        return self.state

    def step(self, action):
        self.state = self.state + np.array([0.1 * self.state[1], 0.2 * (action - 0.5) + 0.05 * self.rng.normal()])
        self.num_steps += 1
        return self.state, 1.0 - abs(self.state[0]), bool(abs(self.state[0]) > 1.0 or self.num_steps >= 20)


@loop("reward", "max", discount=hw.uniform(0.9, 0.999))
def policy_gradient(trial):
    policy = trial.prepare_model(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=-1)))
    optimizer = trial.prepare_optimizer("Adam", policy, lr=trial.config["lr"])
    env = Cart()
    running_reward = 10
    for i_episode in trial.epochs(3):
        state, ep_reward, done = env.reset(i_episode), 0, False
        rewards, saved_log_probs = [], []
        while not done:
            probs = policy(torch.from_numpy(state).to(torch.get_default_dtype()).unsqueeze(0))
            m = Categorical(probs)
            action = m.sample()
            saved_log_probs.append(m.log_prob(action))
            state, reward, done = env.step(action.item())
            rewards.append(reward)
            ep_reward += reward
        R, returns = 0, []
        for r in rewards[::-1]:
            R = r + trial.config["discount"] * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        policy_loss = [-log_prob * R for log_prob, R in zip(saved_log_probs, returns, strict=True)]
        optimizer.zero_grad()
        torch.cat(policy_loss).sum().backward()
        optimizer.step()
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        print("Episode {}\tLast reward: {:.2f}\tAverage reward: {:.2f}".format(i_episode, ep_reward, running_reward))
        trial.report(reward=running_reward)


def mixup_data(x, y, alpha=1.0):
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1
    index = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[index, :], y, y[index], lam


@loop(alpha=hw.uniform(0.1, 1.0))
def mixup(trial):
    model = trial.prepare_model(mlp())
    criterion = nn.CrossEntropyLoss()
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        train_loss, correct, total = 0, 0, 0
        for inputs, targets in loader:
            inputs, targets_a, targets_b, lam = mixup_data(inputs, targets, trial.config["alpha"])
            outputs = model(inputs)
            loss = lam * criterion(outputs, targets_a) + (1 - lam) * criterion(outputs, targets_b)
            train_loss += loss.item()
            _, predicted = torch.max(outputs.data, 1)
            total += targets.size(0)
            correct += (
                lam * predicted.eq(targets_a.data).cpu().sum().float()
                + (1 - lam) * predicted.eq(targets_b.data).cpu().sum().float()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(loss=train_loss / len(loader), acc=100.0 * correct / total)


@loop(alpha=hw.uniform(0.2, 2.0))
def mixup_by_distribution(trial):
    model = trial.prepare_model(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 4)))
    optimizer = trial.prepare_optimizer("AdamW", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        for x, y in loader:
            lam = Beta(trial.config["alpha"], trial.config["alpha"]).sample().to(x.dtype)
            index = torch.randperm(x.size(0))
            output = model(lam * x + (1 - lam) * x[index])
            loss = lam * F.cross_entropy(output, y) + (1 - lam) * F.cross_entropy(output, y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss.item())


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        assert rho >= 0.0, f"Invalid rho, should be non-negative: {rho}"
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        grad_norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (grad_norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("SAM takes two steps")

    def _grad_norm(self):
        return torch.norm(torch.stack([
            p.grad.norm(p=2) for group in self.param_groups for p in group["params"] if p.grad is not None]), p=2)  # fmt: skip


@loop(rho=hw.loguniform(0.01, 0.2))
def sam(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer(
        SAM,
        model.parameters(),
        base_optimizer=torch.optim.SGD,
        rho=trial.config["rho"],
        lr=trial.config["lr"],
        momentum=0.9,
    )
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.first_step(zero_grad=True)
            F.cross_entropy(model(x), y).backward()
            optimizer.second_step(zero_grad=True)
            total += loss.item()
        trial.report(loss=total / len(loader))


@loop(rho=hw.loguniform(0.01, 0.2))
def sam_by_hand(trial):
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
                moves = [trial.config["rho"] * p.grad / (norm + 1e-12) for p in model.parameters()]
                for p, move in zip(model.parameters(), moves, strict=True):
                    p.add_(move)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                for p, move in zip(model.parameters(), moves, strict=True):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()
        trial.report(loss=loss.item())


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(9, 9, dtype=torch.complex64 if torch.get_default_dtype() == torch.float32 else torch.complex128)
            / 9
        )
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        return self.out(F.gelu(torch.fft.irfft(spectrum @ self.weight, n=16)))


@loop(weight_decay=hw.loguniform(1e-5, 1e-2))
def fourier_complex(trial):
    model = trial.prepare_model(Spectral())
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"], weight_decay=trial.config["weight_decay"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            trial.report(loss=F.cross_entropy(model(x_test), y_test).item())
