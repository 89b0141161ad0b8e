"""The stand-in for a card refuses what a card refuses, computes what the CPU computes, and counts what a card waits for."""

import copy
import pickle

import card
import numpy as np
import pytest
import torch
from card import costs

OPS = {
    "two devices": lambda x: x + torch.ones(3),
    "product of two devices": lambda x: x @ torch.ones(3),
    "a number of the card, rows of the host": lambda x: torch.ones(3) + x[0, 0],
    "in place on the host": lambda x: torch.ones(2, 3).mul_(x),
    "out on the host": lambda x: torch.mm(x, x.T, out=torch.empty(2, 2)),
    "parts of two devices": lambda x: torch.cat([x[0], torch.ones(3)]),
    "index of the card, rows of the host": lambda x: torch.ones(3)[torch.zeros(1, dtype=torch.long, device="cuda")],
    "mask of the host": lambda x: torch.where(torch.ones(2, 3) > 0, x, x),
    "values of the host": lambda x: x.index_put_((torch.zeros(2, dtype=torch.long, device="cuda"),), torch.ones(2, 3)),
    "positions of the host": lambda x: x.index_add_(0, torch.zeros(2, dtype=torch.long), x),
    "generator of the host": lambda x: torch.randn(2, device="cuda", generator=torch.Generator()),
    "a second card": lambda x: torch.zeros(1, device="cuda:7"),
    "gradient": lambda x: torch.autograd.grad((x.cpu().requires_grad_() * torch.ones(3)).sum(), x),
}


@pytest.fixture
def x():
    with card.card():
        yield torch.arange(6.0, device="cuda").reshape(2, 3)


@pytest.mark.parametrize("name", OPS)
def test_a_card_refuses(name, x):
    with pytest.raises(RuntimeError):
        OPS[name](x)


@pytest.mark.parametrize("read", [lambda x: x.numpy(), np.asarray, lambda x: np.ones(3) @ x, np.sin,
                                  lambda x: torch.ones(3).numpy() + x.T.numpy()])
def test_numpy_does_not_read_a_card(read, x):
    with pytest.raises(TypeError):
        read(x)


def test_what_a_card_allows(x):
    rows = torch.tensor([1, 0])
    assert x.is_cuda and x.device == torch.device("cuda:0") and torch.cuda.is_available()
    assert (x * torch.tensor(2.0)).tolist() == (2 * x).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert x[rows].tolist() == x.flip(0).tolist() and x[rows].is_cuda
    y = torch.empty(2, 3)
    y.copy_(x)
    assert torch.equal(y, x.cpu()) and y.to(x).is_cuda and x.new_tensor([1.0]).is_cuda
    x[0] = torch.ones(3)
    x[x > 3] = 0.0
    x[1].add_(1)  # a view
    assert x.tolist() == [[1, 1, 1], [4, 1, 1]] and f"{x[1, 0]:.1f}" == "4.0" and len(x) == 2 and 4.0 in x
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.is_cuda and twin.tolist() == x.tolist()
    assert int(torch.linalg.matrix_rank(x)) == 2
    assert torch.tensor(1.0, device="cuda").is_cuda and torch.as_tensor(np.ones(2), device="cuda").is_cuda
    assert torch.mv(x, x[0], out=torch.empty(2, device="cuda")).tolist() == [3, 6]
    z = torch.complex(x, x)[:, :2].conj()
    assert (z * 2).cpu().tolist() == [[2 - 2j, 2 - 2j], [8 - 8j, 2 - 2j]] and z.imag.sum().item() == -7


def test_gradients_cross_the_border(x):
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, device="cuda", requires_grad=True)
    loss = (x @ (w.to("cuda") * v)).square().sum()
    loss.backward()
    assert w.grad.device.type == "cpu" and v.grad.is_cuda and w.grad.tolist() == v.grad.tolist() == [72, 102, 132]
    layer = torch.nn.Linear(3, 2).to("cuda")
    layer(x).sum().backward()
    assert layer.weight.is_cuda and layer.weight.grad.tolist() == [[3, 5, 7]] * 2


class Careless(torch.autograd.Function):
    """Its backward multiplies by a tensor of the host."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, G):
        return G * torch.full(G.shape, 2.0)


def test_a_backward_is_checked_too(x):
    with pytest.raises(RuntimeError, match="same device"):
        Careless.apply(x.requires_grad_()).sum().backward()


@pytest.mark.parametrize(("kind", "number", "do"), [
    ("waits", 1, lambda x: x[0, 1].item()), ("waits", 1, lambda x: float(x.sum())), ("waits", 1, lambda x: x[x > 1]),
    ("waits", 1, lambda x: "" if (x > 1).any() else ""), ("waits", 1, lambda x: x.nonzero()),
    ("waits", 1, lambda x: torch.equal(x, x)), ("waits", 1, lambda x: torch.allclose(x, x)),
    ("waits", 1, lambda x: torch.cuda.synchronize()), ("waits", 1, lambda x: range(9)[x[0, 1].long()]),
    ("waits", 1, lambda x: x.clone().index_put_((x > 1,), x[0, 0])),
    ("downloads", 1, lambda x: x.cpu()), ("downloads", 1, lambda x: x.tolist()), ("downloads", 1, lambda x: x.to("cpu")),
    ("downloads", 1, lambda x: torch.ones(2, 3).copy_(x)), ("uploads", 1, lambda x: torch.ones(3).to(x)),
    ("uploads", 1, lambda x: torch.tensor([1.0], device="cuda")), ("uploads", 1, lambda x: x[torch.tensor([0])]),
    ("uploads", 1, lambda x: x.new_tensor([1.0])), ("factorizations", 1, lambda x: torch.linalg.cholesky(x[:, 1:] @ x[:, 1:].T)),
    ("factorizations", 1, lambda x: torch.linalg.svd(x)), ("waits", 0, lambda x: x[1:].add_(x.sum()).T.contiguous()),
    ("uploads", 0, lambda x: torch.zeros(3, device="cuda") + 1.0), ("downloads", 0, lambda x: x.to(x.device)),
])
def test_what_a_card_waits_for(kind, number, do, x):
    with costs() as spent:
        do(x)
    assert spent == ({kind: number} if number else {})


def test_costs_name_the_line(x):
    from rfteach.arrays import as_tensor

    with costs() as spent:
        as_tensor(x)
    assert {line.partition(":")[0] for _, line in spent.places} == {"arrays.py"}


@pytest.mark.skipif(card.REAL, reason="with a real card it stays")
def test_the_card_goes_again():
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1).to("cuda")
