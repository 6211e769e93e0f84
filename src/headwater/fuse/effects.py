"""The closed table of library functions that may get a value which differs by lane, with the effect of each.

A function that is not in the table gets no such value: the lanes split. `tests/fuse/test_effects.py` calls those that
compute and checks that their arguments stay as they are. `docs/lanes.md` lists the table for users.
"""

from __future__ import annotations

import builtins
import enum
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeAlias

import numpy as np

from headwater.torch_private import OPERATOR_MODULE

Function: TypeAlias = Callable[..., Any]  # Any: functions of every library


class Effect(enum.Enum):
    """The effect of a call, and thereby the way to make it for several lanes."""

    COMPUTE = "is called once per lane, with the lane's own values"
    ARRAYS = "is called once per lane, with the lane's own values, and takes tensors for arrays"
    CONTAINER = "is called once: it stores values, hands them on, or asks them by Python's operators"
    ATTRIBUTE = "is called once, with one name for all lanes"
    SHOW = "is called once, with text of all lanes"
    LOG = "is called once, with text of all lanes, as the caller's line"
    KEEP = "is called once per lane, and writes a file of each trial"
    FILES = "is called once per lane where the file, or its path, is one of each trial"


COMPUTING: Mapping[str, Iterable[str]] = {
    "math": (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "comb", "copysign", "cos", "cosh",
        "degrees", "dist", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "factorial", "floor", "fmod", "frexp", "fsum",
        "gamma", "gcd", "hypot", "isclose", "isfinite", "isinf", "isnan", "isqrt", "lcm", "ldexp", "lgamma", "log",
        "log10", "log1p", "log2", "modf", "nextafter", "perm", "pow", "prod", "radians", "remainder", "sin", "sinh",
        "sqrt", "tan", "tanh", "trunc", "ulp",
    ),
    "cmath": (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "isclose", "isfinite", "isinf",
        "isnan", "log", "log10", "phase", "polar", "rect", "sin", "sinh", "sqrt", "tan", "tanh",
    ),
    "statistics": (
        "correlation", "covariance", "fmean", "geometric_mean", "harmonic_mean", "mean", "median", "median_grouped",
        "median_high", "median_low", "mode", "multimode", "pstdev", "pvariance", "quantiles", "stdev", "variance",
    ),
    "re": ("escape", "findall", "fullmatch", "match", "search", "split", "sub", "subn"),
    "os.path": ("basename", "commonpath", "dirname", "isabs", "join", "normpath", "relpath", "split", "splitext"),
    "textwrap": ("dedent", "fill", "indent", "shorten", "wrap"),
    "json": ("dumps", "loads"),
    "headwater.trials.functions": ("fill_in", "join_pieces"),
    "builtins": (
        "ascii", "bin", "bool", "chr", "complex", "float", "format", "hex", "id", "int", "max", "min", "oct", "ord",
        "repr", "sorted", "str", "type",
    ),
}  # fmt: skip
"""Functions of Python that compute a new value and change nothing."""

ARRAY_FUNCTIONS: Mapping[str, Iterable[str]] = {
    "numpy": (
        "all", "allclose", "amax", "amin", "angle", "any", "append", "arange", "argmax", "argmin",
        "argpartition", "argsort", "argwhere", "around", "array", "array2string", "array_equal", "array_equiv",
        "array_split", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray",
        "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "bincount", "blackman", "block",
        "broadcast_to", "clip", "column_stack", "compress", "concatenate", "convolve", "copy", "corrcoef", "correlate",
        "count_nonzero", "cov", "cross", "cumprod", "cumsum", "delete", "diag", "diagflat", "diagonal", "diff",
        "digitize", "dot", "dsplit", "dstack", "ediff1d", "einsum", "empty_like", "expand_dims", "extract", "eye",
        "fix", "flatnonzero", "flip", "fliplr", "flipud", "full", "full_like", "geomspace", "gradient", "hamming",
        "hanning", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "i0",
        "identity", "imag", "indices", "inner", "insert", "interp", "intersect1d", "isclose", "iscomplex",
        "iscomplexobj", "isin", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "kaiser", "kron", "lexsort",
        "linspace", "logspace", "max", "mean", "median", "meshgrid", "min", "moveaxis", "nan_to_num", "nanargmax",
        "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod",
        "nanquantile", "nanstd", "nansum", "nanvar", "ndim", "nonzero", "ones", "ones_like", "outer", "pad",
        "partition", "percentile", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint",
        "polymul", "polysub", "polyval", "prod", "ptp", "quantile", "ravel", "ravel_multi_index", "real",
        "real_if_close", "repeat", "reshape", "resize", "roll", "rollaxis", "roots", "rot90", "round", "searchsorted",
        "select", "setdiff1d", "setxor1d", "shape", "sinc", "size", "sort", "sort_complex", "split", "squeeze", "stack",
        "std", "sum", "swapaxes", "take", "take_along_axis", "tensordot", "tile", "trace", "transpose", "trapezoid",
        "tri", "tril", "tril_indices", "trim_zeros", "triu", "triu_indices", "union1d", "unique", "unravel_index",
        "unwrap", "vander", "var", "vdot", "vsplit", "vstack", "where", "zeros", "zeros_like",
    ),
    "numpy.linalg": (
        "cholesky", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_power", "matrix_rank",
        "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "svd", "tensorinv", "tensorsolve",
    ),
    "numpy.fft": (
        "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
        "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
    ),
    "sklearn.metrics": (
        "accuracy_score", "auc", "average_precision_score", "balanced_accuracy_score", "brier_score_loss",
        "classification_report", "cohen_kappa_score", "confusion_matrix", "d2_absolute_error_score", "dcg_score",
        "det_curve", "explained_variance_score", "f1_score", "fbeta_score", "hamming_loss", "hinge_loss",
        "jaccard_score", "log_loss", "matthews_corrcoef", "max_error", "mean_absolute_error",
        "mean_absolute_percentage_error", "mean_gamma_deviance", "mean_pinball_loss", "mean_poisson_deviance",
        "mean_squared_error", "mean_squared_log_error", "mean_tweedie_deviance", "median_absolute_error",
        "multilabel_confusion_matrix", "ndcg_score", "precision_recall_curve", "precision_recall_fscore_support",
        "precision_score", "r2_score", "recall_score", "roc_auc_score", "roc_curve", "root_mean_squared_error",
        "top_k_accuracy_score", "zero_one_loss",
    ),
    "scipy.stats": (
        "entropy", "gmean", "hmean", "iqr", "kendalltau", "kurtosis", "linregress", "moment", "pearsonr", "rankdata",
        "sem", "skew", "spearmanr", "trim_mean", "ttest_ind", "ttest_rel", "variation", "zscore",
    ),
    "scipy.special": ("comb", "factorial", "log_softmax", "logsumexp", "softmax"),
}  # fmt: skip
"""Functions of NumPy and its like that compute a new array, unless they are told to write into one."""

ARRAY_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "choose", "clip", "compress", "conj",
    "conjugate", "copy", "cumprod", "cumsum", "diagonal", "dot", "flatten", "item", "max", "mean", "min", "nonzero",
    "prod", "ravel", "repeat", "reshape", "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take",
    "tobytes", "tolist", "trace", "transpose", "var", "view",
})  # fmt: skip
"""Methods of an array that leave it as it is."""
UFUNC_METHODS = frozenset({"accumulate", "outer", "reduce", "reduceat"})
"""Methods of NumPy's universal functions; `at` writes into its first argument."""

CONTAINERS: Mapping[str, Iterable[str]] = {
    "builtins": (
        "abs", "all", "any", "callable", "delattr", "dir", "divmod", "eval", "exec", "globals", "hash", "isinstance",
        "issubclass", "iter", "len", "locals", "next", "pow", "round", "sum", "vars", "breakpoint",
    ),
    "copy": ("copy", "deepcopy"),
    "heapq": (
        "heapify", "heappop", "heappush", "heappushpop", "heapreplace", "merge", "nlargest", "nsmallest",
    ),
    "bisect": ("bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"),
    "functools": ("partial", "reduce", "cmp_to_key", "wraps", "update_wrapper"),
    "itertools": (
        "accumulate", "batched", "chain", "combinations", "combinations_with_replacement", "compress", "count", "cycle",
        "dropwhile", "filterfalse", "groupby", "islice", "pairwise", "permutations", "product", "repeat", "starmap",
        "takewhile", "tee", "zip_longest",
    ),
    "operator": (
        "abs", "add", "and_", "attrgetter", "concat", "contains", "countOf", "delitem", "eq", "floordiv", "ge",
        "getitem", "gt", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "index",
        "indexOf", "inv", "invert", "ior", "ipow", "irshift", "isub", "itemgetter", "itruediv", "ixor",
        "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow",
        "rshift", "setitem", "sub", "truediv", "truth", "xor",
    ),
    "collections": ("ChainMap", "Counter", "OrderedDict", "UserDict", "UserList", "defaultdict", "deque", "namedtuple"),
    "typing": ("cast",),
    "types": ("MappingProxyType", "SimpleNamespace"),
    "argparse": ("Namespace",),
    "transformers.optimization": (
        "get_constant_schedule", "get_constant_schedule_with_warmup", "get_cosine_schedule_with_warmup",
        "get_inverse_sqrt_schedule", "get_linear_schedule_with_warmup", "get_polynomial_decay_schedule_with_warmup",
    ),
    "dataclasses": ("asdict", "astuple", "fields", "is_dataclass"),
    "contextlib": ("ExitStack", "closing", "contextmanager", "nullcontext", "redirect_stdout", "suppress"),
    "random": (
        "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "lognormvariate", "normalvariate",
        "paretovariate", "randint", "randrange", "sample", "shuffle", "triangular", "uniform", "vonmisesvariate",
        "weibullvariate",
    ),
}  # fmt: skip
"""Functions and classes of Python that treat values as opaque, or ask them by operators that answer for every lane."""
CONTAINER_MODULES = frozenset({
    "abc", "argparse", "bisect", "collections", "concurrent", "contextlib", "copy", "dataclasses", "enum", "functools",
    "heapq", "logging", "operator", "queue", "random", "reprlib", "threading", "tqdm", "types", "typing", "warnings",
    "weakref",
})  # fmt: skip
"""Packages whose Python code may stand between the user's functions: it only hands values on."""

KEEPING: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "builtins": {"print": (sys.maxsize, "file")},
    "torch.serialization": {"save": (1, "f")},
    "numpy": {"save": (0, "file"), "savetxt": (0, "fname"), "savez": (0, "file"), "savez_compressed": (0, "file")},
    "json": {"dump": (1, "fp")},
    "pickle": {"dump": (1, "file")},
    "_pickle": {"dump": (1, "file")},
    "yaml": {"dump": (1, "stream"), "safe_dump": (1, "stream")},
    "joblib": {"dump": (1, "filename")},
    "safetensors.torch": {"save_file": (1, "filename")},
    "torchvision.utils": {"save_image": (1, "fp")},
}
"""Functions that write their arguments into a file, and the position and the name of the argument that says where."""

FILE_FUNCTIONS: Mapping[str, Iterable[str]] = {
    "builtins": ("open",),
    "os": ("makedirs", "mkdir", "remove", "rename", "replace", "stat", "unlink"),
    "os.path": ("exists", "getmtime", "getsize", "isdir", "isfile", "lexists"),
    "shutil": ("copy", "copy2", "copyfile", "move"),
    "numpy": ("fromfile", "genfromtxt", "load", "loadtxt"),
    "torch.serialization": ("load",),
}
"""Functions that read or move a file."""
PATH_METHODS = frozenset({
    "exists", "is_file", "open", "read_bytes", "read_text", "rename", "replace", "stat", "touch", "unlink",
    "write_bytes", "write_text",
})  # fmt: skip
"""Methods of a path that read or move its file."""

IMMUTABLE = (str, bytes, int, float, complex, bool)
"""Types of Python whose methods compute."""
_ATTRIBUTES = (getattr, setattr, hasattr)
_CONTAINER_CODE = frozenset({
    "collections", "contextlib", "functools", "itertools", "operator", "random", "_random", "types",
})  # fmt: skip
"""Packages whose objects, and the functions that they make, have the effect of containers."""
CALLING = frozenset({
    "accumulate", "bisect", "bisect_left", "bisect_right", "cmp_to_key", "dropwhile", "filter", "filterfalse",
    "groupby", "insort", "insort_left", "insort_right", "map", "max", "merge", "min", "nlargest", "nsmallest", "reduce",
    "sort", "sorted", "starmap", "takewhile",
})  # fmt: skip
"""Names of functions of Python that call a function which they are given."""
_SHOWING = frozenset({"tqdm"})
_LOGGING = frozenset({"logging", "warnings"})

_TABLES: tuple[tuple[Effect, Mapping[str, Iterable[str]]], ...] = (
    (Effect.COMPUTE, COMPUTING),
    (Effect.ARRAYS, ARRAY_FUNCTIONS),
    (Effect.CONTAINER, CONTAINERS),
    (Effect.KEEP, KEEPING),
    (Effect.FILES, FILE_FUNCTIONS),
)


def list_functions(effect: Effect) -> Iterator[tuple[str, str, Function]]:
    """Yield module, name and function of the table's functions with an effect, as far as their modules are imported."""
    for found, table in _TABLES:
        for home, names in table.items() if found is effect else ():
            module = import_module(home) if home == "os.path" else sys.modules.get(home)
            yield from ((home, name, getattr(module, name)) for name in names if hasattr(module, name))


class EffectTable:
    """Finds effects by function; tables of a package are read when one of its functions is first asked for."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Function, Effect]] = {}
        self._num_modules = 0

    def find(self, function: Any) -> Effect | None:
        """Return the effect of a function of the table; None for any other."""
        entry = self._found.get(id(function))
        if entry is None and self._num_modules != len(sys.modules):
            self._num_modules = len(sys.modules)
            self._read()
            entry = self._found.get(id(function))
        return None if entry is None else entry[1]

    def _read(self) -> None:
        for effect in Effect:
            for _, _, function in list_functions(effect):
                self._found[id(function)] = function, effect
        self._found |= {id(function): (function, Effect.ATTRIBUTE) for function in _ATTRIBUTES}
        self._found[id(print)] = print, Effect.SHOW


TABLE = EffectTable()


def find_effect(function: Any) -> Effect | None:
    """Return the effect of a library function, class or bound method; None where it is not known."""
    kind = type(function)
    if kind is BuiltinFunctionType or kind is MethodWrapperType:
        owner = function.__self__
        if owner is not None and type(owner) is not ModuleType:
            return _effect_of_method(owner, function.__name__)
    elif kind is MethodDescriptorType or kind is WrapperDescriptorType:
        return _effect_of_descriptor(function.__objclass__, function.__name__)
    elif isinstance(function, np.ufunc):
        return Effect.ARRAYS
    found = TABLE.find(function)
    return found if found is not None else _effect_of_module(function)


def _effect_of_module(function: Any) -> Effect | None:
    """Return the effect of a class or a wrapper of Python's own, or of a function that shows."""
    if function is builtins.print:
        return Effect.SHOW  # Ray, for one, has its own
    if isinstance(function, type):
        is_number = issubclass(function, np.generic)
        return Effect.CONTAINER if function.__module__ == "builtins" else Effect.ARRAYS if is_number else None
    owner = getattr(function, "__self__", None)
    if isinstance(owner, PurePath):
        return Effect.FILES if function.__name__ in PATH_METHODS else None
    space = getattr(getattr(function, "__func__", function), "__globals__", {})
    package = (space.get("__name__") or type(function).__module__).partition(".")[0]
    if package in _SHOWING:
        return Effect.SHOW
    if package in _LOGGING:
        return Effect.LOG
    is_held = owner is not None and type(owner) is not ModuleType
    return Effect.CONTAINER if package in _CONTAINER_CODE or (is_held and _is_container(owner)) else None


def _effect_of_method(owner: Any, name: str) -> Effect | None:
    kind = owner if isinstance(owner, type) else type(owner)
    if kind in IMMUTABLE:
        return Effect.COMPUTE
    if owner is sys.stdout or owner is sys.stderr:
        return Effect.SHOW
    if isinstance(owner, np.ndarray | np.generic):
        return Effect.ARRAYS if name in ARRAY_METHODS else None
    if isinstance(owner, np.ufunc):
        return Effect.ARRAYS if name in UFUNC_METHODS else None
    if kind.__module__ == "_io":
        return Effect.KEEP if name in ("write", "writelines") else None
    return Effect.CONTAINER if kind.__module__ == "builtins" or _is_container(owner) else None


def _effect_of_descriptor(kind: type, name: str) -> Effect | None:
    if kind in IMMUTABLE:
        return Effect.COMPUTE
    return Effect.CONTAINER if kind.__module__ in ("builtins", "collections", OPERATOR_MODULE) else None


def _is_container(owner: Any) -> bool:
    """Tell whether an object is one of Python's containers, or of a class of theirs."""
    return type(owner).__module__.partition(".")[0] in _CONTAINER_CODE


def writes_arrays(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a function of NumPy is told to write into an array, by position or by name."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, np.ufunc):
        return len(args) > function.nin or kwargs.get("out") is not None
    if isinstance(owner, np.ufunc):
        return len(args) > 3 or kwargs.get("out") is not None
    signature = _signature_of(function)
    try:
        given = kwargs if signature is None else signature.bind_partial(*args, **kwargs).arguments
    except TypeError:  # the call fails, and says so
        return False
    is_told = given.get("out") is not None or bool(given.get("overwrite_input"))
    return is_told or (function is np.nan_to_num and given.get("copy", True) is False)


@cache
def _signature_of(function: Function) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # written in C, without a description
        return None
