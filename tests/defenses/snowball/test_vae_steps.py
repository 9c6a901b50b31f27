"""The VAE's steps by hand are those of torch's autograd and torch's Adam, in any number of blocks."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from snowball.defenses.snowball import vae_steps
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.defenses.snowball.vae_steps import FEW_ROWS, Affine, Layers, Learning, Part, split_rows
from snowball.rng import stream
from snowball.threads import make_executor

WIDTH, LATENT, BLOCK = 20, 5, 320
"""With 48 hidden units, a block of so many elements holds 16 rows of three times as many."""


def build(threads: int = 1, bounded: bool = True) -> VAE:
    settings = VAESettings(hidden=48, latent=LATENT, cpu_threads=threads)
    return VAE(WIDTH, settings, stream(1), batch=8, bounded=bounded).double()


def draw(count: int, width: int) -> Tensor:
    return torch.rand(count, width, generator=torch.Generator().manual_seed(width)).double()


def compute_loss(vae: VAE, inputs: Tensor, noise: Tensor) -> Tensor:
    hidden = vae.encode(vae.enter(inputs).relu()).relu()
    mean, raw = vae.code(hidden).chunk(2, 1)
    log_variance = softplus(raw)
    code = mean + (0.5 * log_variance).exp() * noise
    outputs = vae.leave(vae.widen(vae.decode(code).relu()).relu())
    error = ((outputs.sigmoid() if vae.bounded else outputs) - inputs).square().sum()
    return error - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()


def take_plain_step(changes: Sequence[tuple[Part, Tensor]], lr: float) -> None:
    for part, gradient in changes:
        part.values.sub_(gradient)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bounded", [True, False])
def test_gradients_by_hand_are_those_of_autograd(threads: int, bounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae_steps, "take_adam_step", take_plain_step)
    monkeypatch.setattr(vae_steps, "BLOCK_ELEMENTS", BLOCK)
    vae = build(threads, bounded)
    inputs, noise = draw(8, WIDTH), draw(8, LATENT)
    expected = torch.autograd.grad(compute_loss(vae, inputs, noise), list(vae.parameters()))
    before = [parameter.detach().clone() for parameter in vae.parameters()]
    layers = Layers(vae.enter, vae.encode, vae.code, vae.decode, vae.widen, vae.leave)
    with torch.no_grad(), make_executor(threads) as executor:
        learning = Learning(layers, 1.0, bounded, executor)
        assert len(learning.enter.blocks) == len(learning.leave.blocks) == 3
        learning.take_step(inputs, noise)
        learning.finish()
    for start, parameter, gradient in zip(before, vae.parameters(), expected, strict=True):
        torch.testing.assert_close(start - parameter.detach(), gradient)


@pytest.mark.parametrize("block", [BLOCK, 1 << 19])
def test_learning_takes_the_steps_of_torchs_adam(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae_steps, "BLOCK_ELEMENTS", block)
    differences, ours, theirs = draw(20, WIDTH), build(), build()
    ours.learn(differences, 4)

    optimiser, inputs = torch.optim.Adam(theirs.parameters(), theirs.settings.lr), differences.sigmoid()
    for _ in range(4):
        for rows in torch.split(torch.randperm(20, generator=theirs.rng), 8):
            optimiser.zero_grad()
            noise = torch.randn(len(rows), LATENT, generator=theirs.rng)
            torch.autograd.backward(compute_loss(theirs, inputs[rows], noise))
            optimiser.step()
    for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(our, their)


def test_a_second_thread_changes_no_bit() -> None:
    learned = []
    for threads in (1, 2):
        vae = build(threads).float()
        vae.learn(draw(19, WIDTH).float(), 6)
        learned.append([*vae.parameters(), vae.errors(draw(3, WIDTH).float())])
    assert all(map(torch.equal, *learned))


@pytest.mark.parametrize(("rows", "sizes"), [(256, [128, 128]), (300, [160, 140]), (20, [20])])
def test_blocks_hold_all_rows_in_multiples_that_processors_handle(rows: int, sizes: list[int]) -> None:
    matrix = torch.randn(rows, 3360)
    blocks = split_rows(matrix)
    assert [len(block.values) for block in blocks] == sizes
    assert torch.cat([block.values for block in blocks]).equal(matrix)


@pytest.mark.parametrize("rows", [1, 3, 4, 40])
def test_a_layer_stored_by_input_has_the_same_weights_and_outputs(rows: int) -> None:
    plain, by_input = (Affine(48, 1000, stream(1), by_input=by_input) for by_input in (False, True))
    inputs = torch.randn(rows, 48)
    assert torch.equal(plain.weight, by_input.weight)
    assert not by_input.weight.is_contiguous()
    torch.testing.assert_close(plain(inputs), by_input(inputs))
    assert by_input.order_weight(rows).is_contiguous() == (rows < FEW_ROWS)


def test_no_step_leaves_a_layer_as_it_is() -> None:
    vae: Any = build()
    before = deepcopy(vae.state_dict())
    vae.learn(draw(20, WIDTH), 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in vae.state_dict().items())
