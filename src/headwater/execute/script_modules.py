"""Modules that no other process can import: the main script, a notebook, a file that `headwater run` has loaded.

What they define is sent by value. The receiver gets an empty module of the same name for it, and never runs their code.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

_ABOUT = ("__name__", "__file__", "__package__")


class ScriptLoader(SourceFileLoader):
    """Loads a file that is to be run, not imported: another process that imported it would run the study in it."""


def is_importable(name: str) -> bool:
    """Tell whether another process that imports this name gets the module of this name here, and runs no script."""
    module = sys.modules.get(name)
    root = name.partition(".")[0]  # a package may make its modules as it likes, once it is imported
    spec = getattr(sys.modules.get(root), "__spec__", None)
    if root == "__main__" or module is None or spec is None or spec.name != root or _is_script(module):
        return False
    found = _find_spec(root)
    return found is not None and _place_of(found) == _place_of(spec)


def describe_module(space: Mapping[str, object]) -> dict[str, object]:
    """Return what the code in a module's namespace may ask about it."""
    return {name: space[name] for name in _ABOUT if name in space}


def list_scripts() -> list[str]:
    """Return the modules that nobody must import again: the main script, and files that were loaded as scripts."""
    return [name for name, module in [*sys.modules.items()] if name == "__main__" or _is_script(module)]


def open_module(name: str, about: Mapping[str, object]) -> ModuleType:
    """Return this process's stand-in for a module that it cannot import, and make it if there is none."""
    module = sys.modules.get(name)
    if module is None or not _is_script(module):
        module = ModuleType(name)
        module.__loader__ = ScriptLoader(name, str(about.get("__file__") or ""))
        sys.modules[name] = module
    vars(module).update(about, __builtins__=builtins)  # which code that is called from there asks for
    return module


def _is_script(module: object) -> bool:
    return isinstance(module, ModuleType) and isinstance(vars(module).get("__loader__"), ScriptLoader)


def _place_of(spec: ModuleSpec) -> str | None:
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _find_spec(name: str) -> ModuleSpec | None:
    """Look a top-level module up as an import in a fresh process would."""
    found = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in found if spec is not None), None)
