"""Training features that need no number from the program: models, groups of parameters, scaling, state, exceptions."""

from __future__ import annotations

from tests.fuzz.slots import Part, part

_SCALES = {"scale": "1.0 | 0.5 | 2.0"}
_WILD = {"wild": "1.0 | 1e200 | 0.5"}
"""One of these makes numbers overflow."""


def _groups(name: str, code: str, model: str = "", **more: str) -> Part:
    body = (
        model
        or """
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1)))
        """
    )
    return part("groups", name, model=body, optimizer=code, **more)


_FROZEN = """
    model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1)))
    model[0].requires_grad_(False)
    """
_BEFORE = """
    backbone, head = nn.Sequential(nn.Linear(4, hidden), activation()), nn.Linear(hidden, 1)
    model = trial.prepare_model(nn.Sequential(backbone, head))
    """

GROUPS = (
    _groups("filter in a group", """
        optimizer = trial.prepare_optimizer(torch.optim.AdamW, [{"params": filter(lambda p: p.requires_grad, model.parameters())}], lr=rate)
        """),
    _groups("filter of a frozen model", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, filter(lambda p: p.requires_grad, model.parameters()), lr=rate)
        """, _FROZEN),
    _groups("filter in a group of a frozen model", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, [{"params": filter(lambda p: p.requires_grad, model.parameters())}], lr=rate)
        """, _FROZEN),
    _groups("generator expression", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, (p for p in model.parameters() if p.requires_grad), lr=rate)
        """, _FROZEN),
    _groups("generators by name", """
        decayed = (p for name, p in model.named_parameters() if name.endswith("weight"))
        others = (p for name, p in model.named_parameters() if not name.endswith("weight"))
        optimizer = trial.prepare_optimizer(torch.optim.AdamW, [{"params": decayed, "weight_decay": 0.1}, {"params": others, "lr": rate * 0.5}], lr=rate)
        """),
    _groups("groups by dimension", """
        groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2]}]
        optimizer = trial.prepare_optimizer("Adam", groups, lr=rate)
        """),
    _groups("add_param_group", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model[0].parameters(), lr=rate)
        optimizer.add_param_group({"params": model[2].parameters(), "lr": rate * 0.5})
        """),
    _groups("add_param_group with a filter", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model[0].parameters(), lr=rate)
        optimizer.add_param_group({"params": filter(lambda p: p.requires_grad, model[2].parameters())})
        """),
    _groups("add_param_group later", """
        optimizer = trial.prepare_optimizer(torch.optim.Adam, model[2].parameters(), lr=rate)
        """, ended="if epoch == 0:\n    optimizer.add_param_group({'params': list(model[0].parameters()), 'lr': 0.01})"),
    _groups("submodules taken before", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, [{"params": backbone.parameters()}, {"params": head.parameters(), "lr": rate * 0.5}], lr=rate)
        """, _BEFORE),
    _groups("parameters taken before", """
        optimizer = trial.prepare_optimizer(torch.optim.Adam, before, lr=rate)
        """, """
        body = nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1))
        before = list(body.parameters())
        model = trial.prepare_model(body)
        """),
    _groups("original used in the loss", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=rate)
        """, _BEFORE, loss="loss = loss + head.weight.pow(2).sum() * 0.1"),
    _groups("original evaluated", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=rate)
        """, _BEFORE, ended='metrics["head"] = head(backbone(INPUTS)).mean().item()'),
    _groups("original frozen afterwards", """
        backbone.requires_grad_(False)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, [p for p in model.parameters() if p.requires_grad], lr=rate)
        """, _BEFORE),
    _groups("original in train and eval", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=rate)
        """, """
        drop = nn.Dropout(0.5)
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), drop, nn.Linear(hidden, 1)))
        """, batch="drop.eval()"),
    _groups("submodule shared by two models", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, [*model.parameters(), *second[1].parameters()], lr=rate)
        """, """
        shared = nn.Linear(4, hidden)
        model = trial.prepare_model(nn.Sequential(shared, activation(), nn.Linear(hidden, 1)))
        second = trial.prepare_model(nn.Sequential(shared, nn.Linear(hidden, 1)))
        """, loss="loss = loss + F.mse_loss(second(a), b)"),
    _groups("no optimizer of ours", """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """),
    _groups("two optimizers", """
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model[0].parameters(), lr=rate)
        second = trial.prepare_optimizer(torch.optim.Adam, model[2].parameters(), lr=rate)
        """, stepped="second.step()\nsecond.zero_grad()"),
    _groups("loose parameter", """
        loose = nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, [*model.parameters(), loose], lr=rate)
        """, loss="loss = loss * loose.sum()"),
)  # fmt: skip

MODELS = (
    part("models", "closure over a submodule", top="""
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = nn.ModuleDict(dict(fc=nn.Linear(4, 3), act=nn.Tanh(), proj=nn.Linear(3, 1)))
                m = self.mlp
                self.mlpf = lambda x: m.proj(m.act(m.fc(x)))

            def forward(self, x):
                return self.mlpf(x)
        """, model="model = trial.prepare_model(Block())"),
    part("models", "list of submodules", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)
                self.steps = [self.first, torch.tanh, self.last]

            def forward(self, x):
                for step in self.steps:
                    x = step(x)
                return x
        """, model="model = trial.prepare_model(Net())"),
    part("models", "bound method", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)
                self.run = self.compute

            def compute(self, x):
                return self.last(torch.tanh(self.first(x)))

            def forward(self, x):
                return self.run(x)
        """, model="model = trial.prepare_model(Net())"),
    part("models", "tied weights", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
                self.middle.weight = self.first.weight

            def forward(self, x):
                return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))
        """, model="model = trial.prepare_model(Net())"),
    part("models", "BatchNorm", model="""
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), activation(), nn.Linear(hidden, 1)))
        """, ended="""
        model.eval()
        with torch.no_grad():
            metrics["valid"] = F.mse_loss(model(INPUTS), TARGETS).item()
        """),
    part("models", "LSTM", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.last = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 1)

            def forward(self, x):
                out, (h, c) = self.lstm(x.view(-1, 2, 2))
                return self.last(out[:, -1])
        """, model="model = trial.prepare_model(Net())"),
    part("models", "GRU with a state", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.gru, self.last = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 1)

            def forward(self, x):
                out, h = self.gru(x.view(-1, 2, 2), torch.zeros(1, len(x), 3, dtype=x.dtype))
                return self.last(h[-1])
        """, model="model = trial.prepare_model(lambda: Net())"),
    part("models", "convolution", model="""
        model = trial.prepare_model(nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(6, 1)))
        """),
    part("models", "attention", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention, self.last = nn.MultiheadAttention(2, 1, batch_first=True), nn.Linear(4, 1)

            def forward(self, x):
                x = x.view(-1, 2, 2)
                return self.last(self.attention(x, x, x)[0].flatten(1))
        """, model="model = trial.prepare_model(Net())"),
    part("models", "counting buffer", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)
                self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))
                self.num_calls = 0

            def forward(self, x):
                h = self.first(x)
                self.num_calls += 1
                self.mean.mul_(0.5).add_(h.detach().mean(0))
                return self.last(torch.tanh(h - self.mean))
        """, model="model = trial.prepare_model(Net())", ended='metrics["mean"] = model.mean.sum().item() + model.num_calls'),
    part("models", "buffer replaced", top="""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.last = nn.Linear(4, 1)
                self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

            def forward(self, x):
                out = self.last(x - self.mean)
                self.mean = 0.9 * self.mean + 0.1 * out.detach().mean()
                return out
        """, model="model = trial.prepare_model(Net())"),
    part("models", "factory with randomness", model="""
        model = trial.prepare_model(lambda: nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1)))
        """),
    part("models", "weight norm", model="""
        model = trial.prepare_model(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, hidden)), activation(), nn.Linear(hidden, 1)))
        """),
    part("models", "apply and zero", prepared="""
        def soften(module):
            if isinstance(module, nn.Linear):
                module.weight.data.mul_(0.5)
                nn.init.zeros_(module.bias)
        model.apply(soften)
        """),
    part("models", "EMA by AveragedModel", prepared="averaged = torch.optim.swa_utils.AveragedModel(model)",
         stepped="averaged.update_parameters(model)", ended='metrics["ema"] = averaged(INPUTS).mean().item()'),
    part("models", "teacher by deepcopy", prepared="teacher = copy.deepcopy(model).requires_grad_(False)",
         loss="loss = loss + F.mse_loss(out, teacher(a))"),
    part("models", "teacher by state_dict", prepared="""
        teacher = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), activation(), nn.Linear(hidden, 1)))
        """, loss="with torch.no_grad():\n    aim = teacher(a)\nloss = loss + F.mse_loss(out, aim)",
         ended="teacher.load_state_dict(model.state_dict())"),
)  # fmt: skip

_SCALED = """
    scaler.scale(loss).backward()
    """
_SCALER = 'scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=1)'

SCALING = (
    part("GradScaler", "plain", scheduler=_SCALER, backward=_SCALED, step="scaler.step(optimizer)\nscaler.update()",
         ended='metrics["scale"] = scaler.get_scale()'),
    part("GradScaler", "overflow in one trial", _WILD, scheduler=_SCALER, loss='loss = loss * config["wild"] ** 1.51',
         backward=_SCALED, step="scaler.step(optimizer)\nscaler.update()", ended='metrics["scale"] = scaler.get_scale()'),
    part("GradScaler", "overflow and clipping", _WILD, scheduler=_SCALER, loss='loss = loss * config["wild"] ** 1.51',
         backward=_SCALED, gradients="scaler.unscale_(optimizer)\nnn.utils.clip_grad_norm_(model.parameters(), 0.5)",
         step="scaler.step(optimizer)\nscaler.update()"),
    part("GradScaler", "infinite gradient", _WILD, scheduler=_SCALER, backward=_SCALED, gradients="""
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(config["wild"]).mul_(config["wild"])
        """, step="scaler.step(optimizer)\nscaler.update()"),
)  # fmt: skip
