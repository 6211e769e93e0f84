"""What a model asks of values in a forward (`if x.sum() > 0`, `int(mask.sum())`), noted once and told again.

Tensors without values cannot answer, so a model that asks is run once as it is called, and whenever it is traced it
hears what it heard then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwater import devices

Answers: TypeAlias = Sequence[Any]
"""Numbers, truth values and lists of these, in the order in which they were asked for."""

_QUESTIONS = frozenset({"item", "tolist", "__bool__", "__int__", "__float__", "__index__"})
_NO_OPTIONS: Mapping[str, Any] = {}


def note_answers(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answers:
    """Call a model as it was called, and return what its forward asked of values; the model is left as it was."""
    questions = _Questions()
    generators = [torch.default_generator, *devices.list_generators()]
    states = [generator.get_state() for generator in generators]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.no_grad():
        try:
            with questions:
                model(*args, **kwargs)
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
        for buffer, before in buffers:
            buffer.copy_(before)
    return questions.answers


class TellAgain(TorchFunctionMode):
    """Answers what is asked of values as it was answered before."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = list(answers)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answer a question, or make the call."""
        if self._answers and _is_question(func):
            return self._answers.pop(0)
        return func(*args, **(kwargs or _NO_OPTIONS))


class _Questions(TorchFunctionMode):
    """Notes what is asked of values."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Any] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Make a call, and keep its answer where it is one."""
        answer = func(*args, **(kwargs or _NO_OPTIONS))
        if _is_question(func):
            self.answers.append(answer)
        return answer


def _is_question(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name in _QUESTIONS and func == getattr(Tensor, name)
