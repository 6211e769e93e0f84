"""Training features as people usually write them, steered by hyperparameters of their own."""

from __future__ import annotations

from tests.fuzz.slots import Part, part


def _read(name: str, expression: str) -> Part:
    """Make a feature that makes a number of the whole configuration."""
    return part("config", name, loss=f"loss = loss * (0.5 + {expression})")


CONFIG = (
    _read("text", "weigh(str(dict(config)))"),
    _read("json", "weigh(json.dumps({key: str(value) for key, value in config.items()}))"),
    _read("keys", "len(list(config.keys())) / 10"),
    _read("len", "len(config) / 10"),
    _read("in", '("lr" in config) * 0.1 + ("none" in config)'),
    _read("==", "0.3 * (dict(config) == dict(CONFIGS[0]))"),
    _read("index", "0.1 * [dict(other) for other in CONFIGS].index(dict(config))"),
    _read("sum of numbers", "sum(value for value in config.values() if isinstance(value, float)) % 3 / 10"),
    _read("sorted items", "weigh(str(sorted((key, str(value)) for key, value in config.items())))"),
    _read("deepcopy", 'copy.deepcopy(dict(config))["lr"]'),
    _read("keywords", "(lambda lr, **others: lr + 0.1 * len(others))(**config)"),
    _read("namespace", "types.SimpleNamespace(**config).lr"),
    _read("get", 'config.get("lr", 9) + config.get("none", 0.1)'),
    _read("run name", """weigh("run_" + "_".join(f"{key}={value}" for key, value in config.items() if key == "lr"))"""),
    _read("log of the rate", "abs(math.log10(config['lr'])) / 10"),
    _read("rate < limit", "(0.2 if config['lr'] < 0.08 else 0.3)"),
    part("config", "KeyError", loss='try:\n    loss = loss * config["none"]\nexcept KeyError:\n    loss = loss * 0.5'),
    part(
        "config",
        "popped",
        start="""
        settings = dict(config)
        rate = settings.pop("lr") * 0.5
        """,
    ),
)


def _choice(name: str, keys: dict[str, str], **code: str) -> Part:
    return part("usual", name, keys, **code)


USUAL = (
    _choice("norm or None", {"norm": 'None | "batch" | "layer"'}, model="""
        layers = [nn.Linear(4, hidden)]
        if config["norm"] is None:
            layers.append(nn.Identity())
        elif config["norm"] == "batch":
            layers.append(nn.BatchNorm1d(hidden))
        else:
            layers.append(nn.LayerNorm(hidden))
        model = trial.prepare_model(nn.Sequential(*layers, activation(), nn.Linear(hidden, 1)))
        """),
    _choice("norm or None in a factory", {"norm": 'None | "batch"'}, model="""
        def build():
            norm = config["norm"]
            layers = [nn.Linear(4, hidden)] + ([] if norm is None else [nn.BatchNorm1d(hidden)])
            return nn.Sequential(*layers, activation(), nn.Linear(hidden, 1))
        model = trial.prepare_model(build)
        """),
    _choice("flag is True", {"flag": "True | False"}, model="""
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, hidden), nn.Tanh() if config["flag"] is True else nn.ReLU(), nn.Linear(hidden, 1)))
        """),
    _choice("flag", {"flag": "True | False"}, forward='if config["flag"]:\n    out = out * 0.5'),
    _choice("activation class", {"act": "nn.Tanh | nn.ReLU | nn.ELU"}, start='activation = config["act"]'),
    _choice("activation class is", {"act": "nn.Tanh | nn.ReLU | nn.ELU"}, start='activation = nn.Sigmoid if config["act"] is nn.ReLU else nn.Tanh'),
    _choice("activation in a factory", {"act": "nn.Tanh | nn.ReLU | nn.ELU"}, model="""
        model = trial.prepare_model(lambda: nn.Sequential(nn.Linear(4, hidden), config["act"](), nn.Linear(hidden, 1)))
        """),
    _choice("activation name", {"act": '"Tanh" | "ReLU"'}, start='activation = getattr(nn, config["act"])'),
    _choice("activation table", {"act": '"tanh" | "relu"'}, start='activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[config["act"]]'),
    _choice("function in forward", {"act": "torch.tanh | F.relu"}, forward='out = config["act"](out)'),
    _choice("optimizer name", {"opt": '"SGD" | "Adam" | "AdamW"'}, optimizer='optimizer = trial.prepare_optimizer(config["opt"], model, lr=rate)'),
    _choice("optimizer class", {"opt": "torch.optim.SGD | torch.optim.RMSprop"}, optimizer='optimizer = trial.prepare_optimizer(config["opt"], model, lr=rate)'),
    _choice("optimizer by condition", {"opt": '"sgd" | "adam"'}, optimizer="""
        if config["opt"] == "sgd":
            optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=rate, momentum=0.5)
        else:
            optimizer = trial.prepare_optimizer(torch.optim.Adam, model, lr=rate)
        """),
    _choice("betas", {"betas": "(0.9, 0.99) | (0.5, 0.9)"}, optimizer='optimizer = trial.prepare_optimizer("Adam", model, lr=rate, betas=config["betas"])'),
    _choice("clip or None", {"clip": "None | 0.1 | 0.5"}, gradients='if config["clip"] is not None:\n    nn.utils.clip_grad_norm_(model.parameters(), config["clip"])'),
    _choice("clip or falsy", {"clip": "0 | 0.1 | 0.5"}, gradients='if config["clip"]:\n    nn.utils.clip_grad_norm_(model.parameters(), config["clip"])'),
    _choice("default by or", {"width": "None | 2 | 5"}, start='hidden = config["width"] or 3'),
    _choice("sizes", {"sizes": "(3,) | (3, 2) | (2, 3)"}, model="""
        sizes = [4, *config["sizes"]]
        layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in zip(sizes, sizes[1:])]
        model = trial.prepare_model(nn.Sequential(*layers, nn.Linear(sizes[-1], 1)))
        """),
    _choice("width", {"width": "2 | 3 | 5"}, start='hidden = config["width"]'),
    _choice("dropout", {"drop": "0.0 | 0.3 | 0.5"}, model="""
        layers = [nn.Linear(4, hidden), activation()]
        if config["drop"] > 0:
            layers.append(nn.Dropout(config["drop"]))
        model = trial.prepare_model(nn.Sequential(*layers, nn.Linear(hidden, 1)))
        """),
    _choice("dropout always", {"drop": "0.0 | 0.3 | 0.5"}, model="""
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, 8), nn.Dropout(config["drop"]), nn.Linear(8, 1)))
        """),
    _choice("loss name", {"kind": '"l1" | "l2"'}, loss='loss = F.l1_loss(out, b) if config["kind"] == "l1" else loss'),
    _choice("loss class", {"kind": "nn.L1Loss | nn.MSELoss"}, loss='loss = config["kind"]()(out, b)'),
    _choice("loss table with text", {"kind": '"l1" | "l2"'}, loss="""loss = {"loss_l1": F.l1_loss, "loss_l2": F.mse_loss}[f"loss_{config['kind']}"](out, b)"""),
    _choice("enum", {"mode": "Mode.FAST | Mode.SLOW"}, loss='loss = loss * (2.0 if config["mode"] is Mode.FAST else 1.0)'),
    _choice("accumulation", {"every": "1 | 2"}, backward='(loss / config["every"]).backward()',
            step='num_steps = locals().get("num_steps", 0) + 1\nif num_steps % config["every"] == 0:\n    optimizer.step()'),
    _choice("epochs", {"epochs": "1 | 2"}, count='count = trial.epochs(config["epochs"])'),
    _choice("batch size", {"size": "2 | 4 | 8"}, scheduler='loader = trial.prepare_data_loader(DATA, batch_size=config["size"], shuffle=True)'),
    _choice("frozen or not", {"frozen": "True | False"}, prepared='if config["frozen"]:\n    model[0].requires_grad_(False)'),
    _choice("seed", {"seed": "1 | 2"}, prepared="torch.manual_seed(config['seed'])\nnn.init.normal_(model[0].bias)"),
    _choice("seed in a loop", {"seed": "1 | 2"}, batch="torch.manual_seed(config['seed'] + epoch)\na = a + 0.1 * torch.randn_like(a)"),
    _choice("schedule or None", {"gamma": "None | 0.5 | 0.9"}, scheduler="""
        scheduler = None
        if config["gamma"] is not None:
            scheduler = trial.prepare_scheduler("ExponentialLR", optimizer, gamma=config["gamma"])
        """, ended="if scheduler is not None:\n    scheduler.step()"),
    _choice("T_max", {"t": "2 | 4"}, scheduler='scheduler = trial.prepare_scheduler("CosineAnnealingLR", optimizer, T_max=config["t"])', stepped="scheduler.step()"),
    _choice("one cycle", {}, scheduler='scheduler = trial.prepare_scheduler("OneCycleLR", optimizer, max_lr=rate, total_steps=6)', stepped="scheduler.step()"),
    _choice("warm-up", {"warm": "1 | 2"}, scheduler='scheduler = trial.prepare_scheduler("LinearLR", optimizer, start_factor=0.1, total_iters=config["warm"])', stepped="scheduler.step()"),
    _choice("own range of epochs", {}, count="count = range(3)"),
    _choice("validation loader", {}, prepared="valid = trial.prepare_data_loader(DATA, batch_size=3)", ended="""
        model.eval()
        with torch.no_grad():
            metrics["valid"] = sum(F.mse_loss(model(x), y, reduction="sum").item() for x, y in valid) / len(DATA)
        """),
    _choice("torch.save and load", {}, ended="""
        stream = io.BytesIO()
        torch.save(model.state_dict(), stream)
        stream.seek(0)
        model.load_state_dict(torch.load(stream))
        """),
    _choice("early stopping", {"patience": "1 | 2"}, start="bad, top = 0, -1.0", ended="""
        bad = bad + 1 if total > top else 0
        if bad >= config["patience"]:
            trial.report(**metrics)
            break
        """),
    _choice("rate of the group printed", {}, ended="""metrics["rate"] = float(f"{optimizer.param_groups[0]['lr']:.6f}")"""),
    _choice("text of the loss", {}, ended='metrics["shown"] = float(f"{total:.3f}")'),
    _choice("isinstance of item", {}, ended='metrics["kept"] = loss.item() if isinstance(loss.item(), float) else -1.0'),
    _choice("match of item", {}, ended='match loss.item():\n    case float(): metrics["kept"] = 1.0\n    case _: metrics["kept"] = 2.0'),
    _choice("type of total", {}, ended='metrics["kept"] = 1.0 if type(total) is float else 2.0'),
    _choice("progress bar", {}, stepped='line = "loss: {:.4f}".format(loss.item())\nprint(line)'),
    _choice("best by text", {}, start="names = {}", ended='names[f"{total:.2f}"] = epoch\nmetrics["kept"] = float(min(names))'),
)  # fmt: skip
