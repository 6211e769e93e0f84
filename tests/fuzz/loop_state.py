"""Training features that keep state between epochs outside of what is prepared.

A trial that was called again from its beginning after a pause would have lost this state, or would set it anew. Families
name the kind of state.
"""

from __future__ import annotations

from tests.fuzz.slots import Part, part

_SHOW = 'metrics["kept"] = {}'


def _number(name: str, start: str, ended: str, expression: str, /, **code: str) -> Part:
    """Make a feature with a number or a container of numbers as a local variable."""
    return part("state: local numbers", name, start=start, ended=f"{ended}\n{_SHOW.format(expression)}", **code)


NUMBERS = (
    _number("best so far", "top = math.inf", "if total < top:\n    top = total", "top"),
    _number("best by min", "top = math.inf", "top = min(top, total)", "top"),
    _number("patience", "top, bad = math.inf, 0", """
bad = 0 if total < top - 1.0 else bad + 1
top = min(top, total)
if bad >= 3:
    trial.report(loss=total, kept=bad)
    break
""", "bad"),
    _number("running average", "average = 0.0", "average = 0.9 * average + 0.1 * total", "average"),
    _number("running average in the loss", "average = 1.0", "average = 0.5 * average + 0.5 * total", "average", loss="loss = loss / (0.5 + average)"),
    _number("average or None", "average = None", "average = total if average is None else 0.8 * average + 0.2 * total", "average"),
    _number("list of losses", "losses = []", "losses.append(total)", "sum(losses) / len(losses)"),
    _number("deque", "window = collections.deque(maxlen=2)", "window.append(total)", "sum(window) / len(window)"),
    _number("Counter", "seen = collections.Counter()", 'seen["epoch"] += 1\nseen["bad"] += total > 0.1', "sum(seen.values())"),
    _number("defaultdict", "seen = collections.defaultdict(list)", 'seen["loss"].append(total)', 'sum(seen["loss"])'),
    _number("global step", "num_steps = 0", "pass", "num_steps", stepped="num_steps += 1", loss="loss = loss / (1 + 0.1 * num_steps)"),
    _number("NumPy array", "losses = np.zeros(3)", "losses[epoch] = total", "float(losses.sum())"),
    _number("nested containers", 'history = {"train": [], "top": (9.0, -1)}', 'history["train"].append(total)\nhistory["top"] = min(history["top"], (total, epoch))', 'history["top"][0] + len(history["train"]) + history["top"][1]'),
    _number("set of epochs", "seen = set()", "seen.add(epoch)", "len(seen)"),
    _number("two names for one list", "losses = []\nalias = losses", "alias.append(total)", "len(losses) + sum(losses)"),
    _number("list in a tuple", "pair = ([], 0)", "pair[0].append(total)", "sum(pair[0])"),
    _number("history as text", 'text = ""', 'text += f"{total:.3f};"', "weigh(text)"),
    _number("warm-up switch", "is_warm = True", "if epoch > 0:\n    is_warm = False", "float(is_warm)", loss="loss = loss * (0.1 if is_warm else 1.0)"),
    _number("loss of the epoch before", "before = None", "gain = 0.0 if before is None else before - total\nbefore = total", "gain"),
    _number("beta to a power", "power = 1.0", "power *= 0.9", "total / (1 - power)"),
    _number("decayed epsilon", "epsilon = 1.0", "epsilon = max(0.1, epsilon * 0.5)", "epsilon", batch="a = a * epsilon"),
    _number("running reward", "running = 10.0", "running = 0.05 * total + 0.95 * running", "running"),
    _number("SimpleNamespace", "held = types.SimpleNamespace(top=9.0, count=0)", "held.top = min(held.top, total)\nheld.count += 1", "held.top + held.count"),
)  # fmt: skip

WEIGHTS = (
    part("state: kept weights", "best state_dict", start="top, kept = math.inf, None", ended="""
        if kept is None or total < top:
            top, kept = total, copy.deepcopy(model.state_dict())
        metrics["kept"] = sum(float(value.sum()) for value in kept.values())
        """),
    part("state: kept weights", "state_dict of the first epoch", start="kept = None", ended="""
        if kept is None:
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        metrics["kept"] = sum(float(value.sum()) for value in kept.values())
        """),
    part("state: kept weights", "anchor in the loss", prepared="anchor = [p.detach().clone() for p in model.parameters()]",
         loss="loss = loss + 0.1 * sum((p - q).pow(2).sum() for p, q in zip(model.parameters(), anchor))",
         ended="anchor = [p.detach().clone() for p in model.parameters()]"),
    part("state: kept weights", "tensor buffer", prepared="memory = torch.zeros(3)", ended='memory[epoch] = loss.detach()\nmetrics["kept"] = float(memory.sum())'),
    part("state: kept weights", "momentum by hand", prepared="slow = [torch.zeros_like(p) for p in model.parameters()]", step="""
        with torch.no_grad():
            for p, v in zip(model.parameters(), slow):
                v.mul_(0.9).add_(p.grad)
                p.sub_(v * rate)
        """),
    part("state: kept weights", "best rolled back", start="top, kept = math.inf, None", ended="""
        if total < top:
            top, kept = total, copy.deepcopy(model.state_dict())
        else:
            model.load_state_dict(kept)
        """),
    part("state: kept weights", "first weights, fixed", prepared="first = copy.deepcopy(model.state_dict())",
         ended='metrics["kept"] = sum(float((p.detach() - q).abs().sum()) for p, q in zip(model.parameters(), first.values()))'),
)  # fmt: skip

SET_LATER = (
    part("state: weights set after prepare_model", "load_state_dict", top="CHECKPOINT = [0.1, -0.2, 0.3]", prepared="""
        state = model.state_dict()
        model.load_state_dict({name: torch.full_like(value, CHECKPOINT[place % 3]) for place, (name, value) in enumerate(state.items())})
        """),
    part("state: weights set after prepare_model", "apply(init)", top="""
        def init(module):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.3)
                nn.init.zeros_(module.bias)
        """, prepared="model.apply(init)"),
    part("state: weights set after prepare_model", "no_grad", prepared="with torch.no_grad():\n    model[0].weight.fill_(0.1)\n    model[2].bias.zero_()"),
    part("state: weights set after prepare_model", "data", prepared="model[0].weight.data = torch.full_like(model[0].weight, 0.1)"),
    part("state: weights set after prepare_model", "xavier in a loop", prepared="for p in model.parameters():\n    if p.dim() > 1:\n        nn.init.xavier_uniform_(p)"),
    part("state: weights set after prepare_model", "scaled by a hyperparameter", {"gain": "0.5 | 1.0 | 2.0"},
         prepared='with torch.no_grad():\n    model[0].weight.mul_(config["gain"])'),
    part("state: groups changed after prepare_optimizer", "lr", scheduler='optimizer.param_groups[0]["lr"] = rate * 0.5',
         ended='optimizer.param_groups[0]["lr"] *= 0.5\nmetrics["kept"] = optimizer.param_groups[0]["lr"]'),
    part("state: groups changed after prepare_optimizer", "momentum", scheduler='optimizer.param_groups[0]["momentum"] = 0.5',
         ended='optimizer.param_groups[0]["momentum"] *= 0.5'),
)  # fmt: skip

UNPREPARED = (
    part("state: unprepared optimizer", "SGD with momentum", optimizer="optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)"),
    part("state: unprepared optimizer", "Adam", optimizer="optimizer = torch.optim.Adam(model.parameters(), lr=rate)"),
    part("state: unprepared optimizer", "AdamW in groups", optimizer='optimizer = torch.optim.AdamW([{"params": [p], "lr": rate * (1 + k)} for k, p in enumerate(model.parameters())])'),
    part("state: unprepared scheduler", "ExponentialLR", scheduler="scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)",
         ended='metrics["kept"] = optimizer.param_groups[0]["lr"]\nscheduler.step()'),
    part("state: unprepared scheduler", "LambdaLR", scheduler="scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5 ** n)",
         ended='scheduler.step()\nmetrics["kept"] = scheduler.get_last_lr()[0]'),
    part("state: unprepared scheduler", "StepLR", scheduler="scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)", stepped="scheduler.step()"),
    part("state: unprepared scheduler", "both unprepared", optimizer="optimizer = torch.optim.SGD(model.parameters(), lr=rate)",
         scheduler="scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)",
         ended='metrics["kept"] = optimizer.param_groups[0]["lr"]\nscheduler.step()'),
    part("state: unprepared scheduler", "own class", top="""
        class Decay:
            def __init__(self, optimizer, factor):
                self.optimizer, self.factor, self.count = optimizer, factor, 0
                self.base = optimizer.param_groups[0]["lr"]

            def step(self):
                self.count += 1
                for group in self.optimizer.param_groups:
                    group["lr"] = self.base * self.factor ** self.count
        """, scheduler="decay = Decay(optimizer, 0.5)", ended='decay.step()\nmetrics["kept"] = optimizer.param_groups[0]["lr"]'),
    part("state: unprepared scheduler", "warm-up by hand", start="num_steps = 0", stepped="""
        num_steps += 1
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, num_steps / 5)
        """),
)  # fmt: skip

AVERAGES = (
    part("state: averaged model", "deepcopy", prepared="shadow = copy.deepcopy(model)", stepped="""
        with torch.no_grad():
            for kept, new in zip(shadow.parameters(), model.parameters()):
                kept.mul_(0.9).add_(new, alpha=0.1)
        """, ended='metrics["kept"] = shadow(INPUTS).mean().item()'),
    part("state: averaged model", "AveragedModel", prepared="shadow = torch.optim.swa_utils.AveragedModel(model)", stepped="shadow.update_parameters(model)",
         ended='metrics["kept"] = shadow(INPUTS).mean().item()'),
    part("state: averaged model", "AveragedModel with decay", prepared="shadow = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))",
         stepped="shadow.update_parameters(model)", ended='metrics["kept"] = shadow(INPUTS).mean().item()'),
    part("state: averaged model", "class of one's own", top="""
        class EMA:
            def __init__(self, model, decay):
                self.decay, self.num = decay, 0
                self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

            def update(self, model):
                self.num += 1
                for name, p in model.named_parameters():
                    self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p.detach()
        """, prepared="ema = EMA(model, 0.9)", stepped="ema.update(model)", ended='metrics["kept"] = sum(float(v.sum()) for v in ema.shadow.values()) + ema.num'),
    part("state: averaged model", "teacher in the loss", prepared="teacher = copy.deepcopy(model)", loss="loss = loss + 0.5 * F.mse_loss(out, teacher(a).detach())", stepped="""
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), model.parameters()):
                slow.lerp_(fast, 0.2)
        """),
    part("state: averaged model", "target network by load_state_dict", prepared="target = copy.deepcopy(model)", loss="loss = loss + 0.5 * F.mse_loss(out, target(a).detach())",
         ended="if epoch % 2 == 0:\n    target.load_state_dict(model.state_dict())"),
)  # fmt: skip

OBJECTS = (
    part("state: own object", "meter", top="""
        class Meter:
            def __init__(self):
                self.sum, self.count = 0.0, 0

            def update(self, value, n=1):
                self.sum += value * n
                self.count += n

            @property
            def average(self):
                return self.sum / self.count
        """, start="meter = Meter()", stepped="meter.update(loss.item())", ended='metrics["kept"] = meter.average'),
    part("state: own object", "metric with reset and tensors", top="""
        class Error:
            def __init__(self):
                self.total, self.count = torch.zeros(()), torch.zeros(())

            def update(self, out, b):
                self.total += (out - b).abs().sum().detach()
                self.count += b.numel()

            def compute(self):
                return (self.total / self.count).item()
        """, start="error = Error()", stepped="error.update(out, b)", ended='metrics["kept"] = error.compute()'),
    part("state: own object", "early stopping", top="""
        class EarlyStopping:
            def __init__(self, patience):
                self.patience, self.best, self.bad = patience, math.inf, 0

            def __call__(self, value):
                self.bad = 0 if value < self.best - 0.5 else self.bad + 1
                self.best = min(self.best, value)
                return self.bad >= self.patience
        """, start="stopper = EarlyStopping(2)", ended="""
        metrics["kept"] = stopper.bad
        if stopper(total):
            trial.report(**metrics)
            break
        """),
    part("state: own object", "dataclass", top="""
        @dataclasses.dataclass
        class Progress:
            steps: int = 0
            losses: list = dataclasses.field(default_factory=list)
        """, start="progress = Progress()", stepped="progress.steps += 1\nprogress.losses.append(loss.item())",
         ended='metrics["kept"] = sum(progress.losses) / progress.steps'),
    part("state: own object", "__slots__", top="""
        class Tally:
            __slots__ = ("total", "count")

            def __init__(self):
                self.total, self.count = 0.0, 0
        """, start="tally = Tally()", stepped="tally.total += loss.item()\ntally.count += 1", ended='metrics["kept"] = tally.total / tally.count'),
    part("state: own object", "trainer that owns everything", top="""
        class Trainer:
            def __init__(self, config):
                self.config, self.best, self.history = config, math.inf, []

            def note(self, value):
                self.history.append(value)
                self.best = min(self.best, value)
        """, start="trainer = Trainer(config)", ended='trainer.note(total)\nmetrics["kept"] = trainer.best + len(trainer.history)'),
    part("state: own object", "replay buffer", top="""
        class Replay:
            def __init__(self, size):
                self.items, self.size, self.position = [], size, 0

            def push(self, item):
                if len(self.items) < self.size:
                    self.items.append(None)
                self.items[self.position] = item
                self.position = (self.position + 1) % self.size
        """, start="replay = Replay(5)", stepped="replay.push(loss.item())", ended='metrics["kept"] = sum(replay.items) + replay.position'),
    part("state: own object", "statistics of the inputs", top="""
        class Normalizer:
            def __init__(self):
                self.mean, self.count = torch.zeros(4), 0

            def __call__(self, a):
                self.count += len(a)
                self.mean = self.mean + (a.mean(0) - self.mean) * len(a) / self.count
                return a - self.mean
        """, start="normalizer = Normalizer()", batch="a = normalizer(a)"),
    part("state: own object", "unprepared module with buffers", prepared="norm = nn.BatchNorm1d(4, affine=False)", batch="norm.train()\na = norm(a)",
         ended='metrics["kept"] = float(norm.running_mean.sum())'),
    part("state: own object", "GradScaler of one's own", top="""
        class Scaler:
            def __init__(self):
                self.scale, self.good = 8.0, 0

            def update(self):
                self.good += 1
                if self.good % 3 == 0:
                    self.scale *= 2
        """, start="scaler = Scaler()", backward="(loss * scaler.scale).backward()", gradients="for p in model.parameters():\n    p.grad /= scaler.scale",
         stepped="scaler.update()", ended='metrics["kept"] = scaler.scale'),
)  # fmt: skip

DATA_POSITION = (
    part("state: position in the data", "iterator over epochs", scheduler="batches = itertools.cycle([(INPUTS[k : k + 2], TARGETS[k : k + 2]) for k in (0, 2, 4, 6)])",
         batch="a, b = next(batches)"),
    part("state: position in the data", "iterator of a list", start="scales = iter([1.0, 0.5, 0.25, 0.125, 2.0, 3.0, 4.0])", batch="a = a * next(scales)"),
    part("state: position in the data", "generator", top="""
        def endless():
            k = 0
            while True:
                yield 1.0 / (1 + k)
                k += 1
        """, start="scales = endless()", batch="a = a * next(scales)"),
    part("state: position in the data", "second loader", prepared="extra = trial.prepare_data_loader(DATA, batch_size=2)\nstream = iter(extra)", batch="""
        try:
            more, _ = next(stream)
        except StopIteration:
            stream = iter(extra)
            more, _ = next(stream)
        a = a + 0.1 * more.mean()
        """),
    part("state: position in the data", "curriculum", start="difficulty = 0.1", batch="a = a * difficulty", ended="difficulty = min(1.0, difficulty + 0.3)"),
    part("state: position in the data", "order drawn once and walked", start="order, at = torch.randperm(8), 0", batch="""
        chosen = order[at % 8]
        at += 3
        a = a + INPUTS[chosen]
        """),
    part("state: position in the data", "itertools.count", start="counter = itertools.count()", batch="a = a / (1 + next(counter))"),
    part("state: position in the data", "zip", start="pairs = zip(range(9), range(9, 18))", batch="a = a * sum(next(pairs)) / 9"),
)  # fmt: skip

CLOSURES = (
    part("state: closures and globals", "nonlocal", prepared="""
        seen = 0.0
        def note(value):
            nonlocal seen
            seen += value
            return seen
        """, ended='metrics["kept"] = note(total)'),
    part("state: closures and globals", "factory of closures", top="""
        def make_counter():
            count = 0

            def add():
                nonlocal count
                count += 1
                return count

            return add
        """, start="add = make_counter()", stepped="number = add()", loss="loss = loss * 1.0", ended='metrics["kept"] = number'),
    part("state: closures and globals", "global", top="SEEN_SO_FAR = 0", start="global SEEN_SO_FAR\nSEEN_SO_FAR = 0", stepped="SEEN_SO_FAR += 1",
         ended='metrics["kept"] = SEEN_SO_FAR'),
    part("state: closures and globals", "list of the module", top="HISTORY = []", start="HISTORY.clear()", ended='HISTORY.append(total)\nmetrics["kept"] = sum(HISTORY)'),
    part("state: closures and globals", "class attribute", top="class Kept:\n    count = 0", start="Kept.count = 0", stepped="Kept.count += 1", ended='metrics["kept"] = Kept.count'),
    part("state: closures and globals", "default argument", prepared="def note(value, kept=[]):\n    kept.append(value)\n    return sum(kept)", ended='metrics["kept"] = note(total)'),
    part("state: closures and globals", "bound method", start="losses = []\nadd = losses.append", ended='add(total)\nmetrics["kept"] = sum(losses)'),
    part("state: closures and globals", "partial", start="losses = []\nadd = functools.partial(list.append, losses)", ended='add(total)\nmetrics["kept"] = sum(losses)'),
    part("state: closures and globals", "lru_cache", prepared="@functools.lru_cache\ndef first(key):\n    return counts.pop()\ncounts = [3.0, 2.0, 1.0]",
         ended='metrics["kept"] = first(epoch // 2)'),
)  # fmt: skip

OWN_RANDOMNESS = (
    part("state: own generator", "torch.Generator", start="dice = torch.Generator().manual_seed(1)", batch="a = a + 0.1 * torch.randn(a.shape, generator=dice)"),
    part("state: own generator", "NumPy", start="dice = np.random.default_rng(1)", batch="a = a * float(dice.random())"),
    part("state: own generator", "random.Random", start="dice = random.Random(1)", batch="a = a * dice.random()"),
    part("state: own generator", "RandomState", start="dice = np.random.RandomState(1)", ended='metrics["kept"] = float(dice.rand())'),
)  # fmt: skip

UNCARRIED = (
    part("state: cannot be carried", "file", start="file = io.StringIO()", ended='file.write("x" * 5)\nmetrics["kept"] = file.tell()'),
    part("state: cannot be carried", "temporary file", top="import tempfile", start='file = tempfile.TemporaryFile("w+")',
         ended='file.write("x" * 5)\nmetrics["kept"] = file.tell()'),
    part("state: cannot be carried", "csv.writer", start="stream = io.StringIO()\nwriter = csv.writer(stream)",
         ended='writer.writerow([epoch, f"{total:.3f}"])\nmetrics["kept"] = len(stream.getvalue())'),
    part("state: cannot be carried", "queue", top="import queue", start="line = queue.SimpleQueue()", ended='line.put(total)\nmetrics["kept"] = line.qsize()'),
    part("state: cannot be carried", "ExitStack", start="stack = contextlib.ExitStack()\ncalls = []",
         ended='stack.callback(calls.append, 1)\nmetrics["kept"] = len(stack._exit_callbacks)'),
    part("state: cannot be carried", "coroutine by send", top="""
        def averaging():
            total, count, mean = 0.0, 0, None
            while True:
                total += yield mean
                count += 1
                mean = total / count
        """, start="average = averaging()\nnext(average)", ended='metrics["kept"] = average.send(total)'),
    part("state: cannot be carried", "hook with state", prepared="""
        seen = []
        model[0].register_forward_hook(lambda module, given, out: seen.append(float(out.sum())))
        """, ended='metrics["kept"] = len(seen)'),
    part("state: cannot be carried", "array module", top="import array", start='losses = array.array("d")', ended='losses.append(total)\nmetrics["kept"] = sum(losses)'),
    part("state: cannot be carried", "bytearray and memoryview", start="room = bytearray(8)\nview = memoryview(room)", ended='view[epoch] = epoch + 1\nmetrics["kept"] = sum(room)'),
    part("state: cannot be carried", "OrderedDict of best epochs", start="ranks = collections.OrderedDict()", ended="""
        ranks[epoch] = total
        ranks.move_to_end(min(ranks, key=lambda number: ranks[number]))
        metrics["kept"] = float(next(reversed(ranks))) + len(ranks)
        """),
    part("state: cannot be carried", "heap", start="heap = []", ended='heapq.heappush(heap, (round(epoch * 0.1, 3), epoch))\nmetrics["kept"] = len(heap)'),
    part("state: cannot be carried", "Decimal and Fraction", start="exact, part = decimal.Decimal(0), fractions.Fraction(0)",
         ended='exact += decimal.Decimal("0.1")\npart += fractions.Fraction(1, 3)\nmetrics["kept"] = float(exact) + float(part)'),
    part("state: cannot be carried", "loop counted by itself", start="at = 0", count="count = range(3)", ended='at += 2\nmetrics["kept"] = at'),
    part("state: cannot be carried", "state in the trial's function", ended='train.count = getattr(train, "count", 0) * bool(epoch) + 1\nmetrics["kept"] = train.count'),
    part("state: cannot be carried", "weights tied by hand", prepared="tied = {id(p): k for k, p in enumerate(model.parameters())}",
         ended='metrics["kept"] = sum(tied[id(p)] for p in model.parameters())'),
)  # fmt: skip

LOOP_STATE = (
    *NUMBERS,
    *WEIGHTS,
    *SET_LATER,
    *UNPREPARED,
    *AVERAGES,
    *OBJECTS,
    *DATA_POSITION,
    *CLOSURES,
    *OWN_RANDOMNESS,
    *UNCARRIED,
)
