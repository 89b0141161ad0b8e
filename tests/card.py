"""A card without a card: tensors that say ``cuda:0``, are computed on the CPU, and refuse what a card refuses.

Where there is a real card, its own tensors are used. On both it is counted what a card waits for.
"""

import contextlib
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import rfteach
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
REAL = torch.cuda.is_available()
# The host cannot go on before it has the answer: how many there are, or what a number is.
WAITS = {"_local_scalar_dense", "is_nonzero", "equal", "allclose", "nonzero", "masked_select", "_unique2", "unique_dim",
         "unique_consecutive", "bincount", "histc", "multinomial", "repeat_interleave"}
# Whether a factorization succeeded is asked by the host.
FACTORIZATIONS = {"_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_lstsq"}
ROWS = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}  # their indices may lie on the host
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addbmm"}  # not of integers

# Below this mode nothing reads the mark of a complex conjugate that is still to be taken.
EAGER = {torch.ops.aten._conj.default: torch.ops.aten._conj_physical.default,
         torch.ops.aten._neg_view.default: torch.ops.aten.neg.default}


class CardTensor(torch.Tensor):
    """A tensor on the card; what it holds lies on the CPU, where only the two modes reach it."""

    @staticmethod
    def __new__(cls, held):
        self = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype)
        self.held = held
        return self

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a tensor of the card, after the card was taken away or in another thread")

    def get_device(self):
        return 0

    def numpy(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = __dlpack__ = __cuda_array_interface__ = data_ptr = numpy

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol):
        return CardTensor, (self.held,)

    def __format__(self, form):
        return format(self.item(), form) if self.ndim == 0 else object.__format__(self, form)

    def __repr__(self, **kwargs):
        return f"{self.held!r} on {self.device}"


class Move(torch.autograd.Function):
    """From the host to the stand-in and back; the gradient goes the other way."""

    @staticmethod
    def forward(ctx, x):
        return x.held.clone() if x.is_cuda else CardTensor(x.clone())

    @staticmethod
    def backward(ctx, g):
        count("uploads" if g.device == CPU else "downloads")
        return Move.apply(g)


TOTAL, PLACES = Counter(), Counter()
PACKAGE = str(Path(rfteach.__file__).parent)


def count(kind):
    """Note a transfer or a wait, and the line of the package that asked for it."""
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    TOTAL[kind] += 1
    PLACES[kind, frame and f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"] += 1


def note(name, tensors, args, kwargs):
    """Count what this operation costs beyond its arithmetic."""
    if not any(t.is_cuda for t in tensors) and torch.device(kwargs.get("device") or "cpu") == CPU:
        return
    host = [t for t in tensors if not t.is_cuda]
    if name == "copy_" and host:
        count("uploads" if args[0].is_cuda else "downloads")
    elif name == "_to_copy" and kwargs.get("device") is not None:
        if kwargs["device"].type != args[0].device.type:
            count("uploads" if host else "downloads")
    elif name in ROWS:
        given = [i for i in args[1] if i is not None]
        for kind in ["uploads"] * any(not i.is_cuda for i in given) + ["waits"] * any(
                i.dtype in (torch.bool, torch.uint8) for i in given):
            count(kind)
    elif name in WAITS:
        count("waits")
    elif name in FACTORIZATIONS:
        count("factorizations")


def each(do, x):
    """What ``do`` makes of each leaf of tuples, lists and dictionaries."""
    if isinstance(x, (tuple, list)):
        return type(x)([each(do, part) for part in x])
    return {key: each(do, part) for key, part in x.items()} if isinstance(x, dict) else do(x)


def known(device):
    if device.type == "cuda" and device.index:
        raise RuntimeError("CUDA error: invalid device ordinal")


class Stand(TorchDispatchMode):
    """All arithmetic passes here: it is counted and, without a real card, checked and computed on the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        tensors = []
        each(lambda x: isinstance(x, torch.Tensor) and tensors.append(x), (args, list(kwargs.values())))
        note(name, tensors, args, kwargs)
        if REAL:
            return func(*args, **kwargs)
        given, asked = [t for t in tensors if t.is_cuda], kwargs.get("device")
        here = bool(given) if asked is None else torch.device(asked).type == "cuda"
        here = here or Door.inside and not tensors and torch.device(asked or CPU) == CPU
        if not given and not here:
            return func(*args, **kwargs)
        if here and asked is not None:
            known(torch.device(asked))
            kwargs["device"] = CPU
        if not Door.backwards:
            self.check(func, name, args, kwargs, tensors, here)
        wrappers = {id(t.held): t for t in given}
        inner = each(lambda t: t.held if isinstance(t, CardTensor) else t, (args, kwargs))
        out = EAGER.get(func, func)(*inner[0], **inner[1])
        if torch.Tag.inplace_view in func.tags:
            with no_dispatch():  # the shape that C++ knows
                return func(*args, **kwargs)
        for t in given:
            if t.held.shape != t.shape or t.held.stride() != t.stride():
                raise NotImplementedError(f"{func} changes the shape of a tensor in place")
        if name == "copy_":
            return args[0]
        if not here:
            return out
        return each(lambda t: wrappers.get(id(t)) if id(t) in wrappers else CardTensor(t)
                        if isinstance(t, torch.Tensor) else t, out)

    @staticmethod
    def check(func, name, args, kwargs, tensors, here):
        generator = kwargs.get("generator")
        if here and generator is not None and generator.device.type != "cuda":
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{generator.device.type}'")
        if name in ("copy_", "_to_copy"):
            return
        if here and name.rstrip("_") in PRODUCTS and not (args[0].is_floating_point() or args[0].is_complex()):
            raise RuntimeError(f'"{name}_cuda" not implemented for {args[0].dtype}')
        if here and name == "linalg_lstsq":
            if kwargs.setdefault("driver", "gels") not in (None, "gels"):
                raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels) for a card")
            kwargs["driver"] = "gels"
        if name in ROWS:
            tensors = [args[0]] + [t for t in args[1] if t is not None and (t.is_cuda and not args[0].is_cuda)] + [
                t for t in args[2:3] if t.ndim]
        elif torch.Tag.pointwise in func.tags and not (func._schema.is_mutable and not args[0].is_cuda):
            tensors = [t for t in tensors if t.is_cuda or t.ndim] + [t for t in [kwargs.get("out")] if t is not None]
        if len({t.is_cuda for t in tensors}) > 1:
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
                               f"and cpu! ({func}; shapes {[tuple(t.shape) for t in tensors]})")


class Door(TorchFunctionMode):
    """The calls that decide in C++, before any arithmetic, what moves where."""

    backwards = False  # within torch's own derivatives, which make zeros on the device that C++ knows
    inside = False  # within a function of torch, of tensors of the card, which makes others there

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before, found = (Door.backwards, Door.inside), []
        each(lambda x: isinstance(x, CardTensor) and found.append(x), (args, kwargs or {}))
        Door.backwards, Door.inside = False, bool(found)
        try:
            return self.call(func, args, kwargs)
        finally:
            Door.backwards, Door.inside = before

    def call(self, func, args, kwargs):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in ("to", "cpu", "cuda") and args and isinstance(args[0], torch.Tensor):
            return self.to(name, *args, **kwargs)
        if name == "meshgrid" and len({t.is_cuda for t in (args[0] if isinstance(args[0], (tuple, list)) else args)}) > 1:
            raise RuntimeError("torch.meshgrid: expected all tensors to have the same device")
        if name == "type_as":
            return args[0].to(args[1])
        if name in ("tensor", "as_tensor", "asarray", "new_tensor"):
            source = args[1 if name == "new_tensor" else 0]
            own = args[0].device if name == "new_tensor" else getattr(source, "device", CPU)
            device = torch.device(kwargs.pop("device", None) or own)
            if isinstance(source, torch.Tensor):
                return self.to("to", source, device, kwargs.get("dtype"), copy=name[:2] != "as")
            if name == "new_tensor":
                kwargs, args, func = {"dtype": args[0].dtype, **kwargs}, args[1:], torch.tensor
            return self.to("to", func(*args, **kwargs), device)
        if name == "tolist" and isinstance(args[0], CardTensor):
            count("downloads")
            return args[0].held.tolist()
        return func(*args, **kwargs)

    @staticmethod
    def to(name, x, *args, copy=False, memory_format=None, **kwargs):
        if name != "to":
            args = {"cpu": (CPU,), "cuda": (args or (kwargs.pop("device", None) or CUDA,))}[name]
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        other = kwargs.pop("other", None)
        if other is not None:
            args = (other.device, other.dtype)
        device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        device, dtype = device or x.device, dtype or x.dtype
        if device.type not in ("cpu", "cuda") or x.device.type not in ("cpu", "cuda"):
            return torch._C.TensorBase.to(x, device, dtype, copy=copy)
        known(device)
        if dtype != x.dtype or copy and device.type == x.device.type:
            x = torch._C.TensorBase.to(x, dtype, copy=copy)
        if device.type != x.device.type:
            count("uploads" if x.device == CPU else "downloads")
            x = Move.apply(x)
        return x


def run_backward(*args, run=torch.autograd._engine_run_backward, **kwargs):
    before, Door.backwards, Door.inside = (Door.backwards, Door.inside), True, False
    try:
        with Door():
            return run(*args, **kwargs)
    finally:
        Door.backwards, Door.inside = before


@contextlib.contextmanager
def card():
    """Within it there is a card, and what it waits for is counted."""
    with contextlib.ExitStack() as stack:
        if not REAL:
            answers = dict(_lazy_init=None, is_available=True, device_count=1, current_device=0, empty_cache=None,
                           get_device_name="stand-in", mem_get_info=(2**33, 2**33), is_bf16_supported=True,
                           get_device_properties=SimpleNamespace(name="stand-in", total_memory=2**33))
            for name, answer in answers.items():
                stack.enter_context(mock.patch.object(torch.cuda, name, lambda *a, _answer=answer, **k: _answer))
            stack.enter_context(mock.patch.object(torch.autograd, "_engine_run_backward", run_backward))
            stack.enter_context(Door())
            before = torch.__future__.get_overwrite_module_params_on_conversion()
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, before)
        stack.enter_context(mock.patch.object(torch.cuda, "synchronize", lambda *a, **k: count("waits")))
        stack.enter_context(Stand())
        yield


@contextlib.contextmanager
def costs():
    """Count within a block: a Counter of uploads, downloads, waits and factorizations, complete at its end."""
    found = Counter()
    before, places = TOTAL.copy(), PLACES.copy()
    yield found
    found.update(TOTAL - before)
    found.places = PLACES - places
