"""Where a number goes: torch calls and training features that take one.

The number `$r` is between 0.1 and 0.8. Those of `EARLY` take it before the model is built, those of `LATE` in a step.
"""

from __future__ import annotations

from tests.fuzz.slots import Part, part

_BUILD = "model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), {}, nn.Linear(hidden, 1)))"


def _layer(name: str, layer: str) -> Part:
    return part("layer", name, model=_BUILD.format(layer))


def _factory(name: str, layer: str) -> Part:
    return part("factory", name, model=_BUILD.replace("(nn.Seq", "(lambda: nn.Seq", 1).format(layer))


def _start(family: str, name: str, code: str) -> Part:
    return part(family, name, start=code)


def _loss(name: str, code: str) -> Part:
    return part("loss", name, loss=code)


EARLY = (
    _start("optimizer", "lr", "rate = $r * 0.2"),
    _start("optimizer", "lr product", "rate = rate * $r"),
    _start("optimizer", "momentum", 'options["momentum"] = $r'),
    _start("optimizer", "weight_decay", 'options["weight_decay"] = $r * 0.1'),
    _start("optimizer", "nesterov", 'options.update(momentum=0.5, nesterov=$r > 0.4)'),
    _start("optimizer", "options by key", 'options = {"momentum" if $r > 0.4 else "weight_decay": 0.1}'),
    part("optimizer", "betas", optimizer="optimizer = trial.prepare_optimizer(torch.optim.Adam, model, lr=rate, betas=($r, 0.9))"),
    part("optimizer", "eps", optimizer="optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=rate, eps=$r * 1e-2)"),
    part("optimizer", "class", optimizer="optimizer = trial.prepare_optimizer(torch.optim.SGD if $r > 0.4 else torch.optim.Adam, model, lr=rate)"),
    part("optimizer", "name", optimizer='optimizer = trial.prepare_optimizer(["SGD", "Adam"][int($r > 0.4)], model, lr=rate)'),
    part("optimizer", "group lr", optimizer="""
        groups = [{"params": [model[0].weight], "lr": rate * $r}, {"params": [*model[0].parameters()][1:]}, {"params": model[2].parameters()}]
        optimizer = trial.prepare_optimizer(torch.optim.SGD, groups, lr=rate)
        """),
    part("scheduler", "gamma", scheduler="""
        scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.ExponentialLR, optimizer, gamma=$r)
        """, stepped="scheduler.step()"),
    part("scheduler", "step_size", scheduler="""
        scheduler = trial.prepare_scheduler("StepLR", optimizer, step_size=1 + int($r * 3), gamma=0.3)
        """, stepped="scheduler.step()"),
    part("scheduler", "lambda", scheduler="""
        scheduler = trial.prepare_scheduler("LambdaLR", optimizer, lr_lambda=lambda step: $r ** step)
        """, stepped="scheduler.step()"),
    part("scheduler", "by hand", stepped='for group in optimizer.param_groups:\n    group["lr"] = rate * $r ** epoch'),
    _layer("dropout", "nn.Dropout($r)"),
    _layer("LeakyReLU", "nn.LeakyReLU($r)"),
    _layer("ELU", "nn.ELU($r)"),
    _layer("Softplus", "nn.Softplus($r * 5)"),
    _layer("Hardtanh", "nn.Hardtanh(-$r, $r)"),
    _layer("BatchNorm momentum", "nn.BatchNorm1d(hidden, momentum=$r)"),
    _layer("BatchNorm eps", "nn.BatchNorm1d(hidden, eps=$r)"),
    _layer("LayerNorm eps", "nn.LayerNorm(hidden, eps=$r)"),
    _layer("activation by list", "[nn.Tanh(), nn.ReLU(), nn.ELU()][int($r * 3)]"),
    _layer("activation by condition", "nn.Tanh() if $r > 0.4 else nn.Sigmoid()"),
    _layer("norm by condition", "nn.BatchNorm1d(hidden) if $r > 0.4 else nn.LayerNorm(hidden)"),
    _layer("identity by condition", "nn.Identity() if $r > 0.4 else nn.Linear(hidden, hidden)"),
    _factory("dropout", "nn.Dropout($r)"),
    _factory("activation by list", "[nn.Tanh(), nn.ReLU(), nn.ELU()][int($r * 3)]"),
    _factory("LeakyReLU", "nn.LeakyReLU($r)"),
    _factory("norm by condition", "nn.BatchNorm1d(hidden) if $r > 0.4 else nn.Identity()"),
    _start("size", "hidden", "hidden = 2 + int($r * 5)"),
    part("size", "layers", model="""
        blocks = [nn.Sequential(nn.Linear(3, 3), activation()) for _ in range(int($r * 4))]
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, 3), *blocks, nn.Linear(3, 1)))
        """),
    part("size", "bias", model="model = trial.prepare_model(nn.Sequential(nn.Linear(4, 3, bias=$r > 0.4), nn.Tanh(), nn.Linear(3, 1)))"),
    part("size", "init", model="""
        body = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        nn.init.normal_(body[0].weight, std=$r)
        model = trial.prepare_model(body)
        """),
    part("size", "init in a factory", model="""
        def build():
            body = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
            nn.init.uniform_(body[0].weight, -$r, $r)
            return body
        model = trial.prepare_model(build)
        """),
    part("size", "init after", prepared="with torch.no_grad():\n    model[0].weight.mul_($r)"),
    part("size", "frozen layer", prepared="model[0].weight.requires_grad_($r > 0.4)"),
    part("module", "attribute", top="""
        class Net(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.scale = scale
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

            def forward(self, x):
                return self.last(torch.tanh(self.first(x) * self.scale))
        """, model="model = trial.prepare_model(Net($r))"),
    part("module", "branch in forward", top="""
        class Net(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.scale = scale
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

            def forward(self, x):
                h = self.first(x)
                return self.last(torch.tanh(h) if self.scale > 0.4 else h)
        """, model="model = trial.prepare_model(Net($r))"),
    part("module", "branch in a factory's forward", top="""
        class Net(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.scale = scale
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

            def forward(self, x):
                h = self.first(x)
                return self.last(torch.tanh(h) if self.scale > 0.4 else h * self.scale)
        """, model="model = trial.prepare_model(lambda: Net($r))"),
    part("module", "ModuleDict", model="""
        parts = nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 1)})
        model = trial.prepare_model(parts)
        forward, model = model, model["a" if $r > 0.4 else "b"]
        """),
    part("module", "buffer", model="""
        body = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        body.register_buffer("scale", torch.tensor($r, dtype=torch.float64))
        model = trial.prepare_model(body)
        """, forward="out = out * model.scale"),
    part("module", "parameter", model="""
        body = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        body.scale = nn.Parameter(torch.full((), $r, dtype=torch.float64))
        model = trial.prepare_model(body)
        """, forward="out = out * model.scale"),
    part("module", "forward hook", prepared="model[0].register_forward_hook(lambda module, given, out: out * $r)"),
    part("module", "lambda", prepared="scale$n = lambda x: x * $r", forward="out = scale$n(out)"),
    part("data", "batch_size", start="", scheduler="loader = trial.prepare_data_loader(DATA, batch_size=2 + 2 * ($r > 0.4), shuffle=True)"),
    part("data", "noise", batch="a = a + $r * torch.randn_like(a)"),
    part("data", "mask", batch="a = a * (torch.rand_like(a) > $r)"),
    part("loop", "accumulation", step="""
        if (epoch + int($r * 3)) % 2 == 0:
            optimizer.step()
        """),
    part("loop", "inner steps", forward="for _ in range(int($r * 3)):\n    out = out * 0.9"),
    part("loop", "last epoch", ended="""
        if epoch == int($r > 0.4):
            trial.report(**metrics)
            return
        """),
    part("averages", "EMA", prepared="shadow = copy.deepcopy(model)", stepped="""
        with torch.no_grad():
            for kept, new in zip(shadow.parameters(), model.parameters()):
                kept.mul_($r).add_(new, alpha=1 - $r)
        """, ended='metrics["ema"] = shadow(INPUTS).mean().item()'),
    part("averages", "lerp", prepared="kept = [p.detach().clone() for p in model.parameters()]", stepped="""
        for old, new in zip(kept, model.parameters()):
            old.lerp_(new.detach(), $r)
        """, ended='metrics["ema"] = sum(p.sum() for p in kept)'),
)  # fmt: skip

LATE = (
    _loss("weight", "loss = loss * $r"),
    _loss("penalty", "loss = loss + $r * sum(p.pow(2).sum() for p in model.parameters())"),
    _loss("huber", "loss = F.huber_loss(out, b, delta=$r)"),
    _loss("smooth_l1", "loss = F.smooth_l1_loss(out, b, beta=$r)"),
    _loss("label smoothing", "loss = loss + F.cross_entropy(torch.cat([out, -out], 1), (b > 0).long()[:, 0], label_smoothing=$r)"),
    _loss("class weight", "loss = loss + F.cross_entropy(torch.cat([out, -out], 1), (b > 0).long()[:, 0], weight=torch.tensor([$r, 1.0]))"),
    _loss("bce pos_weight", "loss = loss + F.binary_cross_entropy_with_logits(out, (b > 0).double(), pos_weight=torch.tensor($r))"),
    _loss("where", "loss = torch.where(loss > $r, loss, loss * 0.5)"),
    _loss("mask", "loss = ((out - b).pow(2) * ((out - b).abs() > $r)).mean()"),
    _loss("masked_fill", "loss = (out - b).pow(2).masked_fill(b > $r, 0.0).mean()"),
    _loss("clamp", "loss = loss.clamp(max=$r * 9)"),
    _loss("pow", "loss = (out - b).abs().add(0.1).pow(1 + $r).mean()"),
    _loss("new tensor", "loss = loss * torch.tensor($r, dtype=torch.float64) + torch.full((), $r)"),
    _loss("new_tensor", "loss = loss * loss.new_tensor([1.0, $r]).sum()"),
    _loss("arange", "loss = loss * torch.linspace(0.1, $r, 3, dtype=torch.float64).sum()"),
    _loss("lerp", "loss = torch.lerp(loss, out.pow(2).mean(), $r)"),
    _loss("in place", "loss = loss.clone().mul_($r).add_($r)"),
    _loss("item assignment", "weights$n = torch.ones(4, 1, dtype=torch.float64)\nweights$n[0] = $r\nloss = (weights$n * (out - b).pow(2)).mean()"),
    _loss("quantile", "loss = loss + torch.quantile(out.detach(), $r)"),
    _loss("branch", "if $r > 0.4:\n    loss = loss * 2"),
    _loss("loss by name", "loss = {'l1': F.l1_loss, 'l2': F.mse_loss}['l1' if $r > 0.4 else 'l2'](out, b)"),
    _loss("topk", "loss = (out - b).pow(2).flatten().topk(1 + int($r * 3)).values.mean()"),
    _loss("slice", "loss = (out - b)[: 1 + int($r * 4)].pow(2).mean()"),
    _loss("dropout", "loss = loss + F.dropout(out, $r).pow(2).mean() * 0.1"),
    _loss("add_scalar kwargs", "loss = torch.add(loss, out.mean(), alpha=$r)"),
    _loss("addcmul", "loss = torch.addcmul(loss, out.mean(), out.mean(), value=$r)"),
    _loss("normal_", "loss = loss * (1 + torch.empty(2).normal_(0, $r).mean())"),
    part("gradients", "clip norm", gradients="nn.utils.clip_grad_norm_(model.parameters(), $r)"),
    part("gradients", "clip value", gradients="nn.utils.clip_grad_value_(model.parameters(), $r * 0.1)"),
    part("gradients", "scaled", gradients="for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_($r)"),
    part("gradients", "noise", gradients="for p in model.parameters():\n    if p.grad is not None:\n        p.grad += $r * 0.01 * torch.randn_like(p)"),
    part("gradients", "skip", step="if $r > 0.4:\n    optimizer.step()"),
    part("gradients", "lr of the group", gradients='for group in optimizer.param_groups:\n    group["lr"] = 0.2 * $r'),
    part("weights", "data", stepped="for p in model.parameters():\n    p.data.mul_(1 - 0.1 * $r)"),
    part("weights", "no_grad", stepped="with torch.no_grad():\n    for p in model.parameters():\n        p.add_(p.sign(), alpha=-0.01 * $r)"),
    part("weights", "clamp_", stepped="with torch.no_grad():\n    for p in model.parameters():\n        p.clamp_(-$r, $r)"),
    part("report", "metric", stepped="", ended='metrics["number"] = $r'),
    part("report", "tensor", ended='metrics["number"] = torch.tensor($r)'),
    part("report", "sum", ended='metrics["number"] = metrics.get("number", 0) + $r * total'),
    part("report", "text key", ended='metrics["a" if $r > 0.4 else "b"] = 1.0'),
    part("loop", "early stop", stepped="if $r > 0.6:\n    total += loss.item()\n    break"),
    part("loop", "best so far", stepped="if $r < best:\n    best = $r", ended='metrics["best"] = best'),
    part("loop", "best weights", stepped="""
        if loss.item() * $r < best:
            best = loss.item() * $r
            kept = copy.deepcopy(model.state_dict())
        """, ended="""
        held = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(kept)
        metrics["best"] = model(INPUTS).mean().item()
        model.load_state_dict(held)
        """),
)  # fmt: skip
