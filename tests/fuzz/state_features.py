"""Training features that keep state, write in place, leave torch's usual paths, or fail in one trial."""

from __future__ import annotations

from tests.fuzz.slots import Part, part

_SCALES = {"scale": "1.0 | 0.5 | 2.0"}


def _caught(name: str, attempt: str, error: str, otherwise: str) -> Part:
    """Make a feature that fails in the trials whose scale is 2."""
    return part("caught", name, _SCALES, loss=f"try:\n    {attempt}\nexcept{error}:\n    {otherwise}")


CAUGHT = (
    _caught("perplexity", 'loss = loss + 0.1 * math.exp(loss.item() * 400 * (config["scale"] - 0.9)) ** 1e-3', " OverflowError", "loss = loss * 0.5"),
    _caught("math.log", 'loss = loss + math.log(1.5 - config["scale"] + loss.item() * 1e-6)', " ValueError", "loss = loss * 0.5"),
    _caught("cholesky", 'factor = torch.linalg.cholesky((1.5 - config["scale"]) * torch.eye(4) + 0.1 * out @ out.T)\n    loss = loss + factor.diagonal().sum()', " torch.linalg.LinAlgError", "loss = loss * 0.5"),
    _caught("cholesky of weights", 'factor = torch.linalg.cholesky((1.5 - config["scale"]) * torch.eye(4) + 0.01 * out @ out.T)\n    loss = loss + factor.diagonal().sum()', " RuntimeError", "loss = loss * 0.5"),
    _caught("solve", 'loss = loss + torch.linalg.solve((2.0 - config["scale"]) * torch.eye(4), out).sum()', " RuntimeError", "loss = loss * 0.5"),
    _caught("inverse, bare", 'loss = loss + torch.linalg.inv((2.0 - config["scale"]) * torch.eye(4)).sum() + out.mean()', "", "loss = loss * 0.5"),
    _caught("division", 'loss = loss / (config["scale"] - 2.0)', " ZeroDivisionError", "loss = loss * 0.5"),
    _caught("int of NaN", 'steps = int(loss.item() * (math.inf if config["scale"] > 1.5 else 1))\n    loss = loss * (1 + steps)', " OverflowError", "loss = loss * 0.5"),
    _caught("own check", 'if not math.isfinite(loss.item() ** (800 * (config["scale"] - 0.9))):\n        raise ValueError("diverged")', " (ValueError, OverflowError)", "loss = loss * 0.5"),
    _caught("domain of a distribution", 'loss = loss + torch.distributions.Normal(out.mean(), 1.5 - config["scale"]).log_prob(torch.zeros(())).sum()', " ValueError", "loss = loss * 0.5"),
    part("caught", "NaN in one trial", _SCALES, loss='loss = loss * (1.5 - config["scale"]) ** 0.5 if False else loss * torch.sqrt(torch.tensor(1.5, dtype=torch.float64) - config["scale"])'),
    part("caught", "NaN is skipped", _SCALES, loss='loss = loss * torch.sqrt(torch.tensor(1.5, dtype=torch.float64) - config["scale"])',
         step="if torch.isfinite(loss):\n    optimizer.step()", stepped="loss = torch.nan_to_num(loss)"),
    part("caught", "NaN is counted", _SCALES, start="num_bad = 0", loss="""
        risky = loss.item() * (math.nan if config["scale"] == 2.0 else 1.0)
        if math.isnan(risky):
            num_bad += 1
        """, ended='metrics["bad"] = num_bad'),
    part("caught", "raised in the second epoch", _SCALES, ended="""
        if epoch == 1 and config["scale"] == 2.0:
            raise RuntimeError("too large")
        """),
    part("caught", "raised by a computed number", _SCALES, ended="""
        if epoch == 1 and total * config["scale"] > 3.0:
            raise ValueError(f"diverged at {total:.2f}")
        """),
)  # fmt: skip

FUNCTIONS = (
    part("autograd.Function", "plain", top="""
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 1.5 * x
        """, forward="out = Square.apply(out)"),
    part("autograd.Function", "with a number", _SCALES, top="""
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale):
                ctx.scale = scale
                return x * scale

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.scale, None
        """, forward='out = Scale.apply(out, config["scale"])'),
    part("autograd.Function", "straight through", top="""
        class Round(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return (x > 0.1).to(x.dtype)

            @staticmethod
            def backward(ctx, grad):
                return grad
        """, forward="out = out + Round.apply(out)"),
    part("autograd.Function", "writes through data", top="""
        class Keep(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, kept):
                kept.data.copy_(x.detach().mean(0))
                return x * 1.0

            @staticmethod
            def backward(ctx, grad):
                return grad, None
        """, start="kept = torch.zeros(1, dtype=torch.float64)", forward="out = Keep.apply(out, kept)",
         loss="loss = loss * (1 + kept.abs().sum())", ended='metrics["kept"] = kept.sum().item()'),
    part("autograd.Function", "marks dirty", top="""
        class Halve(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                x.mul_(0.5)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx, grad):
                return grad * 0.5
        """, forward="out = Halve.apply(out * 1.0)"),
    part("autograd.Function", "branches", top="""
        class Gate(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.is_large = x.abs().mean().item() > 0.4
                return x * 2 if ctx.is_large else x

            @staticmethod
            def backward(ctx, grad):
                return grad * 2 if ctx.is_large else grad
        """, forward="out = Gate.apply(out)"),
    part("autograd.Function", "keeps outside", top="""
        class Watch(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                LAST.append(x.detach().mean())
                return x * 1.0

            @staticmethod
            def backward(ctx, grad):
                return grad
        LAST = []
        """, start="LAST.clear()", forward="out = Watch.apply(out)", ended='metrics["kept"] = LAST[-1].item()'),
    part("autograd.Function", "checkpoint", forward="""
        out = torch.utils.checkpoint.checkpoint(model, a, use_reentrant=False)
        """),
    part("autograd.Function", "autograd.grad", loss="""
        (slope,) = torch.autograd.grad(loss, model[0].weight, create_graph=True)
        loss = loss + 0.1 * slope.pow(2).sum()
        """),
    part("autograd.Function", "hook on a parameter", prepared="model[0].weight.register_hook(lambda grad: grad * 0.5)"),
    part("autograd.Function", "hook that branches", prepared="""
        model[0].weight.register_hook(lambda grad: grad * 0.5 if grad.norm() > 0.5 else grad)
        """),
)  # fmt: skip

STATE = (
    part("state", "global tensor +=", top="TOTAL = torch.zeros(1, dtype=torch.float64)", start="TOTAL.zero_()",
         stepped="TOTAL.add_(loss.detach())", ended='metrics["kept"] = TOTAL.sum().item()'),
    part("state", "global tensor copy_", top="LATEST = torch.zeros(4, 1, dtype=torch.float64)", start="LATEST.zero_()",
         stepped="LATEST.copy_(out.detach())", ended='metrics["kept"] = LATEST.sum().item()'),
    part("state", "global tensor []", top="SLOTS = torch.zeros(3, dtype=torch.float64)", start="SLOTS.fill_(0)",
         stepped="SLOTS[epoch] = loss.detach()", ended='metrics["kept"] = SLOTS.sum().item()'),
    part("state", "global tensor [] = item", top="SLOTS = torch.zeros(3, dtype=torch.float64)", start="SLOTS.fill_(0)",
         stepped="SLOTS[epoch] = loss.item()", ended='metrics["kept"] = SLOTS.sum().item()'),
    part("state", "global tensor data", top="TOTAL = torch.zeros(1, dtype=torch.float64)", start="TOTAL.data.zero_()",
         stepped="TOTAL.data += loss.detach()", loss="loss = loss * (1 + 0.1 * TOTAL.sum())"),
    part("state", "global tensor by config", {"scale": "1.0 | 0.5 | 2.0"}, top="TOTAL = torch.zeros(1, dtype=torch.float64)",
         start='TOTAL.fill_(config["scale"])', loss="loss = loss * TOTAL.sum()"),
    part("state", "global tensor +", top="TOTAL = torch.zeros(1, dtype=torch.float64)",
         start="global TOTAL\nTOTAL = torch.zeros(1, dtype=torch.float64)", stepped="TOTAL = TOTAL + loss.detach()",
         ended='metrics["kept"] = TOTAL.sum().item()'),
    part("state", "own tensor in place", start="kept = torch.zeros(1, dtype=torch.float64)", stepped="kept += loss.detach()",
         ended='metrics["kept"] = kept.sum().item()'),
    part("state", "own tensor out=", start="kept = torch.zeros(4, 1, dtype=torch.float64)",
         stepped="torch.mul(out.detach(), 2.0, out=kept)", ended='metrics["kept"] = kept.sum().item()'),
    part("state", "resize_", start="kept = torch.zeros(0, dtype=torch.float64)",
         stepped="kept.resize_(4, 1).copy_(out.detach())", ended='metrics["kept"] = kept.sum().item()'),
    part("state", "resize_ of a lane tensor", stepped="kept = out.detach().clone().resize_(2, 2)",
         ended='metrics["kept"] = kept[1].sum().item()'),
    part("state", "resize_as_", stepped="kept = out.detach().clone()\nkept.resize_as_(torch.zeros(2, 1))",
         ended='metrics["kept"] = kept.sum().item()'),
    part("state", "set_", start="kept = torch.zeros(1, dtype=torch.float64)", stepped="kept.set_(out.detach().clone())",
         ended='metrics["kept"] = kept.sum().item()'),
    part("state", "data =", start="kept = torch.zeros(1, dtype=torch.float64)", stepped="kept.data = out.detach().clone()",
         ended='metrics["kept"] = kept.sum().item()'),
    part("state", "swap of weights", ended="""
        with torch.no_grad():
            first = model[0].weight
            first.copy_(first.flip(0))
        """),
    part("state", "item in a thread", top="""
        def read_in_thread(work):
            found = []
            thread = threading.Thread(target=lambda: found.append(work()))
            thread.start()
            thread.join()
            return found[0]
        """, ended='metrics["kept"] = read_in_thread(lambda: loss.item())'),
    part("state", "evaluation in a thread", top="""
        def read_in_thread(work):
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(work).result()
        """, ended='metrics["kept"] = read_in_thread(lambda: model(INPUTS).detach().mean().item())'),
    part("state", "config in a thread", {"scale": "1.0 | 0.5 | 2.0"}, top="""
        def read_in_thread(work):
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(work).result()
        """, loss='loss = loss * read_in_thread(lambda: 2.0 if config["scale"] > 0.7 else 1.0)'),
    part("state", "global tensor and a branch", {"flag": "True | False"}, top="TOTAL = torch.zeros(1, dtype=torch.float64)",
         start="TOTAL.zero_()", stepped="TOTAL.add_(loss.detach())", ended="""
        if config["flag"] and epoch == 1:
            TOTAL.mul_(2)
        metrics["kept"] = TOTAL.sum().item()
        """),
    part("state", "view of a global tensor", top="TOTAL = torch.zeros(3, dtype=torch.float64)\nVIEW = TOTAL[:1]",
         start="TOTAL.zero_()", stepped="TOTAL.add_(loss.detach())", ended='metrics["kept"] = VIEW.sum().item()'),
    part("state", "write into a view of a global tensor", top="TOTAL = torch.zeros(3, dtype=torch.float64)", start="TOTAL.zero_()",
         stepped="TOTAL[1:].add_(loss.detach())", ended='metrics["kept"] = TOTAL.sum().item()'),
    part("state", "view of an own tensor", start="kept = torch.zeros(3, dtype=torch.float64)\nview = kept[:2]",
         stepped="kept += loss.detach()", ended='metrics["kept"] = view.sum().item()'),
    part("state", "write into a view", start="kept = torch.zeros(3, dtype=torch.float64)\nview = kept.view(3, 1)",
         stepped="view.add_(loss.detach())", ended='metrics["kept"] = kept.sum().item()'),
    part("state", "weight that was detached once", prepared="seen = next(model.parameters()).detach()", ended='metrics["kept"] = seen.sum().item()'),
    part("state", "state dict that was taken once", prepared="held = model.state_dict()",
         ended='metrics["kept"] = sum(value.double().sum().item() for value in held.values())'),
    part("state", "row of a weight that is written", prepared="row = next(model.parameters()).data[0]", stepped="row.mul_(0.9)"),
    part("state", "row of an average", prepared="mean = next(model.parameters()).detach().clone()\nrow = mean[0]",
         stepped="row.add_(loss.detach())", ended='metrics["kept"] = mean.sum().item()'),
    part("state", "array of an own tensor", start="kept = torch.zeros(3, dtype=torch.float64)\nview = kept.numpy()",
         stepped="kept.fill_(loss.item())", ended='metrics["kept"] = float(view.sum())'),
    part("state", "tensor of an array", start="array = np.zeros(3)\nkept = torch.from_numpy(array)",
         stepped="kept.add_(loss.detach())", ended='metrics["kept"] = float(array.sum())'),
    part("state", "two names of a tensor", start="kept = torch.zeros(1, dtype=torch.float64)\nheld = [kept]",
         stepped="held[0].add_(loss.detach())", ended='metrics["kept"] = kept.item()'),
    part("state", "resize_ to less", stepped="kept = out.detach().clone()\nkept.resize_(2, 1)",
         ended='metrics["kept"] = kept.sum().item()'),
    part("state", "resize_ of a global tensor", top="LATEST = torch.zeros(0, dtype=torch.float64)",
         stepped="LATEST.resize_(4, 1).copy_(out.detach())", ended='metrics["kept"] = LATEST.sum().item()'),
    part("state", "item in a thread that may fail", top="""
        def note_in_thread(work):
            kept = {"value": 0.0}
            thread = threading.Thread(target=lambda: kept.update(value=work()))
            thread.start()
            thread.join()
            return kept["value"]
        """, ended='metrics["kept"] = note_in_thread(lambda: loss.item())'),
    part("state", "tensor in a thread", top="""
        def note_in_thread(work):
            kept = []
            thread = threading.Thread(target=lambda: kept.append(work()))
            thread.start()
            thread.join()
            return kept[0]
        """, ended='metrics["kept"] = note_in_thread(lambda: loss.detach() * 2)'),
    part("state", "branch in a thread", top="""
        def note_in_thread(work):
            kept = {"value": 0.0}
            thread = threading.Thread(target=lambda: kept.update(value=work()))
            thread.start()
            thread.join()
            return kept["value"]
        """, ended='metrics["kept"] = note_in_thread(lambda: 2.0 if loss.item() > 0.8 else 1.0)'),
    part("state", "list of losses", start="losses = []", stepped="losses.append(loss.item())",
         ended='metrics["kept"] = sum(losses) / len(losses) + max(losses)'),
    part("state", "list of tensors", start="losses = []", stepped="losses.append(loss.detach())",
         ended='metrics["kept"] = torch.stack(losses).std()'),
    part("state", "numpy of losses", start="losses = []", stepped="losses.append(loss.item())",
         ended='metrics["kept"] = float(np.mean(losses))'),
    part("state", "sorted losses", start="losses = []", stepped="losses.append(loss.item())",
         ended='metrics["kept"] = sorted(losses)[0]'),
    part("state", "best epoch", start="top = math.inf\nbest_epoch = -1", ended="""
        if total < top:
            top, best_epoch = total, epoch
        metrics["kept"] = best_epoch
        """),
    part("state", "patience", start="patience = 0", ended="""
        patience = patience + 1 if total > 1.5 else 0
        metrics["kept"] = patience
        """),
    part("state", "accuracy", ended="""
        model.eval()
        with torch.no_grad():
            right = ((model(INPUTS) > 0) == (TARGETS > 0)).sum().item()
        metrics["kept"] = right / len(INPUTS)
        """),
    part("state", "inference_mode", ended="""
        with torch.inference_mode():
            metrics["kept"] = model(INPUTS).sigmoid().mean().item()
        """),
    part("state", "boolean index", ended="""
        with torch.no_grad():
            values = model(INPUTS)
            metrics["kept"] = values[values > 0].sum().item()
        """),
    part("state", "nonzero", ended='metrics["kept"] = (model(INPUTS) > 0).nonzero().shape[0]'),
    part("state", "unique", ended='metrics["kept"] = len((model(INPUTS).detach() > 0).unique())'),
    part("state", "ReduceLROnPlateau", scheduler="""
        plateau = trial.prepare_scheduler("ReduceLROnPlateau", optimizer, factor=0.5, patience=0)
        """, ended="plateau.step(total)"),
    part("state", "state of the optimizer", ended='metrics["kept"] = len(optimizer.state_dict()["param_groups"])'),
    part("state", "zero_grad of the model", batch="model.zero_grad(set_to_none=False)"),
    part("state", "grad kept", stepped="kept = model[0].weight.grad.clone()", ended='metrics["kept"] = kept.norm().item()'),
    part("state", "grad set", gradients="model[0].weight.grad = torch.ones_like(model[0].weight)"),
    part("state", "grad None", gradients="model[0].bias.grad = None"),
    part("state", "dropout in training", forward="out = F.dropout(out, 0.3)"),
    part("state", "random in training", forward="out = out * random.random() + np.random.rand() * 0.1"),
    part("state", "detach and requires_grad", batch="a = a.clone().requires_grad_()", loss="""
        (slope,) = torch.autograd.grad(loss, a, retain_graph=True)
        loss = loss + 0.1 * slope.abs().mean().detach()
        """),
    part("state", "vmap", loss="loss = loss + 0.1 * torch.vmap(lambda row: row.pow(2).sum())(out).mean()"),
    part("state", "einsum", loss="loss = loss + 0.01 * torch.einsum('ij,ij->', out, b)"),
    part("state", "scatter", loss="loss = loss + torch.zeros(4, 2, dtype=torch.float64).scatter(1, (out > 0).long(), out).sum() * 0.1"),
    part("state", "print", stepped='print("loss", loss.item(), f"{loss.item():.3f}", config["lr"])'),
    part("state", "logging", top='LOG = logging.Logger("quiet")\nLOG.addHandler(logging.StreamHandler(io.StringIO()))',
         stepped='LOG.info("loss %.3f lr %s", loss.item(), config["lr"])'),
)  # fmt: skip
