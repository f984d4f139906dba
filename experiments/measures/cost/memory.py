"""Peak memory of a computation, beyond what was allocated before it."""

import gc
from typing import Any, Self
from weakref import WeakSet, ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class CountedMemory(TorchDispatchMode):
    """Counts the bytes that tensors created within occupy at once, on the CPU: exact, and the same each time.

    A storage counts from the operation that creates it until nothing refers to it; views share one. Storages from
    before (parameters, inputs) do not count; storages that stay (gradients, optimizer moments) do. Buffers inside one
    operation and memory that the allocator keeps are not counted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = 0
        self._sizes: dict[ref[torch.UntypedStorage], int] = {}
        self._before: WeakSet[torch.UntypedStorage] = WeakSet()

    def restart(self) -> None:
        self.peak = self.held

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten.lift_fresh.default:  # torch.tensor(…) announces a new tensor by it
            self._before.update(s for s in _storages((args, kwargs)) if ref(s) not in self._sizes)
        made = func(*args, **(kwargs or {}))
        for storage in _storages(made):
            if storage not in self._before:
                key, size = ref(storage, self._remove), storage.nbytes()
                self.held += size - self._sizes.get(key, 0)
                self._sizes[key] = size
                self.peak = max(self.peak, self.held)
        return made

    def _remove(self, storage: ref[torch.UntypedStorage]) -> None:
        self.held -= self._sizes.pop(storage)


class AllocatedMemory:
    """Reads the peak from the allocator of a GPU: with buffers of kernels, in blocks of 512 bytes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> Self:
        gc.collect()
        self._before = torch.cuda.memory_allocated(self.device)
        self.restart()
        return self

    def __exit__(self, *error: object) -> None:
        torch.cuda.synchronize(self.device)
        self.peak = torch.cuda.max_memory_allocated(self.device) - self._before

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)


def peak_memory(device: torch.device) -> CountedMemory | AllocatedMemory:
    """Return a context that measures peak memory as ``peak``, in bytes; on a GPU it is set at the end."""
    return AllocatedMemory(device) if device.type == "cuda" else CountedMemory()


def _storages(parts: Any) -> list[torch.UntypedStorage]:
    return [part.untyped_storage() for part in tree_leaves(parts) if isinstance(part, Tensor)]
