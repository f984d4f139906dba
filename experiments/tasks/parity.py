import torch
from torch import Tensor

from experiments.tasks import Question, Stepwise, tasks


@tasks.register("parity")
class Parity(Stepwise):
    """Tell whether the number of ones is odd: ``1 0 1 1 | 1``. Any proper part of the bits says nothing.

        scratchpad=false    tokens    ^ 1 0 1 1 |        scratchpad=true    ^ 1 0 1 1 | 1 1 0
                            targets   . . . . . 1                           . . . . . 1 1 0 1

    Length counts bits. With a scratchpad, the answer is the parity of the bits so far, one for each bit. A
    bidirectional model is asked for all of them at once. Parity check of Delétang et al. (2023), arXiv:2207.02098; the
    scratchpad and its coupled positions as in the official code of Cho et al. (2024), arXiv:2405.20671.

    Chance: ``1 / 2``, of a whole scratchpad ``2 ** -length``. Best guess from position: no better.

    Args:
        scratchpad: whether the parity after each bit is asked for, not the last alone.
        index_hints: longest length whose bits may have a token for their place before them, in the scratchpad too, at
            least ``train_length``; 0: no such hints.
    """

    def __init__(
        self, *, train_length: int = 16, min_length: int = 1, scratchpad: bool = False, index_hints: int = 0
    ) -> None:
        lengths = {"train_length": train_length, "min_length": min_length}
        super().__init__(**lengths, scratchpad=scratchpad, index_hints=index_hints)

    def values(self, problems: Tensor) -> Tensor:
        return problems.cumsum(-1) % 2

    def numbered(self, kind: str, length: int) -> tuple[Tensor, int, Tensor] | None:
        bits = torch.arange(1, length + 1)
        if self.scratchpad and kind in ("coupled", "abacus"):
            return bits, 0, bits
        return (bits, 0, torch.zeros(1, dtype=torch.long)) if kind == "abacus" else None


@tasks.register("parity_check")
class ParityCheck(Question):
    """Tell whether the number of 1s is odd: ``1 0 1 0 1 | 1``. The order of the input does not matter.

        tokens    ^ 1 0 1 0 1 |
        targets   . . . . . . 1

    Delétang et al. (2023), arXiv:2207.02098: a regular task.

    Chance: ``1 / 2``. Best guess from position: no better.
    """

    def solve(self, problems: Tensor) -> Tensor:
        return problems.sum(-1, keepdim=True) % 2
