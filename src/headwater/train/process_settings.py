"""Settings of torch, NumPy and Python that hold for a whole process and change what is computed."""

from __future__ import annotations

import decimal
import sys
import warnings
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch

_FLAGS = (
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.benchmark_limit",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_accumulation",
    "mkldnn.enabled",
    "mkldnn.deterministic",
    "opt_einsum.enabled",
    "opt_einsum.strategy",
    "quantized.engine",
)
"""Attributes of `torch.backends`; a version of torch need not have them all."""
_SDP_KERNELS = ("flash", "mem_efficient", "math", "cudnn")


def read_process_settings() -> dict[str, Any]:  # Any: plain values
    """Return the settings of this process as plain values."""
    return {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "device": torch.get_default_device().type,
        "is_deterministic": torch.are_deterministic_algorithms_enabled(),
        "only_warns": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fills_memory": bool(torch.utils.deterministic.fill_uninitialized_memory),  # type: ignore[attr-defined] # set by its class
        "precision": torch.get_float32_matmul_precision(),
        "has_gradients": torch.is_grad_enabled(),
        "finds_anomalies": torch.is_anomaly_enabled(),
        "finds_nan": torch.is_anomaly_check_nan_enabled(),
        "flushes_denormals": _flushes_denormals(),
        "attention_fastpath": torch.backends.mha.get_fastpath_enabled(),
        "attention_kernels": _read_kernels(),
        "flags": {name: value for name in _FLAGS if (value := _read_flag(name)) is not None},
        "numpy_errors": dict(np.geterr()),
        "decimal_precision": decimal.getcontext().prec,
        "recursion_limit": sys.getrecursionlimit(),
        "warnings": [one for one in warnings.filters if one[2].__module__ == "builtins"],
    }


def apply_process_settings(settings: Mapping[str, Any], *, with_warnings: bool = False) -> None:  # Any: as above
    """Set this process up as the one that the settings were read from.

    Warning filters count only `with_warnings`, once everything is imported: the other process may have had them set
    after its imports, and a filter that raises would end an import.
    """
    _apply_to_torch(settings)
    for name, value in settings["flags"].items():
        if _read_flag(name) not in (None, value):
            path, _, last = name.rpartition(".")
            setattr(reduce(getattr, path.split("."), torch.backends), last, value)
    np.seterr(**settings["numpy_errors"])
    decimal.getcontext().prec = settings["decimal_precision"]
    sys.setrecursionlimit(settings["recursion_limit"])
    if with_warnings:
        warnings.resetwarnings()
        warnings.filters[:] = settings["warnings"]  # type: ignore[index] # a list, whatever its stub says


def _apply_to_torch(settings: Mapping[str, Any]) -> None:  # Any: as above
    torch.set_default_dtype(getattr(torch, settings["dtype"]))
    if settings["device"] != torch.get_default_device().type:
        torch.set_default_device(settings["device"])
    torch.use_deterministic_algorithms(settings["is_deterministic"], warn_only=settings["only_warns"])
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", settings["fills_memory"])  # noqa: B010 # untyped
    if settings["precision"] != torch.get_float32_matmul_precision():
        torch.set_float32_matmul_precision(settings["precision"])
    torch.set_grad_enabled(settings["has_gradients"])
    torch.autograd.set_detect_anomaly(settings["finds_anomalies"], settings["finds_nan"])
    if settings["flushes_denormals"] != _flushes_denormals():
        torch.set_flush_denormal(settings["flushes_denormals"])
    torch.backends.mha.set_fastpath_enabled(settings["attention_fastpath"])
    for name, value in settings["attention_kernels"].items():
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(value)


def _flushes_denormals() -> bool:
    """Tell whether numbers too small for a full mantissa count as zero; torch has no way to ask."""
    return float(torch.tensor(1e-310, dtype=torch.float64, device="cpu") * 1.0) == 0.0


def _read_kernels() -> dict[str, bool]:
    return {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in _SDP_KERNELS}


def _read_flag(name: str) -> Any:  # Any: a flag, a number or a name
    """Return a flag of `torch.backends`; None where this torch has none, or refuses to tell."""
    try:
        return reduce(getattr, name.split("."), torch.backends)
    except (AttributeError, RuntimeError):  # torch raises the second where old and new settings of TF32 are mixed
        return None
