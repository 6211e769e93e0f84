"""Image classification, as tutorials and repositories write it."""

import copy
import os
import shutil
import tempfile
import time
from enum import Enum
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR

import headwater as hw
from loop_scripts.catalogue import loop
from loop_scripts.data import pictures

train_set, test_set = pictures(256), pictures(128, seed=1)


class Net(nn.Module):
    def __init__(self, dropout=0.25):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, 1)
        self.conv2 = nn.Conv2d(6, 8, 3, 1)
        self.dropout1 = nn.Dropout(dropout)
        self.fc1 = nn.Linear(128, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train(log_interval, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % log_interval == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * len(data), len(train_set),
                100. * batch_idx / len(train_loader), loss.item()))  # fmt: skip


def test(model, device, test_loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(test_set)
    print('\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\n'.format(
        test_loss, correct, len(test_set), 100. * correct / len(test_set)))  # fmt: skip
    return test_loss


@loop(gamma=hw.uniform(0.5, 0.9))
def mnist(trial):
    model = trial.prepare_model(Net())
    optimizer = trial.prepare_optimizer(optim.Adadelta, model.parameters(), lr=trial.config["lr"])
    scheduler = trial.prepare_scheduler(StepLR, optimizer, step_size=1, gamma=trial.config["gamma"])
    train_loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    test_loader = trial.prepare_data_loader(test_set, batch_size=64)
    for epoch in trial.epochs(4):
        train(2, model, trial.device, train_loader, optimizer, epoch)
        trial.report(loss=test(model, trial.device, test_loader))
        scheduler.step()


@loop(gamma=hw.uniform(0.5, 0.9))
def mnist_positional(trial):
    model = trial.prepare_model(Net())
    optimizer = trial.prepare_optimizer(optim.SGD, model.parameters(), trial.config["lr"], 0.9)
    scheduler = trial.prepare_scheduler(StepLR, optimizer, 1, trial.config["gamma"])
    train_loader = trial.prepare_data_loader(train_set, 64, True)
    for epoch in trial.epochs(4):
        train(2, model, trial.device, train_loader, optimizer, epoch)
        scheduler.step()
        trial.report(loss=test(model, trial.device, train_loader))


class Summary(Enum):
    NONE = 0
    AVERAGE = 1


class AverageMeter:
    def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
        self.name = name
        self.fmt = fmt
        self.summary_type = summary_type
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)

    def summary(self):
        if self.summary_type is Summary.NONE:
            return ""
        return "{name} {avg:.3f}".format(**self.__dict__)


class ProgressMeter:
    def __init__(self, num_batches, meters, prefix=""):
        self.num_digits = len(str(num_batches // 1))
        self.num_batches = num_batches
        self.meters = meters
        self.prefix = prefix

    def display(self, batch):
        entries = [self.prefix + f"[{batch}/{self.num_batches}]"]
        entries += [str(meter) for meter in self.meters]
        print("\t".join(entries))

    def display_summary(self):
        entries = [" *"]
        entries += [meter.summary() for meter in self.meters]
        print(" ".join(entries))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


def save_checkpoint(state, is_best, folder):
    torch.save(state, os.path.join(folder, "checkpoint.pth.tar"))
    if is_best:
        torch.save(state, os.path.join(folder, "model_best.pth.tar"))


@loop("acc1", "max", weight_decay=hw.loguniform(1e-5, 1e-2))
def imagenet(trial):
    model = trial.prepare_model(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = trial.prepare_optimizer(
        optim.SGD, model.parameters(), lr=trial.config["lr"], momentum=0.9, weight_decay=trial.config["weight_decay"]
    )
    train_loader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    folder = tempfile.mkdtemp()
    best_acc1 = 0
    for epoch in trial.epochs(4):
        batch_time = AverageMeter("Time", ":6.3f", Summary.NONE)
        losses = AverageMeter("Loss", ":.4e", Summary.NONE)
        top1 = AverageMeter("Acc@1", ":6.2f")
        progress = ProgressMeter(len(train_loader), [batch_time, losses, top1], prefix=f"Epoch: [{epoch}]")
        end = time.time()
        for i, (images, target) in enumerate(train_loader):
            output = model(images)
            loss = criterion(output, target)
            acc1, _ = accuracy(output, target, topk=(1, 3))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1[0], images.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch_time.update(time.time() - end)
            end = time.time()
            if i % 2 == 0:
                progress.display(i + 1)
        progress.display_summary()
        acc1 = top1.avg
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict(), "best_acc1": best_acc1}, is_best, folder)
        trial.report(acc1=acc1, best=best_acc1, loss=losses.avg)


@loop("acc", "max")
def cifar_best_acc(trial):
    net = trial.prepare_model(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = trial.prepare_optimizer(optim.SGD, net.parameters(), lr=trial.config["lr"], momentum=0.9)
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.CosineAnnealingLR, optimizer, T_max=20)
    trainloader = trial.prepare_data_loader(train_set, batch_size=64, shuffle=True)
    testloader = trial.prepare_data_loader(test_set, batch_size=64)
    folder = tempfile.mkdtemp()
    best_acc = 0
    for epoch in trial.epochs(4):
        net.train()
        for inputs, targets in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(inputs), targets)
            loss.backward()
            optimizer.step()
        net.eval()
        correct, total = 0, 0
        with torch.no_grad():
            for inputs, targets in testloader:
                _, predicted = net(inputs).max(1)
                total += targets.size(0)
                correct += predicted.eq(targets).sum().item()
        acc = 100.0 * correct / total
        if acc > best_acc:
            print("Saving..")
            state = {"net": net.state_dict(), "acc": acc, "epoch": epoch}
            torch.save(state, folder + "/ckpt.pth")
            best_acc = acc
        scheduler.step()
        trial.report(acc=acc, best=best_acc)


@loop("best", "max")
def transfer_learning_deepcopy(trial):
    model = trial.prepare_model(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = trial.prepare_optimizer(optim.SGD, model.parameters(), lr=trial.config["lr"], momentum=0.9)
    dataloaders = {
        "train": trial.prepare_data_loader(train_set, batch_size=64, shuffle=True),
        "val": trial.prepare_data_loader(test_set, batch_size=64),
    }
    since = time.time()
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for _ in trial.epochs(4):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            epoch_loss = running_loss / 256
            epoch_acc = running_corrects.double() / 128
            print(f"{phase} Loss: {epoch_loss:.4f} Acc: {epoch_acc:.4f}")
            if phase == "val" and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
        trial.report(best=best_acc, loss=epoch_loss)
    time_elapsed = time.time() - since
    print(f"Training complete in {time_elapsed // 60:.0f}m {time_elapsed % 60:.0f}s")
    model.load_state_dict(best_model_wts)


best_acc1 = 0


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(x + self.bn2(self.conv2(x)), inplace=True)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def train_one_epoch(train_loader, model, criterion, optimizer, epoch, args):
    batch_time = AverageMeter("Time", ":6.3f")
    losses = AverageMeter("Loss", ":.4e")
    top1 = AverageMeter("Acc@1", ":6.2f")
    progress = ProgressMeter(len(train_loader), [batch_time, losses, top1], prefix="Epoch: [{}]".format(epoch))
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        output = model(images)
        loss = criterion(output, target)
        acc1, _ = accuracy(output, target, topk=(1, 3))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0], images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            progress.display(i + 1)
    return losses.avg


def validate(val_loader, model, criterion, args):
    losses = AverageMeter("Loss", ":.4e", Summary.NONE)
    top1 = AverageMeter("Acc@1", ":6.2f", Summary.AVERAGE)
    progress = ProgressMeter(len(val_loader), [losses, top1], prefix="Test: ")
    model.eval()
    with torch.no_grad():
        for i, (images, target) in enumerate(val_loader):
            output = model(images)
            loss = criterion(output, target)
            acc1, _ = accuracy(output, target, topk=(1, 3))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1[0], images.size(0))
            if i % args.print_freq == 0:
                progress.display(i + 1)
    progress.display_summary()
    return top1.avg


def copy_checkpoint(state, is_best, filename):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, os.path.join(os.path.dirname(filename), "model_best.pth.tar"))


def adjust_learning_rate(optimizer, epoch, args):
    lr = args.lr * (0.1 ** (epoch // 2))
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr


def main_worker(trial, args):
    global best_acc1
    model = trial.prepare_model(Residual())
    criterion = nn.CrossEntropyLoss()
    optimizer = trial.prepare_optimizer(
        torch.optim.SGD, model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay
    )
    train_loader = trial.prepare_data_loader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = trial.prepare_data_loader(test_set, batch_size=args.batch_size)
    folder = tempfile.mkdtemp()
    for epoch in trial.epochs(args.epochs):
        adjust_learning_rate(optimizer, epoch, args)
        loss = train_one_epoch(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, criterion, args)
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        state = {
            "epoch": epoch + 1,
            "state_dict": model.state_dict(),
            "best_acc1": best_acc1,
            "optimizer": optimizer.state_dict(),
        }
        copy_checkpoint(state, is_best, os.path.join(folder, "checkpoint.pth.tar"))
        trial.report(best_acc1=best_acc1, acc1=acc1, loss=loss)


@loop("best_acc1", "max", weight_decay=hw.loguniform(1e-5, 1e-2))
def imagenet_main(trial):
    args = SimpleNamespace(epochs=4, batch_size=64, momentum=0.9, print_freq=1, **trial.config)
    main_worker(trial, args)
