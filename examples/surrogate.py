"""Tune a wide network on an eighth of its width, then train it once.

Run it with `headwater run examples/surrogate.py`. The training function knows nothing of this: `surrogate=8` below is
all there is to it. Then take the weights with `headwater best --save model.safetensors`, and serve them without
Headwater: `python examples/serve.py`.
"""

import torch
import torch.nn.functional as F
from classifier import Classifier
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import headwater as hw

images, labels = load_digits(return_X_y=True)
inputs = torch.tensor(images / 16, dtype=torch.float32)
targets = torch.tensor(labels)
train_set = TensorDataset(inputs[:1400], targets[:1400])
valid_inputs, valid_targets = inputs[1400:], targets[1400:]


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(Classifier())
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.AdamW, model, lr=trial.config["lr"], weight_decay=trial.config["weight_decay"]
    )
    for _ in trial.epochs(6):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            x, y = valid_inputs.to(trial.device), valid_targets.to(trial.device)
            answers = model(x)
            accuracy = (answers.argmax(1) == y).float().mean()
            trial.report(accuracy=accuracy, loss=F.cross_entropy(answers, y))


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-4, 1e-1), "weight_decay": hw.loguniform(1e-4, 1e-1)},
    metric="loss",
    search="asha",
    max_epochs=6,
    surrogate=8,
)
NUM_TRIALS = 40
