"""Constructs that steer: loops, exceptions, counters; and such as pass a value on before something is done with it."""

from __future__ import annotations

from tests.fuzz.constructs import Construct, construct


def _raising(name: str, needs: str, attempt: str, error: str) -> Construct:
    """Make a construct that raises in some trials and goes on in the handler."""
    return construct("exceptions", name, needs, f"try:\n    {attempt}\nexcept{error}:\n    $r = 0.7")


EXCEPTIONS = (
    _raising("math.log of a negative", "number", "$r = math.log($v - 0.9)", " ValueError"),
    _raising("math.sqrt of a negative", "number", "$r = math.sqrt(0.9 - $v)", " ValueError"),
    _raising("math.exp overflow", "number", "$r = math.exp(900 * $v) * 0 + 0.2", " OverflowError"),
    _raising("math.exp ArithmeticError", "number", "$r = math.exp(900 * $v) * 0 + 0.2", " ArithmeticError"),
    _raising("imported exp overflow", "number", "$r = plain_exp(900 * $v) * 0 + 0.2", " OverflowError"),
    _raising("** overflow", "number", "$r = (10.0 ** ($v * 400)) * 0 + 0.3", " OverflowError"),
    _raising("division by zero", "number shown", "$r = 0.1 / ($v - $a) * 0 + 0.2", " ZeroDivisionError"),
    _raising("division by zero, bare", "number shown", "$r = 0.1 / ($v - $a) * 0 + 0.2", ""),
    _raising("modulo zero", "number shown", "$r = 0.1 % ($v - $a) * 0 + 0.2", " Exception"),
    _raising("int of text", "text", "$r = int($v) / 20", " ValueError"),
    _raising("float of text", "text", "$r = float($v) / 20", " (TypeError, ValueError)"),
    _raising("list index", "number whole", "$r = [0.1, 0.2][$v]", " IndexError"),
    _raising("assert", "any -tensor", "assert $v != $a\n    $r = 0.3", " AssertionError"),
    _raising("own raise", "any -tensor", "if $v == $a:\n        raise Unlucky($v)\n    $r = 0.3", " Unlucky"),
    _raising("attribute", "any -tensor", "$r = len($v.upper()) / 10", " AttributeError"),
    _raising("TypeError of +", "any -tensor", "$r = len('a' + $v) / 10", " TypeError"),
    _raising("len", "any -tensor -class", "$r = len($v) / 10", " TypeError"),
    _raising("call", "any -tensor -class -function", "$r = $v(1)", " TypeError"),
    _raising("iterate", "any -tensor", "$r = len(list($v)) / 10", " TypeError"),
    _raising("key", "key", "$r = {$a: 0.3}[$v]", " LookupError"),
    _raising("unpack", "tuple", "first$n, second$n = $v\n    $r = second$n / 10", " ValueError"),
    _raising("getattr", "text", "$r = getattr(nn, $v)()(torch.tensor(0.5)).item()", " AttributeError"),
    _raising("enum by value", "number", "$r = Mode($v).value / 10", " ValueError"),
    _raising("torch error", "number whole", "$r = torch.ones(6).view($v, 3).shape[0] / 10", " RuntimeError"),
    _raising(
        "cholesky", "number", "torch.linalg.cholesky(torch.eye(2) * ($v - 0.9))\n    $r = 0.3", " torch.linalg.LinAlgError"
    ),
    _raising("cholesky RuntimeError", "number", "torch.linalg.cholesky(torch.eye(2) * ($v - 0.9))\n    $r = 0.3", " RuntimeError"),
    _raising("inverse", "number shown", "torch.linalg.inv(torch.eye(2) * ($v - $a))\n    $r = 0.3", " RuntimeError"),
    _raising("solve", "number shown", "torch.linalg.solve(torch.eye(2) * ($v - $a), torch.ones(2))\n    $r = 0.3", ""),
    _raising("Bernoulli's range", "number", "torch.bernoulli(torch.ones(2) * $v * 0.9)\n    $r = 0.3", " RuntimeError"),
    _raising("finite or raise", "number", "$r = require_small($v)", " Unlucky"),
    construct("exceptions", "else and finally", "number", """
        count$n = 0
        try:
            $r = math.log($v - 0.9) * 0 + 0.2
        except ValueError:
            $r = 0.5
        else:
            count$n += 1
        finally:
            count$n += 1
        $r += 0.1 * count$n
        """),
    construct("exceptions", "suppress", "number", """
        $r = 0.7
        with contextlib.suppress(ValueError):
            $r = math.log($v - 0.9) * 0 + 0.2
        """),
    construct("exceptions", "retry", "number", """
        shift$n = 0.0
        while True:
            try:
                $r = math.log($v - 0.9 + shift$n) * 0 + 0.1 + shift$n
                break
            except ValueError:
                shift$n += 0.5
        """),
    construct("exceptions", "raised in some trials", "number -tensor", "if $v > 1.2:\n    raise ValueError('too large')\n$r = 0.3"),
    construct("exceptions", "division in some trials", "number shown", "$r = 0.3 / ($v - $a)"),
)  # fmt: skip

_SEEN = "seen$n = (torch.ones(3) * $v).mean().item()\n"
_BRANCHES = (
    construct("control", "assign in a branch", "number", _SEEN + """
$r, count$n = 0.2, 0
if seen$n > 0.9:
    $r = 0.1 + seen$n % 0.5
    count$n += 1
$r += count$n * 0.1
        """),
    construct("control", "both sides of a branch", "number", _SEEN + """
if seen$n > 0.9:
    $r = 0.1 + seen$n % 0.5
elif seen$n > 0.4:
    $r = 0.3
else:
    $r = 0.4
        """),
    construct("control", "attribute in a branch", "number", _SEEN + """
home$n = types.SimpleNamespace(best=0.1, count=1)
for factor$n in (1.0, 0.5, 2.0):
    if seen$n * factor$n > 0.7:
        home$n.best = 0.1 + seen$n % 0.5
        home$n.count += 1
$r = home$n.best + home$n.count * 0.05
        """),
    construct("control", "tensor in a branch", "number", _SEEN + """
kept$n, fresh$n = torch.zeros(2), torch.ones(2) * 0.3
if seen$n > 0.9:
    kept$n = fresh$n * 2
fresh$n.mul_(3)
$r = 0.1 + kept$n.mean().item()
        """),
    construct("control", "alias in a branch", "number", _SEEN + """
kept$n, fresh$n = torch.zeros(2), torch.ones(2) * 0.1
if seen$n > 0.9:
    kept$n = fresh$n
fresh$n.mul_(3)
$r = 0.1 + kept$n.mean().item()
        """),
    construct("control", "list in a branch", "number", _SEEN + """
rows$n = [0.1]
if seen$n > 0.9:
    rows$n.append(0.2)
$r = sum(rows$n)
        """),
    construct("control", "draw in a branch", "number", _SEEN + """
$r = 0.1
if seen$n > 0.9:
    $r = 0.1 + torch.rand(()).item() * 0.5
        """),
    construct("control", "array", "number", """
row$n = (torch.ones(3) * $v).numpy()
other$n = row$n[1:]
row$n[1] = 2.0
other$n += 1
$r = 0.1 + float(np.mean(row$n) + other$n.sum()) % 0.6
        """),
    construct("control", "index of an array", "number", """
order$n = (torch.arange(3) * (0.9 - $v)).argsort().numpy()
$r = 0.1 + 0.2 * np.arange(3)[order$n][0]
        """),
    construct("control", "text of a computed number", "number", _SEEN + "$r = 0.1 + float('%.2f' % seen$n) % 0.6"),
)  # fmt: skip

CONTROL = (
    *_BRANCHES,
    construct("control", "while", "number", "$r = 0.1\nwhile $r < $v / 3:\n    $r += 0.2"),
    construct("control", "while with break", "number", """
        $r = 0.0
        while True:
            $r += 0.1
            if $r * 3 > $v or $r > 0.9:
                break
        """),
    construct("control", "for with break", "number", """
        for step$n in range(6):
            if step$n * 0.3 > $v:
                break
        $r = 0.1 + step$n / 10
        """),
    construct("control", "for else", "any -tensor", """
        for item$n in ($a, $b):
            if item$n == $v:
                $r = 0.3
                break
        else:
            $r = 0.6
        """),
    construct("control", "for over range", "number whole", "$r = 0.1\nfor step$n in range($v):\n    $r += 0.1 * step$n"),
    construct("control", "if elif else", "number", """
        if $v < 0.4:
            $r = 0.2
        elif $v < 0.9:
            $r = 0.4
        else:
            $r = 0.6
        """),
    construct("control", "global counter", "number", "$r = count_up($v)"),
    construct("control", "nonlocal counter", "number", "$r = counter($v)"),
    construct("control", "global list", "any -tensor", "SEEN.append($v)\n$r = 0.3 if SEEN[-1] == $a else 0.6"),
    construct("control", "recursion", "number", "$r = descend($v)"),
    construct("control", "generator function", "number", "$r = sum(portions($v))"),
    construct("control", "list comprehension", "number", "$r = sum([0.1 * i for i in range(5) if i < $v * 2])"),
    construct("control", "return inside loop", "number", "$r = first_above($v)"),
    construct("control", "augmented", "number", "$r = 0.1\n$r += $v\n$r *= 0.5"),
    construct("control", "chained ternary", "number", "$r = 0.2 if $v < 0.4 else 0.4 if $v < 0.9 else 0.6"),
    construct("control", "default of a function", "number", "def scaled$n(by=$v):\n    return by * 0.5\n$r = scaled$n()"),
    construct("control", "keyword arguments", "number", "$r = combine(**{'x': $v, 'y': 0.5})"),
    construct("control", "dict of config", "any -tensor", "items$n = {'x': $v, 'y': 1}\n$r = 0.3 if dict(**items$n)['x'] == $a else 0.6"),
    construct("control", "truth of a list", "any -tensor", "$r = 0.3 if [item for item in [$v] if item == $a] else 0.6"),
    construct("control", "early return", "any -tensor", "$r = (lambda value: 0.3 if value == $a else 0.6)($v)"),
    construct("control", "with", "number", "with contextlib.nullcontext($v) as held$n:\n    $r = held$n * 0.5"),
    construct("control", "thread", "number", "$r = in_thread(lambda: $v * 0.5)"),
    construct("control", "branch in a thread", "number", "$r = in_thread(lambda: 0.3 if $v > 0.9 else 0.6)"),
    construct("control", "thread pool", "number", "$r = in_pool(lambda: math.sqrt($v + 1))"),
    construct("control", "torch.manual_seed", "number whole", "torch.manual_seed($v)\n$r = torch.rand(()).item()"),
    construct("control", "warnings", "number", "$r = warned($v)"),
    construct("control", "iter of a function", "number", "steps$n = iter([0.1, 0.3, 2.9])\n$r = next(s for s in steps$n if s * 2 > $v or s > 2)"),
    construct("control", "in thread is None", "alone", "$r = in_thread(lambda: 0.3 if $v is None else 0.6)"),
)  # fmt: skip

CONSTRUCTS_OF_FLOW = (*EXCEPTIONS, *CONTROL)

WRAPPERS = {
    "variable": "$v",
    "closure": "(lambda: $v)()",
    "default argument": "(lambda value=$v: value)()",
    "list": "[$v][0]",
    "tuple": "($v, 1)[0]",
    "dictionary": "{'x': $v}['x']",
    "dict of items": "dict([('x', $v)])['x']",
    "attribute": "Holder($v).value",
    "property": "Holder($v).shown",
    "class attribute": "type('Made', (), {'value': $v}).value",
    "namespace": "types.SimpleNamespace(value=$v).value",
    "dataclass": "Setting($v).value",
    "dataclasses.replace": "dataclasses.replace(Setting(0), value=$v).value",
    "namedtuple": "Pair($v, 1).first",
    "partial": "functools.partial(same, $v)()",
    "deepcopy": "copy.deepcopy($v)",
    "copy": "copy.copy($v)",
    "copied dictionary": "copy.deepcopy({'x': $v})['x']",
    "generator": "next(item for item in [$v])",
    "comprehension": "[item for item in [$v]][0]",
    "unpacking": "(lambda first, *rest: first)(*[$v, 1])",
    "keywords": "(lambda **given: given['value'])(value=$v)",
    "conditional": "$v if 1 else 0",
    "chain map": "collections.ChainMap({'x': $v}, {})['x']",
    "deque": "collections.deque([$v])[0]",
    "getattr": "getattr(Holder($v), 'value')",
    "setattr": "with_attribute($v).value",
    "itemgetter": "operator.itemgetter(0)([$v])",
    "map": "list(map(same, [$v]))[0]",
    "zip": "next(zip([$v], [1]))[0]",
    "reversed": "next(reversed([$v]))",
    "merged dictionaries": "({'x': 0} | {'x': $v})['x']",
    "whole config": "{**config, 'y': $v}['y']",
}
"""Ways to pass a value on that leave it as it is."""

READS = (
    'config.get("x")',
    'trial.config["x"]',
    'dict(config)["x"]',
    '{**config}["x"]',
    'next(value for key, value in config.items() if key == "x")',
    'copy.deepcopy(dict(config))["x"]',
    "types.SimpleNamespace(**config).x",
    "(lambda x, **others: x)(**config)",
    'collections.ChainMap({}, config)["x"]',
    'operator.itemgetter("x")(config)',
    '[config[key] for key in sorted(config) if key == "x"][0]',
    '{key: value for key, value in config.items() if key != "lr"}["x"]',
)
"""Other ways to read `config["x"]`."""
