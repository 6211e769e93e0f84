"""Loops that log, keep and average, as repositories write them."""

import argparse
import copy
import json
import logging
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.tensorboard import SummaryWriter

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import blobs, pictures, table
from loop_scripts.engine import evaluate, train_one_epoch

train_set, test_set = table(256), table(128, seed=1)
x_test, y_test = blobs(128, seed=1)


def mlp():
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4))


def get_args_parser():
    parser = argparse.ArgumentParser("MAE-like", add_help=False)
    parser.add_argument("--clip_max_norm", default=0.1, type=float)
    parser.add_argument("--epochs", default=4, type=int)
    return parser


@loop("acc1", "max", clip=hw.uniform(0.05, 1.0))
def detr_engine(trial):
    args = get_args_parser().parse_args([])
    model = trial.prepare_model(mlp())
    n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print("number of params:", n_parameters)
    optimizer = trial.prepare_optimizer("AdamW", model, lr=trial.config["lr"])
    train_loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    val_loader = trial.prepare_data_loader(test_set, batch_size=32)
    output_dir = tempfile.mkdtemp()
    max_accuracy = 0.0
    for epoch in trial.epochs(args.epochs):
        train_stats = train_one_epoch(
            model, nn.CrossEntropyLoss(), train_loader, optimizer, epoch, trial.config["lr"], trial.config["clip"]
        )
        test_stats = evaluate(val_loader, model)
        print(f"Accuracy of the network on the test images: {test_stats['acc1']:.1f}%")
        max_accuracy = max(max_accuracy, test_stats["acc1"])
        print(f"Max accuracy: {max_accuracy:.2f}%")
        log_stats = {
            **{f"train_{k}": v for k, v in train_stats.items()}, **{f"test_{k}": v for k, v in test_stats.items()},
            "epoch": epoch, "n_parameters": n_parameters}  # fmt: skip
        with open(os.path.join(output_dir, "log.txt"), mode="a", encoding="utf-8") as f:
            f.write(json.dumps(log_stats) + "\n")
        trial.report(acc1=test_stats["acc1"], best=max_accuracy, loss=train_stats["loss"])


@loop(momentum=hw.uniform(0.5, 0.95))
def summary_writer(trial):
    writer = SummaryWriter(tempfile.mkdtemp())
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=trial.config["momentum"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    step = 0
    for epoch in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            writer.add_scalar("Loss/train", loss.item(), step)
            step += 1
        with torch.no_grad():
            test_loss = F.cross_entropy(model(x_test), y_test)
        writer.add_scalar("Loss/test", test_loss, epoch)
        writer.add_scalars("Loss", {"test": test_loss.item()}, epoch)
        writer.add_histogram("weight", model[0].weight, epoch)
        trial.report(loss=test_loss.item())
    writer.close()


@loop(momentum=hw.uniform(0.5, 0.95))
def log_file(trial):
    logger = logging.getLogger("loop_scripts.log_file")
    logger.setLevel(logging.INFO)
    handler = logging.FileHandler(tempfile.mkdtemp() + "/train.log")
    logger.addHandler(handler)
    model = trial.prepare_model(mlp())
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=trial.config["momentum"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    for epoch in trial.epochs(4):
        start = time.time()
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
        logger.info(
            "Epoch %d loss %.4f lr %.2e (%.1fs)",
            epoch,
            total / 256,
            optimizer.param_groups[0]["lr"],
            time.time() - start,
        )
        logging.info("val_loss=%.4f", total / 256)
        trial.report(loss=total / 256)
    logger.removeHandler(handler)
    handler.close()


@loop("acc", "max", decay=hw.uniform(0.9, 0.99))
def ema_model(trial):
    model = trial.prepare_model(mlp())
    ema = copy.deepcopy(model)
    for p in ema.parameters():
        p.requires_grad_(False)
    optimizer = trial.prepare_optimizer("AdamW", model, lr=trial.config["lr"])
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    best_acc, best_state = 0.0, None
    for _ in trial.epochs(4):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for name, value in ema.state_dict().items():
                    value.mul_(trial.config["decay"]).add_(model.state_dict()[name], alpha=1 - trial.config["decay"])
        ema.eval()
        with torch.no_grad():
            acc = (ema(x_test).argmax(1) == y_test).float().mean().item()
        if acc >= best_acc:
            best_acc = acc
            best_state = {k: v.clone() for k, v in ema.state_dict().items()}
        trial.report(acc=acc, best=best_acc)
    ema.load_state_dict(best_state)
    with torch.no_grad():
        final = (ema(x_test).argmax(1) == y_test).float().mean().item()
    print(f"final {final:.3f}")


@loop(swa_lr=hw.loguniform(1e-3, 1e-1))
def swa(trial):
    model = trial.prepare_model(nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4)))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(train_set, batch_size=32, shuffle=True)
    swa_model = AveragedModel(model)
    for epoch in trial.epochs(5):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if epoch > 1:
            swa_model.update_parameters(model)
            for group in optimizer.param_groups:
                group["lr"] = trial.config["swa_lr"]
        update_bn(loader, swa_model)
        swa_model.eval()
        with torch.no_grad():
            trial.report(loss=F.cross_entropy(swa_model(x_test), y_test).item())
        swa_model.train()


class Vit(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.patch = nn.Linear(16, 16)
        self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.randn(1, 10, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 4)

    def forward(self, img):
        patches = img.unfold(2, 4, 4).unfold(3, 4, 4).reshape(img.shape[0], 9, 16)
        x = torch.cat((self.cls.expand(img.shape[0], -1, -1), self.patch(patches)), dim=1) + self.pos
        return self.head(self.encoder(x)[:, 0])


@loop("val_accuracy", "max", dropout=hw.uniform(0.0, 0.2))
def vit(trial):
    model = trial.prepare_model(Vit(trial.config["dropout"]))
    criterion = nn.CrossEntropyLoss()
    optimizer = trial.prepare_optimizer("Adam", model.parameters(), lr=trial.config["lr"] * 0.1)
    train_loader = trial.prepare_data_loader(pictures(128), batch_size=32, shuffle=True)
    valid_loader = trial.prepare_data_loader(pictures(64, seed=1), batch_size=32)
    for epoch in trial.epochs(2):
        epoch_loss = 0
        epoch_accuracy = 0
        for data, label in train_loader:
            output = model(data)
            loss = criterion(output, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            acc = (output.argmax(dim=1) == label).float().mean()
            epoch_accuracy += acc / len(train_loader)
            epoch_loss += loss / len(train_loader)
        with torch.no_grad():
            epoch_val_accuracy = 0
            for data, label in valid_loader:
                acc = (model(data).argmax(dim=1) == label).float().mean()
                epoch_val_accuracy += acc / len(valid_loader)
        print(
            f"Epoch : {epoch + 1} - loss : {epoch_loss:.4f} - acc: {epoch_accuracy:.4f} - val_acc: {epoch_val_accuracy:.4f}\n"
        )
        trial.report(val_accuracy=epoch_val_accuracy, loss=epoch_loss)
