"""How a DTensor weight is cut over a device mesh, read as cuts of its matrix.

A weight is (out, in, …), its matrix (out, in·…). So a cut along the first dimension separates rows, a cut along the second
separates columns, and the pieces, one below or beside the other, are the matrix again. Other cuts are refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor


@functools.cache
def _is_dtensor(cls: type) -> bool:
    # By name: importing torch.distributed.tensor takes a second that a single process need not pay.
    return any(base.__name__ == "DTensor" for base in cls.__mro__)


def is_dtensor(p: Tensor) -> bool:
    return _is_dtensor(type(p))


@dataclass(frozen=True)
class Cut:
    """One dimension of the mesh that cuts the matrix."""

    rows: bool
    """Whether each part has some of the rows; otherwise, some of the columns."""
    sizes: tuple[int, ...]
    """Rows or columns of each part; the last ones may be empty."""
    place: int
    """Which part is this rank's."""
    group: ProcessGroup

    @property
    def start(self) -> int:
        return sum(self.sizes[: self.place])

    @property
    def size(self) -> int:
        return self.sizes[self.place]

    @property
    def is_even(self) -> bool:
        return len(set(self.sizes)) == 1

    def across(self, shape: Sequence[int]) -> int:
        """The side of a matrix, or of a piece of it, that is not cut."""
        return shape[1] if self.rows else shape[0]


@dataclass(frozen=True)
class Layout:
    shape: tuple[int, int]
    """Of the whole matrix."""
    cuts: tuple[Cut, ...]
    """In the order in which they were made; undone from the last to the first."""
    device: torch.device
    """Where products and communication happen: the mesh's type of device, also for weights offloaded to the CPU."""

    @property
    def tall(self) -> bool:
        return self.shape[0] >= self.shape[1]

    def is_long(self, cut: Cut) -> bool:
        """Whether a cut divides the long side, the one that the smaller Gram matrix sums over."""
        return cut.rows == self.tall


def layout_of(p: DTensor) -> Layout:
    return Layout((p.shape[0], math.prod(p.shape[1:])), _cut(p)[1], _device(p))


def _device(p: DTensor) -> torch.device:
    """Where the ranks of its mesh communicate: the mesh's type of device, also for weights offloaded to the CPU."""
    mesh, device = p.device_mesh, p.to_local().device
    if mesh.device_type != device.type:
        device = torch.device(mesh.device_type, torch.accelerator.current_device_index())
    return device


def _cut(p: DTensor) -> tuple[tuple[int, ...], tuple[Cut, ...]]:
    """The shape of this rank's piece, as the placements make it, and the cuts that lead to it."""
    mesh, coordinate = p.device_mesh, p.device_mesh.get_coordinate()
    assert coordinate is not None
    shape, cuts = list(p.shape), []
    for mesh_dim in _order(p.placements):
        placement: Any = p.placements[mesh_dim]
        dim, parts, place = placement.dim, mesh.size(mesh_dim), coordinate[mesh_dim]
        if parts == 1:
            continue
        chunk = -(-shape[dim] // parts)
        lengths = [max(0, min(chunk, shape[dim] - part * chunk)) for part in range(parts)]
        # One index of the second dimension is several columns of the matrix: those of a kernel's positions.
        columns = math.prod(shape[1:]) // max(1, shape[dim]) if dim else 1
        cuts.append(Cut(dim == 0, tuple(length * columns for length in lengths), place, mesh.get_group(mesh_dim)))
        shape[dim] = lengths[place]
    return tuple(shape), tuple(cuts)


def _order(placements: Any) -> list[int]:
    """Mesh dimensions in the order of their cuts: FSDP on top of tensor parallelism (a strided shard) cuts last."""
    plain = [i for i, placement in enumerate(placements) if _kind(placement) == "Shard"]
    strided = [i for i, placement in enumerate(placements) if _kind(placement) == "_StridedShard"]
    return plain + strided


def _kind(placement: Any) -> str:
    return type(placement).__name__


def unsupported(p: Any) -> str | None:
    """Why this DTensor's layout is not supported, or None."""
    kinds = [_kind(placement) for placement in p.placements]
    for kind, placement in zip(kinds, p.placements, strict=True):
        if kind not in ("Shard", "_StridedShard", "Replicate"):
            return f"is a DTensor placed {placement}: only shards and replicas hold a weight"
        if kind != "Replicate" and placement.dim > 1:
            return f"is a DTensor cut along dimension {placement.dim}: only the first two can be (out and in)"
    mesh, coordinate = p.device_mesh, p.device_mesh.get_coordinate()
    if coordinate is None:
        return f"is a DTensor on a mesh ({mesh}) that this process is not part of"
    if not _is_in_order(p):
        return f"is a DTensor placed {tuple(p.placements)}: only FSDP on top of tensor parallelism may cut in strides"
    for mesh_dim, kind in enumerate(kinds):
        if kind != "Replicate" and dist.get_rank(mesh.get_group(mesh_dim)) != coordinate[mesh_dim]:
            return f"is a DTensor on a mesh ({mesh}) whose ranks are not in order"
    pieces, local = _cut(p)[0], tuple(p.to_local().shape)
    if local != pieces:
        return f"is a DTensor whose local piece is {local} where its placements make it {pieces}"
    return None


def _is_in_order(p: Any) -> bool:
    """Whether the cuts are in the order of `_order`: a strided shard is cut after just the shards to its right."""
    strided = [i for i, placement in enumerate(p.placements) if _kind(placement) == "_StridedShard"]
    if not strided:
        return True
    (at, *others), sizes = strided, p.device_mesh.shape
    placement = p.placements[at]
    right = [i for i in range(at + 1, len(sizes)) if getattr(p.placements[i], "dim", None) == placement.dim]
    return not others and placement.split_factor == math.prod(sizes[i] for i in right)


def as_dtensor(piece: Tensor, like: DTensor) -> DTensor:
    """A local piece as a DTensor with the mesh and the placements of ``like``, a weight."""
    grad: Any = like.grad
    is_alike = is_dtensor(grad) and grad.placements == like.placements and grad.dtype is piece.dtype
    if is_alike:
        # As FSDP2 makes its gradients: DTensor.from_local takes the host ten times as long.
        wrapped: DTensor = type(grad)(piece, grad._spec, requires_grad=False)
        return wrapped
    # Not DTensor.from_local: it would move the piece of an offloaded weight to the mesh's device.
    result = torch.empty_like(like, dtype=piece.dtype, requires_grad=False)
    local(result).copy_(piece)
    return result  # type: ignore[return-value]


def local(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor: all of it, unless it is a DTensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]


def local_gradient(p: Any) -> Tensor:
    """This rank's piece of the gradient, cut as the weight is."""
    grad = p.grad
    if is_dtensor(grad) and grad.placements != p.placements:
        grad = grad.redistribute(placements=p.placements)
    return local(grad)


def norms_of_wholes(norms: Tensor, like: DTensor) -> Tensor:
    """Norms of whole tensors out of those of this rank's pieces; all are cut as ``like`` is. All ranks have to call this."""
    mesh = like.device_mesh
    squares = norms.square().to(_device(like))
    for mesh_dim, placement in enumerate(like.placements):
        if _kind(placement) != "Replicate" and mesh.size(mesh_dim) > 1:
            dist.all_reduce(squares, group=mesh.get_group(mesh_dim))
    return squares.sqrt().to(norms.device)


def largest_of_ranks(values: Tensor, like: DTensor) -> Tensor:
    """The largest of the values that the ranks of the mesh of ``like`` have. All of them have to call this."""
    largest = values.to(_device(like), copy=True)
    for mesh_dim in range(like.device_mesh.ndim):
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=like.device_mesh.get_group(mesh_dim))
    return largest.to(local(like).device)
