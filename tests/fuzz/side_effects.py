"""Code that does more than compute: functions of autograd that keep and write, threads, memory, text that is read back."""

from __future__ import annotations

from tests.fuzz.slots import Part, part

_SCALES = {"scale": "1.0 | 0.5 | 2.0"}


def _function(name: str, forward: str, backward: str = "pass", /, **code: str) -> Part:
    """Make a feature with a function that hands its argument on, and does something besides."""
    top = f"""class Keep(torch.autograd.Function):
    num_calls = 0

    @staticmethod
    def forward(ctx, x):
        {forward}
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        {backward}
        return grad
"""
    before = f"{code.pop('top')}\n\n" if "top" in code else ""
    return part("autograd.Function", name, top=before + top, forward="out = Keep.apply(out)", **code)


_ASSIGN = """
    class Assign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, scratch, value, index):
            ctx.index = index
            scratch.data[index] = value
            return scratch

        @staticmethod
        def backward(ctx, grad):
            return grad, grad[ctx.index], None
    """
_GLOBAL = "KEPT = torch.zeros(1, dtype=torch.float64)"
_REPORT = 'metrics["kept"] = KEPT.sum().item()'

FUNCTIONS = (
    part("autograd.Function", "stages of a solver", top=_ASSIGN, forward="""
        stages = torch.empty(*out.shape, 3, dtype=out.dtype)
        stages = Assign.apply(stages, out * 1.0, (..., 0))
        for i in (1, 2):
            y = out + torch.sum(stages[..., :i] * torch.tensor([0.1, 0.2])[:i], dim=-1)
            stages = Assign.apply(stages, torch.tanh(y), (..., i))
        out = out + torch.sum(stages * torch.tensor([0.1, 0.2, 0.3]), dim=-1)
        """),
    _function("writes through data of an attribute", "HOME.kept.data.copy_(x.detach().mean(0))", top="HOME = types.SimpleNamespace()",
              start="HOME.kept = torch.zeros(1)", loss="loss = loss * (1 + HOME.kept.abs().sum())"),
    _function("writes into a global tensor", "KEPT.copy_(x.detach().mean(0))", top=_GLOBAL, start="KEPT.zero_()",
              loss="loss = loss * (1 + KEPT.abs().sum())", ended=_REPORT),
    _function("writes on the way back", "pass", "KEPT.data.copy_(grad.mean(0))", top=_GLOBAL, start="KEPT.zero_()", ended=_REPORT),
    _function("lists on the way back", "pass", "SLOPES.append(grad.mean().item())", top="SLOPES = []", start="SLOPES.clear()",
              ended='metrics["kept"] = SLOPES[-1] + len(SLOPES)'),
    part("autograd.Function", "apply under a name", top="""
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                return grad * 2 * ctx.saved_tensors[0]

        square = Square.apply
        """, forward="out = square(out)"),
    _function("counts its calls", "Keep.num_calls += 1\n        x = x * (1 + 0.1 * Keep.num_calls)", start="Keep.num_calls = 0"),
    _function("keeps in a dictionary", 'LATEST["mean"] = x.detach().mean()', top="LATEST = {}", ended='metrics["kept"] = LATEST["mean"].item()'),
    _function("fills an array", "ARRAY[:] = x.detach().numpy().mean()", top="ARRAY = np.zeros(1)", start="ARRAY[:] = 0",
              ended='metrics["kept"] = float(ARRAY.sum())'),
)  # fmt: skip


def _thread(name: str, work: str, /, **code: str) -> Part:
    """Make a feature whose thread writes into `kept`."""
    lines = f"kept = {{}}\n{work}\nthread.start()\nthread.join()"
    return part("threads", name, stepped=lines, ended='metrics["kept"] = kept.get("it", 0.0)', **code)


THREADS = (
    _thread("class of its own", "thread = Work(loss.detach(), kept)", top="""
        class Work(threading.Thread):
            def __init__(self, tensor, kept):
                super().__init__()
                self.tensor, self.kept = tensor, kept

            def run(self):
                self.kept["it"] = self.tensor.item()
        """),
    _thread("swallows errors", "thread = threading.Thread(target=note, args=(loss.detach(), kept))", top="""
        def note(tensor, kept):
            with contextlib.suppress(Exception):
                kept["it"] = tensor.item()
        """),
    _thread("branches", "thread = threading.Thread(target=lambda: kept.update(it=2.0 if loss.item() > 0.4 else 1.0))"),
    _thread("timer", "thread = threading.Timer(0, lambda: kept.update(it=float(loss)))"),
    part("threads", "pool whose errors nobody asks for", stepped="""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(lambda: loss.item())
            kept = 0.0 if future.exception() else future.result()
        """, ended='metrics["kept"] = kept'),
    part("threads", "pool of the module", {"flag": "True | False"}, top="POOL = ThreadPoolExecutor(1)",
         stepped="future = POOL.submit(lambda: loss.item())", ended='metrics["kept"] = future.result() * (2 if config["flag"] else 1)'),
    part("threads", "writes in place", start="kept = torch.zeros(1)", stepped="""
        thread = threading.Thread(target=lambda: kept.add_(loss.detach()))
        thread.start()
        thread.join()
        """, ended='metrics["kept"] = kept.item()'),
    part("threads", "backward", backward="thread = threading.Thread(target=lambda: loss.backward())\nthread.start()\nthread.join()"),
)  # fmt: skip


def _memory(name: str, code: str) -> Part:
    return part(
        "memory", name, stepped=f"kept = out.detach().clone()\n{code}", ended='metrics["kept"] = kept.sum().item()'
    )


MEMORY = (
    _memory("resize_ to more", "kept.resize_(8, 1)\nkept[4:] = 1.0"),
    _memory("resize_ to less", "kept.resize_(2, 1)"),
    _memory("resize_ of a view", "kept = kept[1:]\nkept.resize_(2, 1)"),
    _memory("resize_ beside a view", "kept, whole = kept.view(-1), kept\nwhole.resize_(2, 1)\nwhole.mul_(3)"),
    _memory("resize_as_", "kept.resize_as_(torch.zeros(2, 1))"),
    _memory("as_strided_", "kept.as_strided_((2,), (1,), 1)"),
)


def _text(name: str, code: str, top: str = "") -> Part:
    """Make a feature that reads back the text in which it wrote a hyperparameter."""
    return part("read back", name, _SCALES, top=top, start=code, ended='metrics["kept"] = weigh(text)')


_HANDLER = """
    class Kept(logging.Handler):
        lines = []

        def emit(self, record):
            self.lines.append(record.getMessage())
    """
_REDIRECTED = "stream = io.StringIO()\nwith contextlib.redirect_stdout(stream):\n    {}\ntext = stream.getvalue()"

TEXT = (
    _text("redirected print", _REDIRECTED.format('print("scale", config["scale"])')),
    _text("redirected line", _REDIRECTED.format("""sys.stdout.write(f"scale {config['scale']}")""")),
    _text("logged to a stream", 'text = logged(config["scale"])'),
    _text("logged to a handler", """
logger = logging.Logger("program")
logger.addHandler(Kept())
logger.info("scale %s", config["scale"])
text = Kept.lines[-1]
""", _HANDLER),
    _text("pprint", 'text = pprint.pformat([config["scale"]])'),
    _text("reprlib", 'text = reprlib.repr(config["scale"])'),
)  # fmt: skip


def _config(name: str, expression: str) -> Part:
    keys = {"sizes": "(4,) | (1, 2)", "part": '{"a": 1.0} | {"a": 2.0}'}
    return part("configuration", name, keys, start=f"kept = {expression}", ended='metrics["kept"] = kept')


CONFIGURATION = (
    _config("== a tuple", '0.3 if config["sizes"] == (1, 2) else 0.6'),
    _config("!= a tuple", '0.3 if config["sizes"] != (1, 2) else 0.6'),
    _config("is a dict", '[isinstance(config, dict), isinstance(config["part"], dict)].count(True)'),
    _config("deepcopy", 'copy.deepcopy(config)["part"]["a"]'),
    _config("a changed copy", '{**copy.deepcopy(config)["part"], "b": 1}["a"]'),
    _config("text of a section", "weigh(str(dict(config)))"),
    _config("pickle", 'pickle.loads(pickle.dumps(config))["part"]["a"]'),
)

SIDE_EFFECTS = (*FUNCTIONS, *THREADS, *MEMORY, *TEXT, *CONFIGURATION)
