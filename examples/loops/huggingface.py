"""A Hugging Face model, unmodified: a tiny GPT-2 that learns to continue sums such as `12+7=19`.

Needs `pip install transformers`.
"""

import random

import torch
from torch.utils.data import TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

import headwater as hw

LENGTH = 24


def make_text(num_sums):
    rng = random.Random(0)
    pairs = [(rng.randrange(20), rng.randrange(20)) for _ in range(num_sums)]
    return " ".join(f"{a}+{b}={a + b}" for a, b in pairs)


text = make_text(1200)
characters = sorted(set(text))
codes = torch.tensor([characters.index(character) for character in text])
windows = codes[: len(codes) // LENGTH * LENGTH].view(-1, LENGTH)
train_set = TensorDataset(windows[:-100])
valid_windows = windows[-100:]


config = GPT2Config(
    vocab_size=len(characters),
    n_positions=LENGTH,
    n_embd=16,
    n_layer=2,
    n_head=2,
    bos_token_id=0,
    eos_token_id=0,
)


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(GPT2LMHeadModel(config))
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.AdamW,
        model,
        lr=trial.config["lr"],
        betas=(0.9, trial.config["beta2"]),
        weight_decay=trial.config["weight_decay"],
    )

    for _ in trial.epochs(2):
        model.train()
        for (ids,) in loader:
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        model.eval()
        with torch.no_grad():
            ids = valid_windows.to(trial.device)
            valid_loss = model(input_ids=ids, labels=ids).loss
        trial.report(loss=valid_loss.item())


study = hw.Study(
    train,
    space={
        "lr": hw.loguniform(1e-4, 1e-2),
        "weight_decay": hw.loguniform(1e-4, 0.1),
        "beta2": hw.choice([0.95, 0.99, 0.999]),
    },
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
