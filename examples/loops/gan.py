"""A small generative adversarial network: two models, two optimizers, noise drawn in the loop."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
train_set = TensorDataset(images)

LATENT = 8


def make_generator():
    return nn.Sequential(nn.Linear(LATENT, 32), nn.LeakyReLU(0.2), nn.Linear(32, 64), nn.Tanh())


def make_discriminator():
    return nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def train(trial: hw.Trial) -> None:
    generator = trial.prepare_model(make_generator())
    discriminator = trial.prepare_model(make_discriminator())
    loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True, drop_last=True)
    betas = (trial.config["beta1"], 0.999)
    g_optimizer = trial.prepare_optimizer(torch.optim.Adam, generator, lr=trial.config["g_lr"], betas=betas)
    d_optimizer = trial.prepare_optimizer(torch.optim.Adam, discriminator, lr=trial.config["d_lr"], betas=betas)

    for _ in trial.epochs(3):
        d_total = 0.0
        g_total = 0.0
        for (real,) in loader:
            ones = torch.ones(real.size(0), 1, device=trial.device)
            zeros = torch.zeros(real.size(0), 1, device=trial.device)
            fake = generator(torch.randn(real.size(0), LATENT, device=trial.device))

            d_optimizer.zero_grad()
            d_loss = F.binary_cross_entropy_with_logits(discriminator(real), ones)
            d_loss = d_loss + F.binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros)
            d_loss.backward()
            d_optimizer.step()

            g_optimizer.zero_grad()
            g_loss = F.binary_cross_entropy_with_logits(discriminator(fake), ones)
            g_loss.backward()
            g_optimizer.step()

            d_total += d_loss.item()
            g_total += g_loss.item()

        with torch.no_grad():
            fake, real = generator(torch.randn(512, LATENT, device=trial.device)), images.to(trial.device)
            distance = (fake.mean(0) - real.mean(0)).norm() + (fake.std(0) - real.std(0)).norm()
        trial.report(distance=distance.item(), d_loss=d_total / len(loader), g_loss=g_total / len(loader))


study = hw.Study(
    train,
    space={
        "g_lr": hw.loguniform(1e-4, 5e-3),
        "d_lr": hw.loguniform(1e-4, 5e-3),
        "beta1": hw.uniform(0.0, 0.9),
    },
    metric="distance",
    mode="min",
)

if __name__ == "__main__":
    best = study.run(num_trials=8).best
    print(best.config, best.metrics)
