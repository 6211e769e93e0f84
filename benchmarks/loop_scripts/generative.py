"""Models that make something, as repositories write them."""

import math
import tempfile
from math import log10

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence
from tqdm import tqdm, trange

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import pictures

train_set = pictures(192, size=8)


@loop("loss_G", beta1=hw.uniform(0.3, 0.9))
def dcgan(trial):
    netG = trial.prepare_model(
        nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(True), nn.Linear(32, 64), nn.Tanh())
    )
    netD = trial.prepare_model(
        nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 1), nn.Sigmoid())
    )
    criterion = nn.BCELoss()
    betas = (trial.config["beta1"], 0.999)
    optimizerD = trial.prepare_optimizer(torch.optim.Adam, netD.parameters(), lr=trial.config["lr"], betas=betas)
    optimizerG = trial.prepare_optimizer(torch.optim.Adam, netG.parameters(), lr=trial.config["lr"], betas=betas)
    dataloader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    fixed_noise = torch.randn(16, 8)
    img_list, G_losses, D_losses = [], [], []
    for epoch in trial.epochs(3):
        for i, data in enumerate(dataloader, 0):
            netD.zero_grad()
            real = data[0].flatten(1)
            label = torch.full((real.size(0),), 1.0)
            errD_real = criterion(netD(real).view(-1), label)
            errD_real.backward()
            D_x = netD(real).mean().item()
            fake = netG(torch.randn(real.size(0), 8))
            label.fill_(0.0)
            errD_fake = criterion(netD(fake.detach()).view(-1), label)
            errD_fake.backward()
            errD = errD_real + errD_fake
            optimizerD.step()
            netG.zero_grad()
            label.fill_(1.0)
            errG = criterion(netD(fake).view(-1), label)
            errG.backward()
            optimizerG.step()
            if i % 3 == 0:
                print(
                    "[%d/%d][%d/%d] Loss_D: %.4f Loss_G: %.4f D(x): %.4f"
                    % (epoch, 3, i, len(dataloader), errD.item(), errG.item(), D_x)
                )
            G_losses.append(errG.item())
            D_losses.append(errD.item())
        with torch.no_grad():
            img_list.append(netG(fixed_noise).detach().cpu())
        trial.report(loss_G=errG.item(), loss_D=errD.item(), fake=img_list[-1].std())


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 64)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        h1 = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def save_image(tensor, filename):
    """Write a grid of pictures, as plotting code does: out of torch, into a file."""
    grid = tensor.mul(255).add_(0.5).clamp_(0, 255).to("cpu", torch.uint8).numpy()
    np.save(filename, grid)


@loop(beta=hw.loguniform(0.1, 2.0))
def vae(trial):
    model = trial.prepare_model(VAE())
    optimizer = trial.prepare_optimizer(torch.optim.Adam, model.parameters(), lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    folder = tempfile.mkdtemp()
    for epoch in trial.epochs(3):
        model.train()
        train_loss = 0
        for data, _ in loader:
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(torch.sigmoid(data))
            BCE = F.binary_cross_entropy(recon_batch, torch.sigmoid(data).view(-1, 64), reduction="sum")
            KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
            loss = BCE + trial.config["beta"] * KLD
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
        print("====> Epoch: {} Average loss: {:.4f}".format(epoch, train_loss / len(train_set)))
        with torch.no_grad():
            sample = torch.randn(16, 4)
            sample = model.decode(sample).cpu()
            save_image(sample.view(16, 1, 8, 8), folder + "/sample_" + str(epoch) + ".npy")
        trial.report(loss=train_loss / len(train_set))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.body = nn.Embedding(20, 16), nn.Linear(64, 16)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(16, 64))

    def forward(self, x, t):
        return self.out(self.body(x) + self.time(t))


class Diffusion:
    def __init__(self, noise_steps=20, beta_start=1e-4, beta_end=0.02):
        self.noise_steps = noise_steps
        self.beta = torch.linspace(beta_start, beta_end, noise_steps)
        self.alpha = 1.0 - self.beta
        self.alpha_hat = torch.cumprod(self.alpha, dim=0)

    def noise_images(self, x, t):
        sqrt_alpha_hat = torch.sqrt(self.alpha_hat[t])[:, None]
        sqrt_one_minus_alpha_hat = torch.sqrt(1 - self.alpha_hat[t])[:, None]
        eps = torch.randn_like(x)
        return sqrt_alpha_hat * x + sqrt_one_minus_alpha_hat * eps, eps

    def sample_timesteps(self, n):
        return torch.randint(low=1, high=self.noise_steps, size=(n,))

    def sample(self, model, n):
        model.eval()
        with torch.no_grad():
            x = torch.randn((n, 64))
            for i in tqdm(reversed(range(1, self.noise_steps)), position=0, mininterval=60):
                t = (torch.ones(n) * i).long()
                predicted_noise = model(x, t)
                alpha, alpha_hat, beta = self.alpha[t][:, None], self.alpha_hat[t][:, None], self.beta[t][:, None]
                noise = torch.randn_like(x) if i > 1 else torch.zeros_like(x)
                x = (
                    1 / torch.sqrt(alpha) * (x - ((1 - alpha) / (torch.sqrt(1 - alpha_hat))) * predicted_noise)
                    + torch.sqrt(beta) * noise
                )
        model.train()
        return (x.clamp(-1, 1) + 1) / 2


@loop(beta_end=hw.uniform(0.01, 0.05))
def ddpm(trial):
    model = trial.prepare_model(Denoiser())
    optimizer = trial.prepare_optimizer("AdamW", model, lr=trial.config["lr"])
    mse = nn.MSELoss()
    diffusion = Diffusion(beta_end=trial.config["beta_end"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    folder = tempfile.mkdtemp()
    for epoch in trial.epochs(3):
        pbar = tqdm(loader, mininterval=60)
        total = 0.0
        for images, _ in pbar:
            images = images.flatten(1)
            t = diffusion.sample_timesteps(images.shape[0])
            x_t, noise = diffusion.noise_images(images, t)
            predicted_noise = model(x_t, t)
            loss = mse(noise, predicted_noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pbar.set_postfix(MSE=loss.item())
            total += loss.item()
        sampled_images = diffusion.sample(model, n=8)
        save_image(sampled_images.view(8, 1, 8, 8), f"{folder}/{epoch}.npy")
        torch.save(model.state_dict(), f"{folder}/ckpt.pt")
        trial.report(loss=total / len(loader), sampled=sampled_images.mean().item())


@loop("psnr", "max")
def super_resolution(trial):
    model = trial.prepare_model(
        nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2))
    )
    optimizer = trial.prepare_optimizer(torch.optim.Adam, model.parameters(), lr=trial.config["lr"])
    criterion = nn.MSELoss()
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for epoch in trial.epochs(3):
        epoch_loss = 0
        for target, _ in loader:
            optimizer.zero_grad()
            loss = criterion(model(F.avg_pool2d(target, 2)), target)
            epoch_loss += loss.item()
            loss.backward()
            optimizer.step()
        avg_psnr = 0
        with torch.no_grad():
            for target, _ in loader:
                mse = criterion(model(F.avg_pool2d(target, 2)), target)
                psnr = 10 * log10(1 / mse.item())
                avg_psnr += psnr
        print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / len(loader):.4f}")
        print(f"===> Avg. PSNR: {avg_psnr / len(loader):.4f} dB")
        trial.report(psnr=avg_psnr / len(loader))


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def odeint(func, y0, t):
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:], strict=True):
        h = t1 - t0
        k1 = func(t0, ys[-1])
        k2 = func(t0 + h / 2, ys[-1] + h * k1 / 2)
        k3 = func(t0 + h / 2, ys[-1] + h * k2 / 2)
        k4 = func(t1, ys[-1] + h * k3)
        ys.append(ys[-1] + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6)
    return torch.stack(ys)


class RunningAverageMeter:
    def __init__(self, momentum=0.99):
        self.momentum = momentum
        self.val, self.avg = None, 0

    def update(self, val):
        if self.val is None:
            self.avg = val
        else:
            self.avg = self.avg * self.momentum + val * (1 - self.momentum)
        self.val = val


@loop(momentum=hw.uniform(0.9, 0.99))
def neural_ode(trial):
    true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    t = torch.linspace(0.0, 2.5, 12)
    with torch.no_grad():
        true_y = odeint(lambda _, y: torch.mm(y**3, true_A), torch.tensor([[2.0, 0.0]]), t)
    func = trial.prepare_model(ODEFunc())
    optimizer = trial.prepare_optimizer(torch.optim.RMSprop, func.parameters(), lr=trial.config["lr"] * 0.1)
    loss_meter = RunningAverageMeter(trial.config["momentum"])
    for itr in trial.epochs(4):
        for _ in range(3):
            optimizer.zero_grad()
            pred_y = odeint(func, true_y[0], t)
            loss = torch.mean(torch.abs(pred_y - true_y))
            loss.backward()
            optimizer.step()
            loss_meter.update(loss.item())
        with torch.no_grad():
            loss = torch.mean(torch.abs(odeint(func, true_y[0], t) - true_y))
            print("Iter {:04d} | Total Loss {:.6f}".format(itr, loss.item()))
        trial.report(loss=loss, average=loss_meter.avg)


@loop(prior_scale=hw.uniform(0.5, 2.0))
def vae_with_distributions(trial):
    model = trial.prepare_model(VAE())
    optimizer = trial.prepare_optimizer("Adam", model, lr=trial.config["lr"])
    prior = Normal(0.0, trial.config["prior_scale"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for _ in (progress := trange(1, mininterval=60)):
        for _ in trial.epochs(3):
            losses = []
            for data, _ in loader:
                optimizer.zero_grad()
                h = F.relu(model.fc1(data.flatten(1)))
                posterior = Normal(model.fc21(h), F.softplus(model.fc22(h)) + 1e-3)
                z = posterior.rsample()
                likelihood = Normal(model.decode(z), 1.0).log_prob(torch.sigmoid(data).flatten(1)).sum(-1)
                loss = (kl_divergence(posterior, prior).sum(-1) - likelihood).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            progress.set_description(f"loss {np.mean(losses):.3f}")
            trial.report(loss=np.mean(losses), bits=np.mean(losses) / math.log(2))
