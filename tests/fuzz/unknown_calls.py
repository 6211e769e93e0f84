"""Calls of code that Headwater need not know, each with a state that the call reads or changes.

A call is three texts: an expression that makes the state, statements that do something with the state `$s` and a number
`$v`, and an expression that reads a number off the state. `tests/fuzz/unknown_code.py` puts them into programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """Code with a state."""

    family: str
    name: str
    setup: str
    act: str
    read: str
    top: str = ""
    """Definitions outside of the training function."""


def _calls(family: str, rows: dict[str, tuple[str, str, str]]) -> tuple[UnknownCall, ...]:
    return tuple(
        UnknownCall(family, name, setup, dedent(act).strip("\n"), read) for name, (setup, act, read) in rows.items()
    )


CHANGES_ITS_ARGUMENT = _calls(
    "library that changes its argument",
    {
        "heapq.heappush": ("[]", "heapq.heappush($s, $v)", "min($s, default=0.0) + len($s)"),
        "heapq.heapreplace": ("[0.1, 5.0]", "heapq.heapreplace($s, $v)", "sum($s)"),
        "heapq.heappushpop": ("[0.6, 5.0]", "heapq.heappushpop($s, $v)", "sum($s)"),
        "heapq.heapify": ("[3.0, 2.0]", "$s.append($v)\nheapq.heapify($s)", "$s[0]"),
        "bisect.insort": ("[0.3, 0.9, 1.7]", "bisect.insort($s, $v)", "$s[1] + len($s)"),
        "bisect.insort_left with a key": ("[0.3]", "bisect.insort_left($s, $v, key=lambda one: -one)", "$s[0]"),
        "random.shuffle": ("[1.0, 2.0, 3.0, 4.0]", "$s[0] = $v\nrandom.Random(3).shuffle($s)", "$s[0] + 2 * $s[1]"),
        "operator.setitem": ("[0.0, 0.0]", "operator.setitem($s, 0, $v)", "$s[0]"),
        "operator.iadd": ("[1.0]", "operator.iadd($s, [$v])", "sum($s)"),
        "operator.iconcat": ("[1.0]", "operator.iconcat($s, [$v])", "sum($s)"),
        "list.append": ("[]", "list.append($s, $v)", "sum($s)"),
        "list.extend": ("[]", "list.extend($s, [$v, 1.0])", "sum($s)"),
        "list.insert": ("[1.0]", "list.insert($s, 0, $v)", "$s[0]"),
        "list.__setitem__": ("[1.0]", "list.__setitem__($s, 0, $v)", "$s[0]"),
        "dict.update": ("{}", "dict.update($s, x=$v)", '$s.get("x", 0.0)'),
        "dict.setdefault": ("{}", 'dict.setdefault($s, "x", []).append($v)', 'sum($s.get("x", []))'),
        "dict.__setitem__": ("{}", 'dict.__setitem__($s, "x", $v)', '$s.get("x", 0.0)'),
        "set.add of a rounded number": ("set()", "set.add($s, round($v, 1))", "sum(sorted($s))"),
        "deque.appendleft": ("collections.deque(maxlen=2)", "collections.deque.appendleft($s, $v)", "sum($s)"),
        "deque.rotate": ("collections.deque([1.0, 2.0])", "$s.append($v)\n$s.rotate(1)", "$s[0]"),
        "Counter.update": ("collections.Counter()", '$s.update({"x": $v})', '$s["x"]'),
        "Counter.subtract": ("collections.Counter()", '$s.subtract({"x": $v})', '$s["x"]'),
        "setattr": ("types.SimpleNamespace(x=0.0)", 'setattr($s, "x", $s.x + $v)', "$s.x"),
        "object.__setattr__": ("types.SimpleNamespace(x=0.0)", 'object.__setattr__($s, "x", $v)', "$s.x"),
        "struct.pack_into": ("bytearray(8)", 'struct.pack_into("d", $s, 0, $v)', 'struct.unpack("d", $s)[0]'),
        "array.array.append": ('array.array("d")', "$s.append($v)", "sum($s)"),
        "csv.writer.writerow": ("io.StringIO()", "csv.writer($s).writerow([$v])", "weigh($s.getvalue())"),
        "json.dump": ("io.StringIO()", "json.dump($v, $s)", "weigh($s.getvalue())"),
        "pickle.dump": ("io.BytesIO()", "pickle.dump(float($v), $s)", 'weigh($s.getvalue().decode("latin-1"))'),
        "print to a file": ("io.StringIO()", "print($v, file=$s)", "weigh($s.getvalue())"),
        "functools.reduce on a list": ("[]", "functools.reduce(lambda kept, one: kept.append(one) or kept, [$v], $s)", "sum($s)"),
        "map that appends": ("[]", "list(map($s.append, [$v, 1.0]))", "sum($s)"),
        "any of appends": ("[]", "any($s.append(one) for one in [$v, 2.0])", "sum($s)"),
        "accumulate into a dictionary": ("{}", "$s |= {len($s): $v}", "sum($s.values())"),
        "itertools.starmap": ("{}", "list(itertools.starmap($s.__setitem__, [(0, $v)]))", "sum($s.values())"),
    },
)  # fmt: skip

CHANGES_AN_ARRAY = _calls(
    "NumPy or torch function that writes",
    {
        "np.clip with positional out": ("np.array([0.2, 5.0])", "np.clip($s, 0.0, $v, $s)", "float($s.sum())"),
        "np.add.at": ("np.zeros(2)", "np.add.at($s, [0, 0], $v)", "float($s.sum())"),
        "np.nan_to_num without a copy": ("np.array([np.nan, 1.0])", "np.nan_to_num($s, copy=False, nan=$v)", "float($s.sum())"),
        "np.put": ("np.zeros(2)", "np.put($s, [1], $v)", "float($s.sum())"),
        "np.copyto": ("np.zeros(2)", "np.copyto($s, $v)", "float($s.sum())"),
        "np.place": ("np.zeros(2)", "np.place($s, $s < 1, [$v])", "float($s.sum())"),
        "np.putmask": ("np.zeros(2)", "np.putmask($s, $s < 1, $v)", "float($s.sum())"),
        "np.fill_diagonal": ("np.zeros((2, 2))", "np.fill_diagonal($s, $v)", "float($s.sum())"),
        "np.multiply with out": ("np.ones(2)", "np.multiply($s, $v, $s)", "float($s.sum())"),
        "ndarray.fill": ("np.zeros(2)", "$s.fill($v)", "float($s.sum())"),
        "ndarray.sort": ("np.array([3.0, 2.0])", "$s[0] = $v\n$s.sort()", "float($s[0])"),
        "ndarray.partition": ("np.array([3.0, 2.0, 1.0])", "$s[0] = $v\n$s.partition(1)", "float($s[1])"),
        "ndarray.itemset by index": ("np.zeros((2, 2))", "$s[1, 1] += $v", "float($s.sum())"),
        "np.random.Generator.shuffle": ("np.arange(4.0)", "$s[0] = $v\nnp.random.default_rng(1).shuffle($s)", "float($s[0])"),
        "view of an array": ("np.zeros(4)", "part = $s[1:3]\npart += $v", "float($s.sum())"),
        "np.lib.stride_tricks": ("np.zeros(2)", "np.lib.stride_tricks.as_strided($s)[0] = $v", "float($s.sum())"),
        "np.frombuffer": ("bytearray(16)", "np.frombuffer($s)[:] = $v", "float(np.frombuffer($s).sum())"),
        "F.relu in place": ("torch.tensor([-1.0, 2.0])", "$s.mul_($v)\nF.relu($s, inplace=True)", "float($s.sum())"),
        "F.batch_norm with running statistics": ("[torch.zeros(1), torch.ones(1)]", "F.batch_norm(torch.tensor([[1.0], [3.0]]) * $v, $s[0], $s[1], training=True)", "float($s[0].sum())"),
        "nn.init": ("torch.zeros(2)", "nn.init.constant_($s, $v)", "float($s.sum())"),
        "torch.add with out": ("torch.zeros(2)", "torch.add($s, $v, out=$s)", "float($s.sum())"),
        "index_put_": ("torch.zeros(2)", "$s.index_put_((torch.tensor([1]),), torch.tensor(float($v)))", "float($s.sum())"),
        "Tensor.numpy that is written": ("torch.zeros(2)", "$s.numpy()[0] = $v", "float($s.sum())"),
        "torch.from_numpy that is written": ("np.zeros(2)", "torch.from_numpy($s).add_($v)", "float($s.sum())"),
        "Tensor.apply_": ("torch.zeros(2)", "$s.apply_(lambda one: one + $v)", "float($s.sum())"),
        "setitem of a storage": ("torch.zeros(2)", "$s.view(-1)[1] = $v", "float($s.sum())"),
        "chunk that is written": ("torch.zeros(4)", "$s.chunk(2)[0].add_($v)", "float($s.sum())"),
        "unbind that is written": ("torch.zeros(2)", "for one in $s.unbind():\n    one.add_($v)", "float($s.sum())"),
        "masked_fill_": ("torch.zeros(2)", "$s.masked_fill_($s < 1, $v)", "float($s.sum())"),
        "parameters_to_vector and back": ("nn.Linear(1, 1)", "nn.utils.vector_to_parameters(torch.full((2,), float($v)), $s.parameters())", "float($s.weight.sum())"),
    },
)  # fmt: skip

VIEWS = _calls(
    "view or shallow copy",
    {
        "copy.copy of a nested list": ("[[0.0], 1]", "copy.copy($s)[0].append($v)", "sum($s[0])"),
        "MappingProxyType": ('{"x": [0.0]}', 'types.MappingProxyType($s)["x"].append($v)', 'sum($s["x"])'),
        "ChainMap": ("{}", 'collections.ChainMap($s, {"x": 1.0})["x"] = $v', '$s.get("x", 0.0)'),
        "ChainMap that is read": ('[{"x": 0.0}, {"y": 1.0}]', '$s[0]["x"] = $v\nchain = collections.ChainMap(*$s)', '$s[0]["x"]'),
        "dict.values": ('{"x": [0.0]}', "for one in $s.values():\n    one.append($v)", 'sum($s["x"])'),
        "dict copy": ('{"x": [0.0]}', '$s.copy()["x"].append($v)', 'sum($s["x"])'),
        "list slice": ("[[0.0], [1.0]]", "$s[:1][0].append($v)", "sum($s[0])"),
        "vars": ("types.SimpleNamespace(x=0.0)", 'vars($s)["x"] += $v', "$s.x"),
        "__dict__": ("types.SimpleNamespace(x=0.0)", "$s.__dict__.update(x=$v)", "$s.x"),
        "zip": ("[[0.0], [1.0]]", "for one, more in zip($s, [$v, 2.0]):\n    one.append(more)", "sum($s[0]) + sum($s[1])"),
        "enumerate": ("[0.0, 1.0]", "for place, one in enumerate($s):\n    $s[place] = one + $v", "sum($s)"),
        "reversed": ("[[0.0], [1.0]]", "next(reversed($s)).append($v)", "sum($s[1])"),
        "filter": ("[[0.0], [1.0]]", "next(filter(len, $s)).append($v)", "sum($s[0])"),
        "sorted": ("[[2.0], [1.0]]", "sorted($s)[0].append($v)", "sum($s[1])"),
        "max": ("[[2.0], [1.0]]", "max($s).append($v)", "sum($s[0])"),
        "itertools.chain": ("[[0.0], [1.0]]", "next(itertools.chain($s)).append($v)", "sum($s[0])"),
        "operator.itemgetter": ("[[0.0], [1.0]]", "operator.itemgetter(1)($s).append($v)", "sum($s[1])"),
        "operator.attrgetter": ("types.SimpleNamespace(x=[0.0])", 'operator.attrgetter("x")($s).append($v)', "sum($s.x)"),
        "getattr": ("types.SimpleNamespace(x=[0.0])", 'getattr($s, "x").append($v)', "sum($s.x)"),
        "dataclasses.replace": ("Setting([0.0])", "dataclasses.replace($s).value.append($v)", "sum($s.value)"),
        "namedtuple _replace": ("Pair([0.0], 1)", "$s._replace(second=2).first.append($v)", "sum($s.first)"),
        "UserList": ("collections.UserList()", "$s.append($v)", "sum($s)"),
        "UserDict": ("collections.UserDict()", '$s["x"] = $v', '$s.get("x", 0.0)'),
        "weakref.proxy": ("Holder(0.0)", "weakref.proxy($s).value = $v", "$s.value"),
        "contextvars": ('contextvars.ContextVar("x", default=0.0)', "$s.set($s.get() + $v)", "$s.get()"),
        "threading.local": ("threading.local()", '$s.x = getattr($s, "x", 0.0) + $v', 'getattr($s, "x", 0.0)'),
        "memoryview": ("bytearray(8)", 'memoryview($s).cast("d")[0] = $v', 'struct.unpack("d", $s)[0]'),
    },
)  # fmt: skip

_LAZY = '''
class Lazy:
    """An object whose attributes remember their first value."""

    def __init__(self):
        self.x = 0.0

    @functools.cached_property
    def first(self):
        return self.x * 2
'''
_DESCRIBED = '''
class Tracked:
    """A descriptor that keeps every value that is set."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return sum(getattr(instance, self.name, [0.0]))

    def __set__(self, instance, value):
        instance.__dict__.setdefault(self.name, []).append(value)


class Described:
    x = Tracked()
'''
_MISSING = '''
class Memory(dict):
    """A dictionary that makes what it lacks."""

    def __missing__(self, key):
        self[key] = len(self) + 0.5
        return self[key]
'''
_SLOTTED = """
class Slotted:
    __slots__ = ("x",)

    def __init__(self):
        self.x = 0.0

    def add(self, value):
        self.x += value
        return self
"""
_PROPERTY = '''
class Clamped:
    """A property whose setter counts."""

    def __init__(self):
        self._x, self.num = 0.0, 0

    @property
    def x(self):
        self.num += 1
        return self._x

    @x.setter
    def x(self, value):
        self.num += 10
        self._x = value
'''
_CALLABLE = """
class Smoother:
    def __init__(self):
        self.value = None

    def __call__(self, new):
        self.value = new if self.value is None else 0.5 * self.value + 0.5 * new
        return self.value
"""
_OPERATORS = """
class Amount:
    def __init__(self, value=0.0):
        self.value = value

    def __iadd__(self, other):
        self.value += other
        return self

    def __radd__(self, other):
        self.value += 1
        return other + self.value

    def __float__(self):
        return float(self.value)
"""
_MANAGER = """
class Timer:
    def __init__(self):
        self.spent = 0.0

    def __call__(self, value):
        self.next = value
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.spent += self.next
"""
_GETATTR = """
class Bag:
    def __init__(self):
        self.__dict__["kept"] = {}

    def __getattr__(self, name):
        return self.kept.setdefault(name, 0.25)

    def __setattr__(self, name, value):
        self.kept[name] = self.kept.get(name, 0.0) + value
"""
_FROZEN = """
@dataclasses.dataclass(order=True)
class Entry:
    score: float
    name: str = dataclasses.field(compare=False, default="x")
    past: list = dataclasses.field(compare=False, default_factory=list)

    def __post_init__(self):
        self.past.append(self.score)
"""
_ITERATOR = """
class Portions:
    def __init__(self):
        self.rest = 2.0**60

    def __iter__(self):
        return self

    def __next__(self):
        if self.rest < 1e-30:
            raise StopIteration
        self.rest /= 2
        return self.rest
"""
_CLASS_STATE = """
class Registry:
    total = 0.0

    @classmethod
    def add(cls, value):
        cls.total += value
        return cls

    def __init__(self):
        type(self).total = 0.0
"""
_MEMOIZED = """
def memoize(function):
    kept = {}

    @functools.wraps(function)
    def call(key, value):
        if key not in kept:
            kept[key] = function(key, value)
        return kept[key]

    call.kept = kept
    return call
"""
_DISPATCH = """
class Dispatcher:
    def __init__(self):
        self.kept = []

    @functools.singledispatchmethod
    def take(self, value):
        self.kept.append(-1.0)

    @take.register
    def _(self, value: float):
        self.kept.append(value)
"""


def _class(name: str, top: str, setup: str, act: str, read: str) -> UnknownCall:
    return UnknownCall("class that keeps state", name, setup, dedent(act).strip("\n"), read, top.strip("\n"))


CLASSES = (
    _class("cached_property", _LAZY, "Lazy()", "$s.x = $v\n$s.first", "$s.first + $s.x"),
    _class("cached_property read in place", _LAZY, "Lazy()", "$s.x += $v * $s.first + $v", "$s.x"),
    _class("descriptor", _DESCRIBED, "Described()", "$s.x = $v", "$s.x"),
    _class("__missing__", _MISSING, "Memory()", "$s[int($v * 2)]", "sum($s.values())"),
    _class("__slots__", _SLOTTED, "Slotted()", "$s.add($v).add(1.0)", "$s.x"),
    _class("property with a setter", _PROPERTY, "Clamped()", "$s.x = $v + $s.x", "$s.x + $s.num"),
    _class("__call__", _CALLABLE, "Smoother()", "$s($v)", "$s.value or 0.0"),
    _class("operators", _OPERATORS, "Amount()", "$s += $v", "float($s)"),
    _class("reflected operator", _OPERATORS, "Amount()", "more = $v + $s", "float($s)"),
    _class("context manager", _MANAGER, "Timer()", "with $s($v):\n    pass", "$s.spent"),
    _class("__getattr__ and __setattr__", _GETATTR, "Bag()", "$s.x = $v + $s.y", "$s.x"),
    _class("dataclass with __post_init__", _FROZEN, "Entry(0.0)", "$s = dataclasses.replace($s, score=$v)", "sum($s.past) + len($s.past)"),
    _class("dataclass compared by order", _FROZEN, "Entry(1.0)", "$s = max($s, Entry($v))", "$s.score"),
    _class("iterator of one's own", _ITERATOR, "Portions()", "found = $v * next($s)", "$s.rest"),
    _class("iterator that is unpacked", _ITERATOR, "Portions()", "first, second, *_ = itertools.islice($s, 3)\nfound = $v * first", "$s.rest"),
    _class("class variable", _CLASS_STATE, "Registry()", "$s.add($v)", "$s.total"),
    _class("memoized function", _MEMOIZED, "memoize(lambda key, value: value)", '$s("x", $v)', "sum($s.kept.values())"),
    _class("singledispatchmethod", _DISPATCH, "Dispatcher()", "$s.take($v)", "sum($s.kept)"),
)  # fmt: skip

READING_CHANGES = _calls(
    "reading that changes",
    {
        "defaultdict that is read": ("collections.defaultdict(float)", "found = $s[int($v * 2)] + $v", "len($s)"),
        "defaultdict of lists": ("collections.defaultdict(list)", "$s[int($v * 2)].append($v)", "sum(map(sum, $s.values())) + len($s)"),
        "dict.setdefault": ("{}", "found = $s.setdefault('x', $v)", "sum($s.values())"),
        "dict.pop": ("{k: k * 0.1 for k in range(9)}", "found = $v * $s.pop(max($s), 0.0) if $s else 0.0", "sum($s.values())"),
        "list.pop": ("[0.1 * k for k in range(9)]", "found = $v * ($s.pop() if $s else 0.0)", "sum($s)"),
        "popitem": ("{k: k * 0.1 for k in range(9)}", "key, found = $s.popitem() if $s else (0, 0.0)\nfound *= $v", "sum($s.values())"),
        "iterator": ("iter([0.1 * k for k in range(40)])", "found = $v * next($s)", "next(copy.copy($s))"),
        "iterator unpacked": ("iter([0.1 * k for k in range(90)])", "first, second, third = itertools.islice($s, 3)\nfound = $v * first", "next(copy.copy($s))"),
        "star of an iterator": ("iter([0.1 * k for k in range(90)])", "found = max(*itertools.islice($s, 2)) * $v", "next(copy.copy($s))"),
        "zip with an iterator": ("iter([0.1 * k for k in range(90)])", "found = [$v * one for one, _ in zip($s, range(2))]", "next(copy.copy($s))"),
        "in of an iterator": ("iter(range(90))", "found = (next(copy.copy($s)) + 1 in $s) * $v", "float(next(copy.copy($s)))"),
        "itertools.count": ("itertools.count()", "found = $v * next($s)", "float(next(copy.copy($s)))"),
        "itertools.cycle": ("itertools.cycle([1.0, 2.0, 3.0])", "found = $v * next($s)", "next(copy.copy($s))"),
        "itertools.tee": ("list(itertools.tee(iter([0.1 * k for k in range(90)])))", "found = $v * next($s[0])", "next(copy.copy($s[0]))"),
        "itertools.accumulate": ("itertools.accumulate([1.0] * 90)", "found = $v * next($s)", "next(copy.copy($s))"),
        "file position": ("io.StringIO('123456789' * 9)", "found = $v * float($s.read(1))", "float($s.tell())"),
        "random.Random": ("random.Random(3)", "found = $v * $s.random()", "copy.copy($s).random()"),
        "NumPy generator": ("np.random.default_rng(3)", "found = $v * $s.random()", "float(copy.deepcopy($s).random())"),
        "choice of a generator by weights": ("random.Random(3)", "found = $s.choices([0, 1], [$v, 1.0])", "copy.copy($s).random()"),
        "copied torch.Generator": ("torch.Generator().manual_seed(3)", "found = $v * torch.rand(1, generator=$s)", "float(torch.rand(1, generator=$s.clone_state()))"),
        "lru_cache statistics": ("functools.lru_cache(lambda key: key)", "found = $s(round($v, 1))", "$s.cache_info().misses + $s.cache_info().hits / 10"),
        "ring of a deque": ("collections.deque([1.0, 2.0, 3.0])", "found = $v * $s[0]\n$s.rotate(-1)", "$s[0]"),
        "best without a copy": ("{'average': torch.zeros(2), 'best': None}", "$s['average'].add_($v)\nif $s['best'] is None or $v < 0:\n    $s['best'] = $s['average']", "float($s['best'].sum()) if $s['best'] is not None else 0.0"),
    },
)  # fmt: skip

PURE = _calls(
    "library that only computes",
    {
        "scipy.special.expit": ("[0.0]", "$s[0] += float(scipy.special.expit($v))", "$s[0]"),
        "scipy.stats.norm.cdf": ("[0.0]", "$s[0] += float(scipy.stats.norm.cdf($v))", "$s[0]"),
        "scipy.optimize.brentq": ("[0.0]", "$s[0] = scipy.optimize.brentq(lambda x: x - $v, -50, 50)", "$s[0]"),
        "scipy.interpolate": ("[0.0]", "$s[0] = float(np.interp($v, [0.0, 3.0], [1.0, 2.0]))", "$s[0]"),
        "sklearn mean_squared_error": ("[0.0]", "$s[0] = float(sklearn.metrics.mean_squared_error([$v, 1.0], [0.0, 1.0]))", "$s[0]"),
        "sklearn accuracy_score": ("[0.0]", "$s[0] = float(sklearn.metrics.accuracy_score([$v > 1.0, True], [True, True]))", "$s[0]"),
        "sklearn StandardScaler": ("sklearn.preprocessing.StandardScaler()", "$s.partial_fit([[$v], [1.0]])", 'float(getattr($s, "mean_", [0.0])[0])'),
        "statistics.fmean": ("[]", "$s.append(statistics.fmean([$v, 1.0]))", "sum($s)"),
        "statistics.quantiles": ("[]", "$s.append(statistics.quantiles([$v, 1.0, 2.0])[0])", "sum($s)"),
        "statistics.NormalDist": ("[0.0]", "$s[0] = statistics.NormalDist($v, 1.0).cdf(0.5)", "$s[0]"),
        "fractions.Fraction": ("[0.0]", "$s[0] = float(fractions.Fraction($v).limit_denominator(7))", "$s[0]"),
        "decimal.Decimal": ("[0.0]", "$s[0] = float(decimal.Decimal($v).quantize(decimal.Decimal('0.01')))", "$s[0]"),
        "datetime.timedelta": ("[0.0]", "$s[0] = datetime.timedelta(seconds=$v).total_seconds()", "$s[0]"),
        "hashlib": ("[0.0]", "$s[0] = int(hashlib.md5(repr($v).encode()).hexdigest()[:4], 16)", "$s[0]"),
        "difflib": ("[0.0]", "$s[0] = difflib.SequenceMatcher(None, str($v), '0.5').ratio()", "$s[0]"),
        "textwrap.fill": ("[0.0]", "$s[0] = weigh(textwrap.fill(f'loss {$v}', 6))", "$s[0]"),
        "ast.literal_eval": ("[0.0]", "$s[0] = ast.literal_eval(repr($v)) * 1.0", "$s[0]"),
        "eval": ("[0.0]", "$s[0] = eval('value * 2', {'value': $v})", "$s[0]"),
        "exec": ("{}", "exec('found = value * 2', {'value': $v}, $s)", "$s.get('found', 0.0)"),
        "copy.deepcopy": ("[[0.0]]", "$s.append(copy.deepcopy([$v]))", "sum(map(sum, $s))"),
        "np.histogram": ("[0.0]", "$s[0] = float(np.histogram([$v, 0.2], bins=4, range=(0, 3))[0] @ np.arange(4))", "$s[0]"),
        "np.searchsorted": ("[0.0]", "$s[0] += int(np.searchsorted([0.4, 0.9, 1.6], $v))", "$s[0]"),
        "np.polyfit": ("[0.0]", "$s[0] = float(np.polyfit([0.0, 1.0, 2.0], [$v, 1.0, 0.5], 1)[0])", "$s[0]"),
        "np.vectorize": ("[0.0]", "$s[0] = float(np.vectorize(lambda one: one * 2)($v))", "$s[0]"),
        "np.where": ("[0.0]", "$s[0] = float(np.where($v > 1.0, $v, -$v))", "$s[0]"),
        "np.float32": ("[0.0]", "$s[0] = float(np.float32($v))", "$s[0]"),
        "torch.tensor of a list": ("[0.0]", "$s[0] = torch.tensor([$v, 1.0]).sum().item()", "$s[0]"),
        "enum by value": ("[0.0]", "$s[0] = Mode(2 if $v > 1.0 else 6).value", "$s[0]"),
        "bisect": ("[0.0]", "$s[0] += bisect.bisect([0.4, 0.9, 1.6], $v)", "$s[0]"),
        "divmod": ("[0.0]", "whole, rest = divmod($v, 0.4)\n$s[0] = whole + rest", "$s[0]"),
        "round and int": ("[0.0]", "$s[0] += int(round($v * 10))", "$s[0]"),
        "struct": ("[0.0]", "$s[0] = struct.unpack('f', struct.pack('f', $v))[0]", "$s[0]"),
        "operator.methodcaller": ("[]", "operator.methodcaller('append', $v)($s)", "sum($s)"),
        "warnings.warn": ("[0.0]", "$s[0] = warned($v)", "$s[0]"),
        "os.environ": ("[0.0]", "os.environ['FUZZ_X'] = str($v)\n$s[0] = float(os.environ['FUZZ_X'])", "$s[0]"),
        "thread": ("[]", "in_thread(lambda: $s.append($v))", "sum($s)"),
        "pool": ("[]", "in_pool(lambda: $s.append($v))", "sum($s)"),
        "torch.save to a buffer": ("[0.0]", "buffer = io.BytesIO()\ntorch.save({'x': $v}, buffer)\n$s[0] = weigh(buffer.getvalue().decode('latin-1')[-200:])", "$s[0]"),
        "pickle": ("[0.0]", "$s[0] = pickle.loads(pickle.dumps($v)) * 2", "$s[0]"),
        "inspect.signature": ("[0.0]", "$s[0] = inspect.signature(lambda x=1: x).bind($v).arguments['x'] * 2", "$s[0]"),
        "string.Template": ("[0.0]", "$s[0] = weigh(string.Template('x').template + str($v))", "$s[0]"),
        "random.seed of it": ("[0.0]", "$s[0] = random.Random($v).random()", "$s[0]"),
        "math.fsum": ("[]", "$s.append(math.fsum([$v, 1e-3]))", "math.fsum($s)"),
        "reduce with a lambda": ("[0.0]", "$s[0] = functools.reduce(lambda one, more: one * more, [$v, 2.0, 3.0])", "$s[0]"),
    },
)  # fmt: skip

CALLS = (*CHANGES_ITS_ARGUMENT, *CHANGES_AN_ARRAY, *VIEWS, *CLASSES, *READING_CHANGES, *PURE)
