"""How much memory a computation holds at once, beyond what was there before it."""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet, ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Held(TorchDispatchMode):
    """Bytes that tensors made within hold at once: exact, and the same each time. For computations on the CPU.

    A storage counts from the operation that makes it until nothing refers to it any longer; views share one. What was
    there before (parameters, inputs) does not count; what stays (gradients, an optimizer's moments) does. Not seen is
    what one operation takes and gives back before it returns, such as the blocks of a fused attention kernel, and what
    an allocator keeps of what was freed: a process may hold more.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = 0
        self._sizes: dict[ref[torch.UntypedStorage], int] = {}
        self._before: WeakSet[torch.UntypedStorage] = WeakSet()

    def restart(self) -> None:
        """Forget the peak so far; what is held stays counted."""
        self.peak = self.held

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten.lift_fresh.default:  # which is how torch.tensor(…) announces what it has made
            self._before.update(s for s in _storages((args, kwargs)) if ref(s) not in self._sizes)
        made = func(*args, **(kwargs or {}))
        for storage in _storages(made):
            if storage not in self._before:
                self._hold(ref(storage, self._let_go), storage.nbytes())
        return made

    def _hold(self, storage: ref[torch.UntypedStorage], size: int) -> None:
        self.held += size - self._sizes.get(storage, 0)
        self._sizes[storage] = size
        self.peak = max(self.peak, self.held)

    def _let_go(self, storage: ref[torch.UntypedStorage]) -> None:
        self.held -= self._sizes.pop(storage)


class HeldOnDevice:
    """The same on a GPU, by its allocator: with what kernels take for themselves, in blocks of 512 bytes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> Self:
        gc.collect()
        self._before = torch.cuda.memory_allocated(self.device)
        self.restart()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.cuda.synchronize(self.device)
        self.peak = torch.cuda.max_memory_allocated(self.device) - self._before

    def restart(self) -> None:
        """Forget the peak so far; what is held stays counted."""
        torch.cuda.reset_peak_memory_stats(self.device)


def holding(device: torch.device) -> Held | HeldOnDevice:
    """Counts what is held at once within, as ``peak``, in bytes; on a GPU it is there at the end."""
    return HeldOnDevice(device) if device.type == "cuda" else Held()


def _storages(parts: Any) -> list[torch.UntypedStorage]:
    return [part.untyped_storage() for part in tree_leaves(parts) if isinstance(part, Tensor)]
