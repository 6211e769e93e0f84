"""Optimizers, data sets, handlers and tensors that are kept, as users write them, each as a part of a program."""

from __future__ import annotations

from dataclasses import replace
from textwrap import indent

from tests.fuzz.slots import Part, part

_KEYS = {"w": "0.5 | 1.5 | 0.25 | 2.0"}
_ONE_NAN = {"w": "0.5 | 2.0"}


def _optimizer(name: str, step: str, init: str = "pass", more: str = "", defaults: str = "dict(lr=lr)") -> Part:
    """Make a feature with an optimizer of one's own; `step` handles one parameter `p` of one group."""
    top = f"""class Own(torch.optim.Optimizer):
    calls = 0

    def __init__(self, params, lr=0.1):
        super().__init__(params, {defaults})
{indent(init, "        ")}

    @torch.no_grad()
    def step(self, closure=None):
{indent(more or "pass", "        ")}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
{indent(step, "                ")}
        Own.calls += 1
"""
    return part(
        "own optimizer",
        name,
        top=top,
        start="Own.calls = 0",
        optimizer="optimizer = trial.prepare_optimizer(Own, model, lr=rate)",
    )


OPTIMIZERS = (
    _optimizer("plain", 'p.add_(p.grad, alpha=-group["lr"])'),
    _optimizer("draws random numbers", 'p.add_(p.grad + 0.1 * torch.randn_like(p), alpha=-group["lr"])'),
    _optimizer("draws one number", 'p.add_(p.grad, alpha=-group["lr"] * (0.5 + random.random()))'),
    _optimizer("draws NumPy numbers", 'p.add_(p.grad, alpha=-group["lr"] * (0.5 + np.random.rand()))'),
    _optimizer(
        "changes its groups in step",
        """group["d"] = max(group["d"], float(p.grad.abs().sum()) * 0.1)
p.add_(p.grad, alpha=-group["lr"] * group["d"])""",
        defaults="dict(lr=lr, d=0.1)",
    ),
    _optimizer(
        "sums over all parameters, as D-Adaptation",
        """state = self.state[p]
state.setdefault("s", torch.zeros_like(p)).add_(p.grad, alpha=group["d"] * group["lr"])
numerator += float((p.grad * state["s"]).sum())
p.add_(p.grad, alpha=-group["lr"] * group["d"])
group["d"] = max(group["d"], abs(numerator) * 0.5)""",
        more="numerator = 0.0",
        defaults="dict(lr=lr, d=0.05)",
    ),
    _optimizer("reads an attribute", 'self.count += 1\np.add_(p.grad, alpha=-group["lr"] / self.count)', init="self.count = 0"),
    _optimizer("keeps the norm in an attribute", 'self.norm = 0.9 * self.norm + 0.1 * p.grad.norm()\np.add_(p.grad, alpha=-group["lr"])\np.mul_(1 - 0.01 * self.norm)', init="self.norm = 0.0"),
    _optimizer("reads a class variable", 'p.add_(p.grad, alpha=-group["lr"] / (1 + Own.calls))'),
    _optimizer("clips by item", 'scale = min(1.0, 0.1 / (p.grad.norm().item() + 1e-6))\np.add_(p.grad, alpha=-group["lr"] * scale)'),
    _optimizer("branches on the norm", 'if p.grad.norm() > 0.3:\n    p.add_(p.grad.sign(), alpha=-group["lr"] * 0.1)\nelse:\n    p.add_(p.grad, alpha=-group["lr"])'),
    _optimizer("state with a step count", 'state = self.state[p]\nstate["step"] = state.get("step", 0) + 1\np.add_(p.grad, alpha=-group["lr"] / state["step"])'),
    _optimizer("momentum in the state", 'buffer = self.state[p].setdefault("m", torch.zeros_like(p))\nbuffer.mul_(0.9).add_(p.grad)\np.add_(buffer, alpha=-group["lr"])'),
    _optimizer("sign of the interpolation, as Lion", 'm = self.state[p].setdefault("m", torch.zeros_like(p))\np.add_((m * 0.9 + p.grad * 0.1).sign(), alpha=-group["lr"] * 0.1)\nm.mul_(0.99).add_(p.grad, alpha=0.01)'),
    _optimizer("trust ratio, as LAMB", 'ratio = p.norm() / (p.grad.norm() + 1e-6)\np.add_(p.grad * ratio.clamp(0.1, 2.0), alpha=-group["lr"] * 0.1)'),
    _optimizer("list of the losses", 'self.norms.append(p.grad.norm().item())\np.add_(p.grad, alpha=-group["lr"] / (1 + max(self.norms)))', init="self.norms = []"),
    part("own optimizer", "wrapper that sets lr, as NoamOpt", top="""
        class Noam:
            def __init__(self, optimizer, factor):
                self.optimizer, self.factor, self.count = optimizer, factor, 0

            def zero_grad(self):
                self.optimizer.zero_grad()

            def step(self):
                self.count += 1
                rate = self.factor * min(self.count ** -0.5, self.count * 0.2)
                for group in self.optimizer.param_groups:
                    group["lr"] = rate
                self.optimizer.step()
        """, optimizer="optimizer = Noam(trial.prepare_optimizer(torch.optim.SGD, model, lr=0.0), rate)"),
    part("own optimizer", "Lookahead", top="""
        class Lookahead:
            def __init__(self, optimizer, params):
                self.optimizer, self.params, self.count = optimizer, list(params), 0
                self.slow = [p.detach().clone() for p in self.params]

            def zero_grad(self):
                self.optimizer.zero_grad()

            def step(self):
                self.optimizer.step()
                self.count += 1
                if self.count % 2 == 0:
                    for slow, p in zip(self.slow, self.params):
                        slow += 0.5 * (p.detach() - slow)
                        p.data.copy_(slow)
        """, optimizer="optimizer = Lookahead(trial.prepare_optimizer(torch.optim.SGD, model, lr=rate), model.parameters())"),
    part("own optimizer", "SAM", step="""
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
            for p, move in zip(model.parameters(), moves):
                p.add_(move)
        optimizer.zero_grad()
        F.mse_loss(model(a), b).backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves):
                p.sub_(move)
        optimizer.step()
        """),
)  # fmt: skip


def _data(name: str, body: str, init: str = "pass", more: str = "", before: str = "") -> Part:
    """Make a feature with a data set that computes with a hyperparameter; `body` returns `x` scaled by it."""
    top = f"""{before}class Data(torch.utils.data.Dataset):
    def __init__(self, w):
        self.w = w
{indent(init, "        ")}
{indent(more, "    ")}
    def __len__(self):
        return 8

    def __getitem__(self, place):
        x, y = INPUTS[place], TARGETS[place]
{indent(body, "        ")}
        return x, y
"""
    return part("data set that computes with a hyperparameter", name, _KEYS, top=top,
                scheduler='loader = trial.prepare_data_loader(Data(config["w"]), batch_size=4, shuffle=True)')  # fmt: skip


def _seeded(one: Part) -> Part:
    return replace(one, is_seeded_by_study=True)


DATA_SETS = (
    _data("product", "x = x * self.w"),
    _data("cached_property", "x = x * self.scale", more="@functools.cached_property\ndef scale(self):\n    return self.w * 2\n"),
    _data("defaultdict", "self.seen[place] += self.w\nx = x * self.seen[place]", init="self.seen = collections.defaultdict(float)"),
    _data("positional out", "torch.mul(x, self.w, out=self.room)\nx = self.room.clone()", init="self.room = torch.zeros(4)"),
    _data("np.multiply with positional out", "np.multiply(x.numpy(), self.w, self.room)\nx = torch.from_numpy(self.room.copy())", init="self.room = np.zeros(4)"),
    _data("length of a defaultdict", "self.seen[int(self.w * 4)]\nx = x * len(self.seen)", init="self.seen = collections.defaultdict(int)"),
    _data("list.append", "list.append(self.seen, self.w)\nx = x * (1 + 0.1 * sum(self.seen))", init="self.seen = []"),
    _data("iterator", "x = x * next(self.scales)", init="self.scales = iter([w * (1 + 0.1 * k) for k in range(99)])"),
    _data("cache of examples", "if place not in self.cache:\n    self.cache[place] = x * self.w\nx = self.cache[place]", init="self.cache = {}"),
    _data("lru_cache", "x = x * self.scale(place)", more="@functools.lru_cache\ndef scale(self, place):\n    return self.w + place\n"),
    _data("cache of the module", "if place not in CACHE:\n    CACHE[place] = x * self.w\nx = CACHE[place]", init="CACHE.clear()", before="CACHE = {}\n\n"),
    _seeded(_data("random crop by a hyperparameter", "x = x * (torch.rand(()) < self.w / 2)")),
    _seeded(_data("noise by a hyperparameter", "x = x + self.w * torch.randn(4)")),
    _seeded(_data("np.random by a hyperparameter", "x = x + self.w * float(np.random.randn())")),
    _seeded(_data("as many draws as a hyperparameter says", "x = x + torch.randn(1 + int(self.w * 2)).mean() + torch.rand(())")),
    _data("branch by a hyperparameter", "if self.w > 1.0:\n    x = -x"),
    _data("precomputed in __init__", "x = self.all[place]", init="self.all = INPUTS * w"),
    _data("computed at the first access", "if self.all is None:\n    self.all = INPUTS * self.w\nx = self.all[place]", init="self.all = None"),
    _data("counter", "self.count += 1\nx = x * self.w / self.count", init="self.count = 0"),
    _data("mixup with the example before", "last, self.last = self.last, x\nx = x if last is None else self.w * x + (1 - self.w) * last", init="self.last = None"),
    _data("np.clip in place", "room = x.numpy().copy()\nnp.clip(room, -self.w, self.w, room)\nx = torch.from_numpy(room)"),
    _data("tensor in place", "x = x.clone().mul_(self.w)"),
    _data("PIL-like transform object", "x = self.transform(x)", init="self.transform = lambda x: x * w"),
    part("data set that computes with a hyperparameter", "attribute of the module's data set", _KEYS, top="""
        class Scaled(torch.utils.data.Dataset):
            w = 1.0

            def __len__(self):
                return 8

            def __getitem__(self, place):
                return INPUTS[place] * self.w, TARGETS[place]

        SCALED = Scaled()
        """, start='SCALED.w = config["w"]', scheduler="loader = trial.prepare_data_loader(SCALED, batch_size=4, shuffle=True)"),
    part("data set that computes with a hyperparameter", "closure in a collate function", _KEYS, scheduler="""
        seen = []
        def collate(items):
            seen.append(config["w"])
            return torch.stack([a for a, _ in items]) * (1 + 0.1 * sum(seen)), torch.stack([b for _, b in items])
        loader = trial.prepare_data_loader(DATA, batch_size=4, shuffle=True, collate_fn=collate)
        """),
    part("data set that computes with a hyperparameter", "mixup in a collate function", _KEYS, scheduler="""
        def collate(items):
            a, b = torch.stack([a for a, _ in items]), torch.stack([b for _, b in items])
            weight = np.random.beta(config["w"], config["w"])
            return weight * a + (1 - weight) * a.flip(0), b
        loader = trial.prepare_data_loader(DATA, batch_size=4, shuffle=True, collate_fn=collate)
        """),
    part("data set that computes with a hyperparameter", "Subset of a share", _KEYS, scheduler="""
        kept = torch.utils.data.Subset(DATA, range(4 + int(config["w"] * 2)))
        loader = trial.prepare_data_loader(kept, batch_size=4)
        """),
    _seeded(part("data set that computes with a hyperparameter", "WeightedRandomSampler", _KEYS, scheduler="""
        sampler = torch.utils.data.WeightedRandomSampler([config["w"]] * 4 + [1.0] * 4, 8, generator=torch.Generator().manual_seed(1))
        loader = trial.prepare_data_loader(DATA, batch_size=4, sampler=sampler)
        """)),
    part("data set that computes with a hyperparameter", "IterableDataset", _KEYS, top="""
        class Stream(torch.utils.data.IterableDataset):
            def __init__(self, w):
                self.w, self.count = w, 0

            def __iter__(self):
                for x, y in zip(INPUTS, TARGETS):
                    self.count += 1
                    yield x * self.w / self.count, y
        """, scheduler='loader = trial.prepare_data_loader(Stream(config["w"]), batch_size=4)'),
    part("data set that computes with a hyperparameter", "unprepared DataLoader", _KEYS, scheduler="""
        loader = torch.utils.data.DataLoader([(a * config["w"], b) for a, b in zip(INPUTS, TARGETS)], batch_size=4)
        """),
)  # fmt: skip


def _swallowed(name: str, attempt: str, otherwise: str = "num_caught += 1", **code: str) -> Part:
    """Make a feature whose handler would also catch a refusal to fuse."""
    text = f"try:\n{indent(attempt, '    ')}\nexcept Exception:\n    {otherwise}"
    return part("refusal in a handler", name, _KEYS, start="num_caught, kept = 0, 0.0", stepped=text,
                ended='metrics["kept"] = kept\nmetrics["caught"] = num_caught', **code)  # fmt: skip


SWALLOWED = (
    _swallowed("torch.save of the model", "buffer = io.BytesIO()\ntorch.save(model, buffer)\nkept = 1.0"),
    _swallowed("torch.save of the loss", "buffer = io.BytesIO()\ntorch.save(loss.detach(), buffer)\nkept = 1.0"),
    _swallowed("torch.save and load", "buffer = io.BytesIO()\ntorch.save(model.state_dict(), buffer)\nbuffer.seek(0)\nkept = float(torch.load(buffer)['0.weight'].sum())"),
    _swallowed("optimizer.state", "kept = float(len(optimizer.state)) + float(optimizer.state[model[0].weight]['momentum_buffer'].sum())",
               optimizer="optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=rate, momentum=0.9)"),
    _swallowed("data_ptr", "kept = float(model[0].weight.data_ptr() != 0)"),
    _swallowed("pickle of the model", "kept = float(len(pickle.dumps(model)) > 0)"),
    _swallowed("untyped_storage", "kept = float(model[0].weight.untyped_storage().nbytes())"),
    _swallowed("numpy of weights", "kept = float(model[0].weight.detach().numpy().sum())"),
    _swallowed("tensor as an index", "kept = [1.0, 2.0, 3.0][int(out.detach().flatten().argmax()) % 3]"),
    _swallowed("range of a hyperparameter", 'kept = float(sum(range(int(config["w"] * 4))))'),
    _swallowed("key of a dictionary", 'kept = {0.5: 1.0, 1.5: 2.0}[config["w"]]', "num_caught += 1\n    kept = -1.0"),
    _swallowed("suppress", 'with contextlib.suppress(Exception):\n    kept = {0.5: 1.0, 1.5: 2.0}[config["w"]] + loss.item()'),
    _swallowed("float of text", 'kept = float(f"{loss.item():.3f}")'),
    _swallowed("domain of a function", "kept = math.sqrt(loss.item() - config['w'])", "num_caught += 1"),
    _swallowed("finally", "try:\n    kept = math.log(config['w'] - 1.0)\nfinally:\n    num_caught += 10"),
    _swallowed("handler with an else", "assert loss.item() * config['w'] > 1.0\nkept += 1.0"),
    part("refusal in a handler", "generator closed in a with", _KEYS, top="""
        @contextlib.contextmanager
        def guarded(log):
            try:
                yield
            except Exception:
                log.append(1.0)
        """, start="log = []", stepped="with guarded(log):\n    found = {0.5: 1.0, 1.5: 2.0}[config['w']]", ended='metrics["kept"] = sum(log)'),
)  # fmt: skip

TENSORS = (
    part("gradient that is kept", "reference over steps", start="slope = None", gradients="slope = model[0].weight.grad", ended='metrics["kept"] = float(slope.sum())'),
    part("gradient that is kept", "reference kept once", start="slope = None", gradients="if slope is None:\n    slope = model[0].weight.grad",
         zeroed="optimizer.zero_grad(set_to_none=False)", ended='metrics["kept"] = float(slope.sum())'),
    part("gradient that is kept", "views of a flat buffer", prepared="""
        flat = torch.zeros(sum(p.numel() for p in model.parameters()))
        at = 0
        for p in model.parameters():
            p.grad = flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        """, zeroed="flat.zero_()", gradients="flat.mul_(0.5)", ended='metrics["kept"] = float(flat.abs().sum())'),
    part("gradient that is kept", "hook that collects", prepared="slopes = []\nmodel[0].weight.register_hook(lambda slope: slopes.append(float(slope.sum())))",
         ended='metrics["kept"] = sum(slopes)'),
    part("gradient that is kept", "accumulated by hand", start="slopes = None", gradients="""
        now = [p.grad.clone() for p in model.parameters()]
        slopes = now if slopes is None else [old * 0.5 + new for old, new in zip(slopes, now)]
        """, ended='metrics["kept"] = sum(float(one.sum()) for one in slopes)'),
    part("gradient that is kept", "view from chunk", prepared="first, second, *_ = model[0].weight.detach().chunk(3)", ended='metrics["kept"] = float(first.sum() - second.sum())'),
    part("gradient that is kept", "view from split", prepared="pieces = model[0].weight.detach().split(1)", ended='metrics["kept"] = sum(float(one.sum()) for one in pieces)'),
    part("view that a model computes with", "unbind", prepared="rows = model[0].weight.unbind()", loss="loss = loss + 0.1 * model[0].weight.unbind()[0].pow(2).sum()",
         ended='metrics["kept"] = float(rows[0].detach().sum())'),
    part("gradient that is kept", "list of all, kept once", start="slopes = None", gradients="if slopes is None:\n    slopes = [p.grad for p in model.parameters()]\nslopes[0].mul_(0.5)",
         zeroed="optimizer.zero_grad(set_to_none=False)", ended='metrics["kept"] = float(slopes[-1].sum())'),
    part("view that a model computes with", "chunk", loss="loss = loss + 0.1 * model[0].weight.chunk(3)[0].pow(2).sum()", start="kept = None", ended="""
        kept = model[0].weight.chunk(3) if kept is None else kept
        metrics["kept"] = float(kept[1].detach().sum())
        """),
    part("view that a model computes with", "split in every step", loss="first, *others = model[0].weight.split(1)\nloss = loss + 0.1 * first.abs().sum()", ended='metrics["kept"] = float(first.detach().sum())'),
    part("view that a model computes with", "gates of a recurrent cell", forward="low, high = torch.cat([out, out * 2], 1).chunk(2, 1)\nout = torch.tanh(low) * torch.sigmoid(high)"),
    part("view that a model computes with", "chunk written in place", forward="both = torch.cat([out, out * 2], 1)\nlow, high = both.clone().split(1, 1)\nout = low + high.detach()", ended='metrics["kept"] = float(high.sum())'),
    part("gradient that is kept", "numpy view of weights", prepared="view = model[0].weight.detach().numpy()", ended='metrics["kept"] = float(view.sum())'),
    part("anomaly detection", "NaN in one trial", _ONE_NAN, start="torch.autograd.set_detect_anomaly(True)", loss="loss = loss * torch.sqrt(torch.tensor(1.6) - config['w'])"),
    part("anomaly detection", "NaN in one trial, caught", _ONE_NAN, start="num_caught = 0\ntorch.autograd.set_detect_anomaly(True)", backward="""
        try:
            (loss * torch.sqrt(torch.tensor(1.6) - config["w"])).backward()
        except RuntimeError:
            num_caught += 1
        """, ended='metrics["kept"] = num_caught'),
    part("anomaly detection", "NaN in one trial, in a block", _ONE_NAN, start="num_caught = 0", backward="""
        try:
            with torch.autograd.detect_anomaly():
                (loss * torch.sqrt(torch.tensor(1.6) - config["w"])).backward()
        except RuntimeError:
            num_caught += 1
        """, step="if num_caught == 0:\n    optimizer.step()", ended='metrics["kept"] = num_caught'),
    part("anomaly detection", "error that one trial raises", _ONE_NAN, loss='torch.linalg.cholesky((1.6 - config["w"]) * torch.eye(2))'),
    part("copied generator", "clone_state", start="dice = torch.Generator().manual_seed(1)", batch="a = a + 0.1 * torch.randn(a.shape, generator=dice.clone_state())"),
    part("copied generator", "deepcopy of NumPy's", start="dice = np.random.default_rng(1)", batch="a = a * copy.deepcopy(dice).random()\ndice.random()"),
    part("copied generator", "state put back", batch="kept_state = torch.get_rng_state()\na = a + 0.1 * torch.randn_like(a)\ntorch.set_rng_state(kept_state)"),
    part("copied generator", "fork_rng by a hyperparameter", _KEYS, batch="with torch.random.fork_rng():\n    torch.manual_seed(int(config['w'] * 4))\n    a = a + 0.1 * torch.randn_like(a)"),
    part("if block: assignment", "best = average without a copy", _KEYS, prepared="average, top = torch.zeros(4, 1), None", stepped="""
        average.mul_(0.5).add_(out.detach())
        if top is None or loss.item() * config["w"] > 1.0:
            top = average
        """, ended='metrics["kept"] = float(top.sum())'),
    part("if block: assignment", "state_dict without a copy", _KEYS, start="kept = None", stepped="""
        if kept is None or loss.item() * config["w"] > 1.0:
            kept = model.state_dict()
        """, ended='metrics["kept"] = sum(float(one.sum()) for one in kept.values())'),
    part("if block: assignment", "list without a copy", _KEYS, start="losses, kept = [], None", stepped="""
        losses.append(loss.item())
        if kept is None or loss.item() * config["w"] > 1.0:
            kept = losses
        """, ended='metrics["kept"] = sum(kept)'),
    part("if block: assignment", "two names swapped", _KEYS, start="low, high = 1.0, 2.0", stepped='if loss.item() * config["w"] > 1.0:\n    low, high = high, low', ended='metrics["kept"] = low'),
    part("if block: assignment", "counter in a dictionary", _KEYS, start="counts = {}", stepped="""
        if loss.item() * config["w"] > 1.0:
            counts["high"] = counts.get("high", 0) + 1
        """, ended='metrics["kept"] = counts.get("high", 0)'),
    part("if block: assignment", "deepcopy of the model", _KEYS, start="kept = None", stepped="""
        if kept is None or loss.item() * config["w"] > 1.0:
            kept = copy.deepcopy(model)
        """, ended='metrics["kept"] = kept(INPUTS).mean().item()'),
    part("if block: assignment", "learning rate of the groups", _KEYS, stepped="""
        if loss.item() * config["w"] > 1.0:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        """),
    part("if block: assignment", "module put into evaluation", _KEYS, forward="out = F.dropout(out, 0.3, training=model.training)", stepped="""
        if loss.item() * config["w"] > 1.0:
            model.eval()
        """),
    part("if block: assignment", "del and with", _KEYS, start="kept = {0: 1.0}", stepped="""
        if loss.item() * config["w"] > 1.0:
            with torch.no_grad():
                model[0].bias.add_(0.01)
            kept.pop(0, None)
        """, ended='metrics["kept"] = len(kept)'),
    part("if block: assignment", "scheduler step", _KEYS, scheduler='scheduler = trial.prepare_scheduler("ExponentialLR", optimizer, gamma=0.5)',
         ended="if total * config['w'] > 2.0:\n    scheduler.step()\nmetrics['kept'] = optimizer.param_groups[0]['lr']"),
    part("if block: assignment", "zero_grad", _KEYS, stepped="if loss.item() * config['w'] > 1.0:\n    for p in model.parameters():\n        p.data.mul_(0.9)"),
    part("if block: assignment", "copyfile of the best checkpoint", _KEYS, top="import shutil, tempfile", start="home = pathlib.Path(tempfile.mkdtemp())\ntop = math.inf", ended="""
        torch.save(model.state_dict(), home / "last.pt")
        if total * config["w"] < top:
            top = total * config["w"]
            shutil.copyfile(home / "last.pt", home / "best.pt")
        metrics["kept"] = sum(float(one.sum()) for one in torch.load(home / "best.pt").values())
        """),
    part("ordinary loops", "predictions scored once", top="import sklearn.metrics", start="shown = []", begun="shown = []", stepped="shown.append(out.detach().numpy())",
         ended='metrics["kept"] = float(sklearn.metrics.mean_absolute_error(np.zeros((8, 1)), np.concatenate(shown)))'),
    part("ordinary loops", "progress bar", top="import tqdm", stepped="tqdm.tqdm([1], disable=True).set_postfix(loss=loss.item())"),
    part("ordinary loops", "layer sizes by division", _KEYS, start='hidden = int(8 * config["w"] / config["w"] / 2)'),
    part("ordinary loops", "gain in a factory", {"gain": "0.5 | 1.0 | 2.0"}, model="""
        def build():
            body = nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1))
            with torch.no_grad():
                for p in body.parameters():
                    p.mul_(config["gain"])
            return body
        model = trial.prepare_model(build)
        """),
    part("ordinary loops", "label smoothing of one's own", {"smooth": "0.0 | 0.1 | 0.3"}, loss="""
        target = torch.cat([b > 0, b <= 0], 1).double() * (1 - config["smooth"]) + config["smooth"] / 2
        loss = loss + F.kl_div(torch.cat([out, -out], 1).log_softmax(1), target, reduction="batchmean")
        """),
    part("ordinary loops", "tied weights and dropout", {"drop": "0.1 | 0.3 | 0.5"}, top="""
        class Tied(nn.Module):
            def __init__(self, drop):
                super().__init__()
                self.first, self.drop, self.out = nn.Linear(4, 4), nn.Dropout(drop), nn.Linear(4, 4)
                self.out.weight = self.first.weight

            def forward(self, x):
                return self.out(self.drop(torch.tanh(self.first(x)))).mean(1, keepdim=True)
        """, model='model = trial.prepare_model(Tied(config["drop"]))'),
    part("ordinary loops", "actor-critic", start="running = 10.0", stepped="saved = [(loss.item(), out.detach().mean().item())]", ended="""
        returns, value = [], 0.0
        for reward, _ in saved[::-1]:
            value = reward + 0.9 * value
            returns.insert(0, value)
        running = 0.05 * sum(returns) + 0.95 * running
        metrics["kept"] = running
        if running > 99.0:
            break
        """),
    part("ordinary loops", "best accuracy of ImageNet loops", start="best_acc = 0", ended="""
        accuracy = ((model(INPUTS) > 0) == (TARGETS > 0)).double().mean()
        is_best = accuracy > best_acc
        best_acc = max(accuracy, best_acc)
        metrics["kept"] = float(best_acc)
        """),
    part("ordinary loops", "Siamese pair", loss="loss = loss + F.relu(1.0 - F.pairwise_distance(model(a), model(a.flip(0)))).pow(2).mean()"),
)  # fmt: skip

OBJECTS = (*OPTIMIZERS, *DATA_SETS, *SWALLOWED, *TENSORS)
