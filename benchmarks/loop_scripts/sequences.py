"""Text and series, as repositories write them."""

import logging
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset
from tqdm.auto import tqdm

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import tokens, waves

logger = logging.getLogger(__name__)
text, held_out = tokens(256), tokens(64, seed=1)
series, later_series = waves(192), waves(64, seed=1)


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = dropout

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in (q, k, v))
        drop = self.dropout if self.training else 0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width=16, dropout=0.0):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(16, width), nn.Embedding(16, width)
        self.h = nn.ModuleList([Block(width, dropout) for _ in range(2)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, 16, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)


def get_batch(data, size=16):
    ix = torch.randint(len(data), (size,))
    block = data[ix]
    return block[:, :-1], block[:, 1:]


@torch.no_grad()
def estimate_loss(model):
    out = {}
    model.eval()
    for split, data in (("train", text), ("val", held_out)):
        losses = torch.zeros(3)
        for k in range(3):
            X, Y = get_batch(data)
            _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it, learning_rate, warmup_iters=4, lr_decay_iters=30, min_lr=1e-4):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    assert 0 <= decay_ratio <= 1
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (learning_rate - min_lr)


@loop(dropout=hw.uniform(0.0, 0.3))
def nano_gpt(trial):
    model = trial.prepare_model(GPT(dropout=trial.config["dropout"]))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    nodecay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}]
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, groups, lr=trial.config["lr"], betas=(0.9, 0.95))
    best_val_loss = 1e9
    folder = tempfile.mkdtemp()
    iter_num = 0
    t0 = time.time()
    for _ in trial.epochs(3):
        for _ in range(10):
            lr = get_lr(iter_num, trial.config["lr"])
            for param_group in optimizer.param_groups:
                param_group["lr"] = lr
            X, Y = get_batch(text)
            _, loss = model(X, Y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            t1 = time.time()
            dt, t0 = t1 - t0, t1
            lossf = loss.item()
            print(f"iter {iter_num}: loss {lossf:.4f}, time {dt * 1000:.2f}ms")
            iter_num += 1
        losses = estimate_loss(model)
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
            checkpoint = {"model": model.state_dict(), "iter_num": iter_num, "best_val_loss": best_val_loss}
            torch.save(checkpoint, os.path.join(folder, "ckpt.pt"))
        trial.report(loss=losses["val"])


class EarlyStopping:
    def __init__(self, patience=2, verbose=False, delta=0):
        self.patience = patience
        self.verbose = verbose
        self.counter = 0
        self.best_score = None
        self.early_stop = False
        self.val_loss_min = np.inf
        self.delta = delta

    def __call__(self, val_loss, model, path):
        score = -val_loss
        if self.best_score is None:
            self.best_score = score
            self.save_checkpoint(val_loss, model, path)
        elif score < self.best_score + self.delta:
            self.counter += 1
            print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            if self.counter >= self.patience:
                self.early_stop = True
        else:
            self.best_score = score
            self.save_checkpoint(val_loss, model, path)
            self.counter = 0

    def save_checkpoint(self, val_loss, model, path):
        if self.verbose:
            print(f"Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...")
        torch.save(model.state_dict(), path + "/" + "checkpoint.pth")
        self.val_loss_min = val_loss


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.trend, self.seasonal = nn.Linear(24, 4), nn.Linear(24, 4)
        self.average = nn.AvgPool1d(5, 1, 2)

    def forward(self, x):
        x = x.squeeze(-1)
        trend = self.average(x.unsqueeze(1)).squeeze(1)
        return self.trend(trend) + self.seasonal(x - trend)


@loop(space_delta=hw.uniform(0.0, 0.01))
def time_series_early_stopping(trial):
    model = trial.prepare_model(Forecaster())
    model_optim = trial.prepare_optimizer(torch.optim.Adam, model.parameters(), lr=trial.config["lr"])
    criterion = nn.MSELoss()
    early_stopping = EarlyStopping(patience=2, verbose=True)
    train_loader = trial.prepare_data_loader(series, batch_size=32, shuffle=True)
    vali_loader = trial.prepare_data_loader(later_series, batch_size=32)
    path = tempfile.mkdtemp()
    for epoch in trial.epochs(6):
        train_loss = []
        epoch_time = time.time()
        model.train()
        for batch_x, batch_y in train_loader:
            model_optim.zero_grad()
            loss = criterion(model(batch_x), batch_y)
            train_loss.append(loss.item())
            loss.backward()
            model_optim.step()
        print(f"Epoch: {epoch + 1} cost time: {time.time() - epoch_time}")
        train_loss = np.average(train_loss)
        model.eval()
        with torch.no_grad():
            total_loss = [criterion(model(x), y).item() for x, y in vali_loader]
        vali_loss = np.average(total_loss)
        print("Epoch: {0} | Train Loss: {1:.7f} Vali Loss: {2:.7f}".format(epoch + 1, train_loss, vali_loss))
        trial.report(loss=vali_loss)
        early_stopping(vali_loss, model, path)
        if early_stopping.early_stop:
            print("Early stopping")
            break


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, last_epoch=-1):
    def lr_lambda(current_step):
        if current_step < num_warmup_steps:
            return float(current_step) / float(max(1, num_warmup_steps))
        return max(0.0, float(num_training_steps - current_step) / float(max(1, num_training_steps - num_warmup_steps)))

    return LambdaLR(optimizer, lr_lambda, last_epoch)


@loop("accuracy", "max", warmup=hw.uniform(0.0, 10.0))
def hf_no_trainer(trial):
    model = trial.prepare_model(
        nn.Sequential(nn.Embedding(16, 16), nn.Flatten(), nn.Linear(256, 16), nn.Tanh(), nn.Linear(16, 3))
    )
    no_decay = ["bias", "LayerNorm.weight"]
    optimizer_grouped_parameters = [
        {
            "params": [p for n, p in model.named_parameters() if not any(part in n for part in no_decay)],
            "weight_decay": 0.1,
        },
        {
            "params": [p for n, p in model.named_parameters() if any(part in n for part in no_decay)],
            "weight_decay": 0.0,
        },
    ]
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, optimizer_grouped_parameters, lr=trial.config["lr"])
    dataset = TensorDataset(text[:, :16], (text[:, 1] - text[:, 0]) % 16 - 1)
    train_dataloader = trial.prepare_data_loader(dataset, batch_size=32, shuffle=True)
    num_update_steps_per_epoch = math.ceil(len(train_dataloader) / 1)
    max_train_steps = 4 * num_update_steps_per_epoch
    lr_scheduler = trial.prepare_scheduler(
        get_linear_schedule_with_warmup, optimizer, num_warmup_steps=trial.config["warmup"],
        num_training_steps=max_train_steps)  # fmt: skip
    progress_bar = tqdm(range(max_train_steps), disable=False, mininterval=60)
    completed_steps = 0
    for epoch in trial.epochs(4):
        model.train()
        total_loss = 0
        for input_ids, labels in train_dataloader:
            outputs = model(input_ids)
            loss = F.cross_entropy(outputs, labels)
            total_loss += loss.detach().float()
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            progress_bar.update(1)
            progress_bar.set_postfix(loss=loss.item(), lr=lr_scheduler.get_last_lr()[0])
            completed_steps += 1
        model.eval()
        right = 0
        for input_ids, labels in train_dataloader:
            with torch.no_grad():
                predictions = model(input_ids).argmax(dim=-1)
            right += (predictions == labels).sum().item()
        eval_metric = {"accuracy": right / len(dataset)}
        logger.info(f"epoch {epoch}: {eval_metric}")
        logger.info("epoch %d: train loss %.4f", epoch, total_loss.item() / len(train_dataloader))
        trial.report(accuracy=eval_metric["accuracy"])


class RNNModel(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(16, 12)
        self.rnn = nn.LSTM(12, 12, 2, dropout=dropout)
        self.decoder = nn.Linear(12, 16)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, 16)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(2, bsz, 12), weight.new_zeros(2, bsz, 12))


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


@loop("ppl", dropout=hw.uniform(0.0, 0.4), clip=hw.uniform(0.1, 1.0))
def word_language_model(trial):
    train_data, val_data = batchify(text.flatten()[:1280], 10), batchify(held_out.flatten()[:320], 10)
    model = trial.prepare_model(RNNModel(trial.config["dropout"]))
    criterion = nn.NLLLoss()
    lr = trial.config["lr"] * 100
    best_val_loss = None
    folder = tempfile.mkdtemp()
    for epoch in trial.epochs(3):
        epoch_start_time = time.time()
        model.train()
        total_loss = 0.0
        hidden = model.init_hidden(10)
        for batch, i in enumerate(range(0, train_data.size(0) - 1, 16)):
            data, targets = train_data[i : i + 16], train_data[i + 1 : i + 17].reshape(-1)
            data = data[: targets.numel() // 10]
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), trial.config["clip"])
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            total_loss += loss.item()
            if batch % 4 == 0 and batch > 0:
                cur_loss = total_loss / 4
                print(
                    "| epoch {:3d} | lr {:02.2f} | loss {:5.2f} | ppl {:8.2f}".format(
                        epoch, lr, cur_loss, math.exp(cur_loss)
                    )
                )
                total_loss = 0
        model.eval()
        with torch.no_grad():
            output, _ = model(val_data[:-1], model.init_hidden(10))
            val_loss = criterion(output, val_data[1:].reshape(-1)).item()
        print("-" * 89)
        print(
            "| end of epoch {:3d} | time: {:5.2f}s | valid ppl {:8.2f}".format(
                epoch, time.time() - epoch_start_time, math.exp(val_loss)
            )
        )
        if not best_val_loss or val_loss < best_val_loss:
            with open(folder + "/model.pt", "wb") as f:
                torch.save(model.state_dict(), f)
            best_val_loss = val_loss
        else:
            lr /= 4.0
        trial.report(ppl=math.exp(val_loss))
