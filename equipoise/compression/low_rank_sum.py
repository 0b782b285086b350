"""PowerSGD: gradients that are matrices travel as products of two narrow ones, found by one power iteration a step.

    P = sum over workers of M Q      P is made orthogonal      Q = sum over workers of M^T P      the sum of M is P Q^T

M is a worker's gradient with what was left out before, Q that of the step before. T. Vogels, S. P. Karimireddy and M.
Jaggi, PowerSGD: practical low-rank gradient compression for distributed optimization, 2019. All P travel in one sum,
with the tensors that go exact, and all Q in another. The product depends on the sum of the workers' gradients alone, so
one worker that has the mean gradient takes the same steps as several.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.planning.exchanges.compression_cost import saves_bytes

VANISHED_SHARE = 1e-6  # of the largest column's norm: a smaller column of Q has no direction of its own


class LowRankSum:
    """Sum of the gradients of all workers in four parts, of which the caller sums the flat tensors in between.

    `start`, sum `flat_p` over processes, `project`, sum `flat_q`, `finish`.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        rank: int,
        processes: int = 1,
        seed: int = 0,
        error_feedback: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Prepare for gradients with the shapes of `tensors`; `seed` chooses the first Q, the same on all workers."""
        self.rank, self.processes = rank, processes
        self.is_low_rank = [uses_low_rank(tensor, rank) for tensor in tensors]
        matrices = [tensor for tensor, low in zip(tensors, self.is_low_rank, strict=True) if low]
        exact = [tensor for tensor, low in zip(tensors, self.is_low_rank, strict=True) if not low]
        like = torch.empty(0, dtype=dtype or tensors[0].dtype, device=tensors[0].device)
        p_sizes = [len(matrix) * rank for matrix in matrices]
        q_sizes = [matrix.numel() // len(matrix) * rank for matrix in matrices]
        self.flat_p = like.new_zeros(sum(p_sizes) + sum(tensor.numel() for tensor in exact))
        """P of all matrices and the tensors that go exact"""
        self.flat_q = like.new_zeros(sum(q_sizes))
        """Q of all matrices"""
        pieces = self.flat_p.split(p_sizes + [tensor.numel() for tensor in exact])
        self.p_matrices = [piece.view(-1, rank) for piece in pieces[: len(matrices)]]
        self.exact_tensors = [piece.view(t.shape) for piece, t in zip(pieces[len(matrices) :], exact, strict=True)]
        self.q_matrices = [piece.view(-1, rank) for piece in self.flat_q.split(q_sizes)] if matrices else []
        generator = torch.Generator().manual_seed(seed)
        self.first_q = [torch.randn(q.shape, generator=generator, dtype=torch.float64).to(q) for q in self.q_matrices]
        for q, first in zip(self.q_matrices, self.first_q, strict=True):
            q.copy_(first)
        self.shapes = [matrix.shape for matrix in matrices]
        sides = [(len(matrix), matrix.numel() // len(matrix)) for matrix in matrices]
        self.error_feedback = error_feedback
        self.inputs = [like.new_zeros(rows, columns) for rows, columns in sides]
        """what is encoded; after `finish` what that has left out, to which the next gradient is added"""
        self.sums = [torch.zeros_like(matrix) for matrix in self.inputs]

    def start(self, gradients: Sequence[Tensor]) -> None:
        """Take this process's gradients, and compute P."""
        low_rank = [g for g, low in zip(gradients, self.is_low_rank, strict=True) if low]
        exact = [g for g, low in zip(gradients, self.is_low_rank, strict=True) if not low]
        for target, gradient in zip(self.exact_tensors, exact, strict=True):
            target.copy_(gradient)
        for index, (matrix, gradient) in enumerate(zip(self.inputs, low_rank, strict=True)):
            if self.error_feedback:
                matrix += gradient.reshape(matrix.shape)
            else:
                matrix.copy_(gradient.reshape(matrix.shape))
            q = replace_vanished_columns(self.q_matrices[index], self.first_q[index])
            torch.mm(matrix, orthogonalize(q), out=self.p_matrices[index])

    def project(self) -> None:
        """Make the summed P orthogonal, and compute Q."""
        for matrix, p, q in zip(self.inputs, self.p_matrices, self.q_matrices, strict=True):
            p.copy_(orthogonalize(p))
            q.copy_((p.T @ matrix).T)  # M^T P takes 10 times as long

    def finish(self) -> list[Tensor]:
        """Return the sums of all gradients from the summed Q, and keep this process's part of what they leave out."""
        for matrix, total, p, q in zip(self.inputs, self.sums, self.p_matrices, self.q_matrices, strict=True):
            torch.mm(p, q.T, out=total)
            if self.error_feedback:
                matrix.sub_(total, alpha=1 / self.processes)
        decoded = iter(total.view(shape) for total, shape in zip(self.sums, self.shapes, strict=True))
        exact = iter(self.exact_tensors)
        return [next(decoded) if low else next(exact) for low in self.is_low_rank]

    @property
    def errors(self) -> list[Tensor]:
        """This process's part of what was left out of each matrix; none if it is not fed back."""
        return self.inputs if self.error_feedback else []


def uses_low_rank(tensor: Tensor, rank: int) -> bool:
    """Return whether a tensor travels as a product: if it is a matrix and the product has fewer numbers."""
    return tensor.ndim > 1 and tensor.numel() > 0 and saves_bytes(len(tensor), tensor.numel() // len(tensor), rank)


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return a matrix of orthonormal columns that span the columns of a tall matrix."""
    orthogonal: Tensor = torch.linalg.qr(matrix).Q
    return orthogonal


def replace_vanished_columns(q: Tensor, first: Tensor) -> Tensor:
    """Return Q with a column of the first Q in place of each that carries nothing, as after gradients of zeros.

    Else the direction that rounding leaves in it would be amplified, or without one the same numbers always left out.
    """
    norms = torch.linalg.vector_norm(q, dim=0)
    return torch.where(norms > VANISHED_SHARE * norms.max(), q, first)
