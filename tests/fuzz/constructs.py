"""Python constructs that turn a value into a number, by which the program then trains.

In the code of a construct, `$v` is the value, `$r` the number, `$a` and `$b` two values of the same kind, `$n` a number
that is unique in the program. `weigh` makes a number of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class Construct:
    """Something that Python code does with a value."""

    family: str
    name: str
    needs: frozenset[str]
    """Traits of which a kind must have all."""
    code: str
    avoids: frozenset[str] = frozenset()
    """Traits of which a kind must have none."""

    def fits(self, traits: frozenset[str]) -> bool:
        """Whether it can be applied to a value with these traits."""
        return self.needs <= traits and not self.avoids & traits


def construct(family: str, name: str, needs: str, code: str) -> Construct:
    """Make a construct; traits with a minus sign are those it avoids."""
    words = needs.split()
    avoids = frozenset(word[1:] for word in words if word.startswith("-"))
    return Construct(
        family=family,
        name=name,
        needs=frozenset(word for word in words if not word.startswith("-")),
        code=dedent(code).strip("\n"),
        avoids=avoids,
    )


def choices(family: str, rows: dict[str, tuple[str, str]]) -> tuple[Construct, ...]:
    """Make constructs that are a condition: a name, what it needs, and the expression."""
    return tuple(
        construct(family, name, needs, f"$r = 0.3 if {condition} else 0.6") for name, (needs, condition) in rows.items()
    )


IDENTITY = choices(
    "identity",
    {
        "is None": ("any", "$v is None"),
        "is not None": ("any", "$v is not None"),
        "is True": ("truth", "$v is True"),
        "is False": ("any -tensor", "$v is False"),
        "is a constant": ("alone", "$v is $a"),
        "is not a constant": ("alone", "$v is not $a"),
        "is in a comprehension": ("alone", "[item is None for item in [$v]][0]"),
        "is in a function": ("any", "is_none($v)"),
        "id": ("alone", "id($v) == id($a)"),
        "operator.is_": ("alone", "operator.is_($v, $a)"),
        "is and and": ("any -tensor", "$v is not None and $v != $a"),
        "is or or": ("any -tensor", "$v is None or $v == $b"),
    },
)

EQUALITY = choices(
    "equality",
    {
        "==": ("any", "$v == $a"),
        "!=": ("any", "$v != $a"),
        "swapped ==": ("any", "$a == $v"),
        "not ==": ("any", "not $v == $a"),
        "in a tuple": ("any -tensor", "$v in ($a, 'other')"),
        "not in a list": ("any -tensor", "$v not in [$a, $b]"),
        "in a set": ("key", "$v in {$a, 'other'}"),
        "not in a frozenset": ("key", "$v not in frozenset([$b])"),
        "operator.eq": ("any", "operator.eq($v, $a)"),
        "any of a generator": ("any", "any($v == item for item in ($a, $b))"),
        "all of a list": ("any", "all([$v != item for item in ($b,)])"),
        "next of a generator": ("any", "next((i for i, item in enumerate([$a, $b]) if item == $v), 2) == 1"),
        "tuples": ("any -tensor", "($v, 1) == ($a, 1)"),
        "lists": ("any -tensor", "[$v] != [$b]"),
        "dictionaries": ("any -tensor", "{'x': $v} == {'x': $a}"),
        "list.count": ("any -tensor", "[$a, $b].count($v) == 1"),
        "list.index": ("any -tensor", "[$b, $v].index($v) == 1"),
        "filter": ("any", "len(list(filter(lambda item: item == $v, [$a, $b]))) == 1"),
        "walrus": ("any", "(found$n := $v) == $a and found$n != $b"),
        "chained ==": ("any -tensor", "$a == $v == $a"),
    },
)

TYPES = (
    *choices(
        "types",
        {
            "isinstance int": ("any", "isinstance($v, int)"),
            "isinstance float": ("any", "isinstance($v, float)"),
            "isinstance str": ("any", "isinstance($v, str)"),
            "isinstance bool": ("any", "isinstance($v, bool)"),
            "isinstance of two": ("any", "isinstance($v, (int, str))"),
            "isinstance of a union": ("any", "isinstance($v, float | None)"),
            "isinstance type": ("any", "isinstance($v, type)"),
            "isinstance None": ("any", "isinstance($v, type(None))"),
            "isinstance tuple": ("any", "isinstance($v, (tuple, list))"),
            "isinstance Real": ("any", "isinstance($v, numbers.Real)"),
            "isinstance Tensor": ("any", "isinstance($v, torch.Tensor)"),
            "torch.is_tensor": ("any", "torch.is_tensor($v)"),
            "type is": ("any", "type($v) is float"),
            "type ==": ("any", "type($v) == type($a)"),
            "type in": ("any", "type($v) in (int, str, type)"),
            "type name": ("any -tensor", "type($v).__name__ == type($a).__name__"),
            "class attribute": ("any -tensor", "$v.__class__ is int"),
            "callable": ("any -tensor", "callable($v)"),
            "hasattr": ("any -tensor", "hasattr($v, 'upper')"),
            "hasattr iter": ("any -tensor", "hasattr($v, '__iter__')"),
            "inspect.isclass": ("any", "inspect.isclass($v)"),
            "issubclass": ("class", "issubclass($v, nn.ReLU)"),
        },
    ),
    construct(
        "types",
        "singledispatch",
        "any -tensor",
        """
        $r = classify($v)
        """,
    ),
    construct(
        "types",
        "try without a type",
        "any -tensor -text -tuple -class -enum -function",
        """
        try:
            $r = 0.2 + $v
        except TypeError:
            $r = 0.7
        """,
    ),
    construct(
        "types",
        "dictionary of types",
        "any -tensor",
        "$r = {int: 0.2, float: 0.4, str: 0.5, bool: 0.3, type(None): 0.7}.get(type($v), 0.6)",
    ),
)


def _match(name: str, needs: str, cases: str) -> Construct:
    arms = [f"    case {case.strip()}" for case in cases.strip().split("\n")]
    return construct("match", name, needs, "\n".join(["match $v:", *arms]))


MATCH = (
    _match("literal", "key -class -function -enum -tuple", "$a: $r = 0.2\n$b: $r = 0.4\n_: $r = 0.6"),
    _match("None", "any -tensor", "None: $r = 0.3\n_: $r = 0.6"),
    _match("True", "any -tensor", "True: $r = 0.3\nFalse: $r = 0.4\n_: $r = 0.6"),
    _match("class", "any -tensor", "bool(): $r = 0.2\nint(): $r = 0.3\nfloat(): $r = 0.4\nstr(): $r = 0.5\n_: $r = 0.6"),
    _match("class with a capture", "number", "int(found$n): $r = 0.1 * found$n\nother$n: $r = 0.2 * other$n"),
    _match("guard", "number", "found$n if found$n > $a: $r = 0.3\n_: $r = 0.6"),
    _match("union", "any -tensor", "int() | float(): $r = 0.3\nstr() | None: $r = 0.5\n_: $r = 0.6"),
    _match("sequence", "tuple", "[first$n]: $r = 0.1 * first$n\n[_, second$n, *_]: $r = 0.2 * second$n\n_: $r = 0.6"),
    _match("constant", "enum", "Mode.FAST: $r = 0.3\n_: $r = 0.6"),
    construct("match", "mapping", "any -tensor", "match {'x': $v}:\n    case {'x': None}: $r = 0.3\n    case {'x': str()}: $r = 0.4\n    case _: $r = 0.6"),
    construct("match", "tuple", "any -tensor", "match ($v, 1):\n    case (int(), 1): $r = 0.3\n    case (None, _): $r = 0.4\n    case _: $r = 0.6"),
)  # fmt: skip

SHOWN = tuple(
    construct("shown", name, "shown" + more, f"$r = weigh({text})")
    for name, more, text in (
        ("f-string", "", "f'w{$v}'"),
        ("f-string with repr", "", "f'{$v!r}'"),
        ("f-string with =", "", "f'{$v=}'"),
        ("f-string with a width", "", "f'{str($v):>8}'"),
        ("f-string .2f", " number", "f'{$v:.2f}'"),
        ("f-string d", " whole", "f'{$v:03d}'"),
        ("str", "", "str($v)"),
        ("repr", "", "repr($v)"),
        ("ascii", "", "ascii($v)"),
        ("format()", "", "format($v)"),
        ("% s", "", "'run %s' % ($v,)"),
        ("% r of a dictionary", "", "'%(x)r' % {'x': $v}"),
        ("% g", " number", "'%g' % $v"),
        ("% d", " number", "'%d' % $v"),
        (".format", "", "'{}-{x}'.format($v, x=$v)"),
        (".format .1f", " number", "'{:.1f}'.format($v)"),
        ("join", "", "'-'.join(['run', str($v)])"),
        ("join of map", "", "','.join(map(str, [$v, $a]))"),
        ("concatenation", "", "'run' + str($v)"),
        ("str of a list", "", "str([$v, 1])"),
        ("str of a dictionary", "", "str({'x': $v})"),
        ("json.dumps", " json", "json.dumps({'x': $v})"),
        ("json.dumps alone", " json", "json.dumps($v)"),
        ("json with default", " json", "json.dumps([$v], default=str)"),
        ("os.path.join", "", "os.path.join('runs', str($v))"),
        ("Path", "", "str(pathlib.PurePosixPath('runs') / f'x{$v}')"),
        ("pprint", "", "pprint.pformat({'x': $v})"),
        ("string.Template", "", "string.Template('${}').safe_substitute(x=$v) + str($v)"),
        ("print to a stream", "", "printed($v)"),
        ("write to a stream", "", "written($v)"),
        ("logging to a stream", "", "logged($v)"),
        ("csv", "", "as_csv($v)"),
        ("format_map", "", "'{x}'.format_map({'x': $v})"),
        ("str.center", "", "str($v).center(9, '.')"),
        ("pickle", "", "pickle.dumps($v).decode('latin-1')"),
        ("reprlib", "", "reprlib.repr($v)"),
        ("str of an exception", "", "str(ValueError($v))"),
        ("namedtuple's text", "", "str(Pair($v, 1))"),
        ("dataclass's text", "", "repr(Setting($v))"),
        ("bytes", "", "str($v).encode().hex()"),
        ("hashlib", "", "hashlib.md5(str($v).encode()).hexdigest()"),
    )
)

KEYS = tuple(
    construct("keys", name, needs, code)
    for name, needs, code in (
        ("dict[]", "key", "$r = {$a: 0.2, $b: 0.4}[$v] if $v in {$a: 0, $b: 0} else 0.6"),
        ("dict[] with KeyError", "key", "try:\n    $r = {$a: 0.2, $b: 0.4}[$v]\nexcept KeyError:\n    $r = 0.6"),
        ("dict.get", "key", "$r = {$a: 0.2, $b: 0.4}.get($v, 0.6)"),
        ("dict.pop", "key", "$r = {$a: 0.2, $b: 0.4}.pop($v, 0.6)"),
        ("built as key", "key", "$r = 0.3 if {$v: 1}.get($a) else 0.6"),
        ("setdefault", "key", "table$n = {$a: 0.2}\n$r = table$n.setdefault($v, 0.6) + 0.1 * len(table$n)"),
        ("defaultdict", "key", "table$n = collections.defaultdict(int)\ntable$n[$v] += 1\n$r = 0.2 + 0.3 * table$n[$a]"),
        ("Counter", "key", "$r = 0.2 * collections.Counter([$v, $a]).most_common(1)[0][1]"),
        ("set", "key", "$r = 0.2 * len({$v, $a, $b})"),
        ("set algebra", "key", "$r = 0.2 + 0.3 * len({$v} & {$a})"),
        ("dict comprehension", "key", "$r = 0.2 * len({item: 1 for item in ($v, $a)})"),
        ("hash", "key -function", "$r = 0.3 if hash($v) == hash($a) else 0.6"),
        ("dict.fromkeys", "key", "$r = 0.2 * len(dict.fromkeys([$v, $a]))"),
        ("lru_cache", "key", "$r = cached($v, $a)"),
        ("text key", "shown", "$r = {f'w{$a}': 0.2}.get(f'w{$v}', 0.6)"),
        ("text key with str", "shown", "$r = {f'w{$a}': 0.2}.get('w' + str($v), 0.6)"),
        ("parameter dictionary", "shown", "names$n = {f'w{$a}': 0.2, f'w{$b}': 0.4}\n$r = names$n.get('w%s' % ($v,), 0.6)"),
        ("module constant", "key", "$r = sum(i * 0.3 for i, item in enumerate([$a, $b], 1) if item in {$v})"),
    )
)  # fmt: skip

GENERAL = (*IDENTITY, *EQUALITY, *TYPES, *MATCH, *SHOWN, *KEYS)
