"""A character model: an LSTM that learns to continue sums such as `12+7=19`."""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw

LENGTH = 24


def make_text(num_sums):
    rng = random.Random(0)
    pairs = [(rng.randrange(20), rng.randrange(20)) for _ in range(num_sums)]
    return " ".join(f"{a}+{b}={a + b}" for a, b in pairs)


text = make_text(2400)
characters = sorted(set(text))
codes = torch.tensor([characters.index(character) for character in text])
windows = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
train_set = TensorDataset(windows[:-150, :-1], windows[:-150, 1:])
valid_inputs, valid_targets = windows[-150:, :-1], windows[-150:, 1:]


class CharacterModel(nn.Module):
    def __init__(self, num_characters, width=24):
        super().__init__()
        self.embedding = nn.Embedding(num_characters, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(width, num_characters)

    def forward(self, x, state=None):
        hidden, state = self.lstm(self.embedding(x), state)
        return self.output(hidden), state


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(CharacterModel(len(characters)))
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.Adam, model, lr=trial.config["lr"])

    for _ in trial.epochs(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            logits, _ = model(x)
            loss = F.cross_entropy(logits.transpose(1, 2), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), trial.config["max_norm"])
            optimizer.step()

        model.eval()
        with torch.no_grad():
            x, y = valid_inputs.to(trial.device), valid_targets.to(trial.device)
            logits, _ = model(x)
            valid_loss = F.cross_entropy(logits.reshape(-1, len(characters)), y.reshape(-1))
        trial.report(loss=valid_loss.item(), perplexity=math.exp(valid_loss.item()))


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 3e-2), "max_norm": hw.loguniform(0.1, 10.0)},
    metric="perplexity",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
