"""Laws of the sphere against plain NumPy and closed-form moments."""

import math

import pytest
import torch

from draws import generator
from mnemosphere.numerics import sphere

B, N = 13, 7


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_project_ignores_the_scale_even_where_squares_leave_the_range(scale: float) -> None:
    x = draw(1, B, N, dtype=torch.float32)
    torch.testing.assert_close(sphere.project(scale * x), sphere.project(x), rtol=1e-6, atol=1e-7)
    sphere.check(sphere.project(scale * x))


def test_project_gradient_matches_finite_differences() -> None:
    x = draw(2, 3, N).requires_grad_()
    assert torch.autograd.gradcheck(sphere.project, (x,))


def test_check_names_the_first_bad_row() -> None:
    x = sphere.project(draw(8, 3, 5, N))
    x[1, 2] = math.nan
    x[2, 0] = 0.0
    with pytest.raises(ValueError, match=r"row \(1, 2\) of x has entries that are not finite"):
        sphere.check(x)


def test_sample_uniform_has_the_moments_of_the_uniform_law() -> None:
    n, size = 5, 40_000
    x = sphere.sample_uniform(size, n, generator=generator(9)).double()
    sphere.check(x.float())
    # E x = 0, E x x' = 1/n, E x_1^4 = 3/(n(n+2)): each within five standard errors.
    assert float(x.mean(0).abs().max()) < 5 / math.sqrt(n * size)
    second = x.T @ x / size
    assert float((second - torch.eye(n) / n).abs().max()) < 5 / math.sqrt(n * size)
    assert abs(float((x**4).mean()) - 3 / (n * (n + 2))) < 5 * 0.2 / math.sqrt(n * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2003, 20011])
def test_norms_of_entries_that_are_nearly_equal(n: int, dtype: torch.dtype) -> None:
    """As in a centered row of few counts: rounding errors of a plain sum would all have one sign."""
    x = torch.full((5, n), -1e-3, dtype=dtype) + 1e-6 * draw(8, 5, n, dtype=dtype)
    x[:, :11] += 0.5
    few = 8 * torch.finfo(dtype).eps
    for rows in (x, x.T.contiguous().T):
        exact = [math.sqrt(math.fsum(v * v for v in row)) for row in rows.double().tolist()]
        assert sphere.norms(rows).tolist() == pytest.approx(exact, rel=few)
        unit = sphere.project(rows).double()
        again = [math.sqrt(math.fsum(v * v for v in row)) for row in unit.tolist()]
        assert again == pytest.approx([1.0] * 5, rel=few)


def test_retract_agrees_with_the_geodesic_to_second_order() -> None:
    x = sphere.project(draw(5, B, N))
    v = sphere.to_tangent(x, draw(6, B, N))
    norm = v.norm(dim=-1, keepdim=True)
    gaps = []
    for h in (1e-2, 5e-3):
        geodesic = torch.cos(h * norm) * x + torch.sin(h * norm) * v / norm
        gaps.append(float((sphere.retract(x, h * v) - geodesic).norm()))
    assert 7.0 < gaps[0] / gaps[1] < 9.0  # the gap is of third order in h
