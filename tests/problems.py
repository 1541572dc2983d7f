"""Random problems and the plain differentiable loss that many tests compare with."""

import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import typer.testing
from hypothesis import HealthCheck, settings
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from browser import Browser, find_chromium
from mnemosphere.estimators import choice
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import Statistics
from mnemosphere.training.dataset import ArrayDataset

# The same examples on every machine: a red test here is red everywhere.
settings.register_profile("mnemosphere", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("mnemosphere")
torch.set_num_threads(1)  # problems this small only lose time to a second thread


def campaign(examples: int) -> Callable[[Any], Any]:
    """So many random examples with CAMPAIGN=1 in the environment, else a few, always the same."""
    whole = "CAMPAIGN" in os.environ
    return settings(
        max_examples=examples if whole else max(5, examples // 40), derandomize=not whole,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip


def slow_but(always: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """All values of a parameter; those that are not tried in every run are slow."""
    return [pytest.param(k, marks=[pytest.mark.slow] * (k not in always)) for k in every]


class Case(SimpleNamespace):
    """A fixture for tests of Hypothesis, which print it with a failing example: its name alone."""

    def __repr__(self) -> str:
        return f"Case({self.name!r})"


# The commands of an application are the same in every call: made once, not for each.
typer.testing._get_command = cache(typer.testing._get_command)


RULES = {
    "joint": objectives.joint,
    "conditional": objectives.conditional,
    "blend 0.3": objectives.JointConditional(0.3),
    "marginal": objectives.marginal,
    "unsupervised 0.1": objectives.Unsupervised(0.1),
}


class Problem(NamedTuple):
    params: Mixture
    x: Tensor
    targets: Tensor
    sample_weight: Tensor | None

    @property
    def batch(self) -> Batch:
        """All rows."""
        return Batch(self.x, self.targets, self.sample_weight)

    @property
    def dataset(self) -> ArrayDataset:
        """The rows that weigh anything."""
        return ArrayDataset.of(self.x, self.targets, self.sample_weight)


def random_problem(
    seed: int = 0,
    *,
    rows: int = 23,
    features: int = 7,
    memories: int = 5,
    classes: int = 3,
    beta: float = 4.0,
    varsigma: float = 1.0,
    labels: str = "mixed",
    weighted: bool = False,
    contrast: float = 2.0,
    clustered: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    """Random parameters and data.

    labels: "full" rows sum to 1; "none" all zero; "mixed" a third each of full, partial and none.
    contrast: spread of log p, so that the marginals are unequal.
    """
    generator = torch.Generator().manual_seed(seed)

    def unit(n):
        z = torch.randn(n, features, generator=generator, dtype=torch.float64)
        return z / z.norm(dim=1, keepdim=True)

    w = unit(memories)
    x = unit(rows)
    if clustered:
        near = w[torch.randint(memories, (rows,), generator=generator)]
        x = near + 0.5 * x
        x = x / x.norm(dim=1, keepdim=True)
    noise = torch.randn(memories + 1, classes + 1, generator=generator, dtype=torch.float64)
    p = (contrast * noise).exp()
    p = p / p.sum()
    q = (2 * torch.randn(rows, classes + 1, generator=generator, dtype=torch.float64)).softmax(1)
    if labels == "none":
        q = torch.zeros_like(q)
    elif labels == "mixed":
        share = torch.rand(rows, generator=generator, dtype=torch.float64)
        share[torch.arange(rows) % 3 == 0] = 1.0
        share[torch.arange(rows) % 3 == 1] = 0.0
        q = q * share[:, None]
    weight = None
    if weighted:
        weight = torch.rand(rows, generator=generator, dtype=torch.float64) * 3
        weight[rows // 2] = 0.0
    params = Mixture(w, p, torch.tensor(beta, dtype=torch.float64), varsigma, p.sum(1), p.sum(0))
    return Problem(
        params.to(dtype=dtype),
        x.to(dtype),
        q.to(dtype),
        None if weight is None else weight.to(dtype),
    )


def log_omega_series(beta: Tensor, n: int, terms: int = 400) -> Tensor:
    """log Ω_N(β)/Ω_N(0) by its power series, all terms positive; good for β up to about 150."""
    k = torch.arange(terms, dtype=torch.float64)
    log_factorials = torch.lgamma(k + 1) + torch.lgamma(k + n / 2) - math.lgamma(n / 2)
    log_terms = 2 * k * (beta / 2).log() - log_factorials
    return log_terms.logsumexp(0)


def plain_log_joint(params: Mixture, x: Tensor) -> Tensor:
    """log Σ_γ p[γ,y] exp(h[b,γ]) from the whole (B, P+1, C+1) array."""
    h = params.varsigma * params.beta * torch.einsum("bn,pn->bp", x, params.w)
    h = h - log_omega_series(params.beta, x.shape[1])
    h = torch.cat([torch.zeros(x.shape[0], 1, dtype=x.dtype), h], dim=1)
    return (params.p.log()[None] + h[:, :, None]).logsumexp(1)


def plain_loss(rule: str, log_joint: Tensor, q: Tensor) -> Tensor:
    """Loss of each row, straight from the definitions. rule: a name, or a name and a number."""
    name, _, number = rule.partition(" ")
    log_x = log_joint.logsumexp(1)
    missing = 1 - q.sum(1)
    joint = -(q * log_joint).sum(1) - missing * log_x
    conditional = -(q * (log_joint - log_x[:, None])).sum(1)
    if name == "joint":
        return joint
    if name == "conditional":
        return conditional
    if name == "classes":
        return -(q * (log_joint - log_x[:, None])).sum(1)
    if name == "blend":
        return (1 - float(number)) * joint + float(number) * conditional
    if name == "marginal":
        return -log_x
    assert name == "unsupervised"
    soft = (1 - float(number)) * log_joint.softmax(1) + float(number) / log_joint.shape[1]
    return -(soft * log_joint).sum(1)


def plain_mean_loss(
    rule: str, params: Mixture, x: Tensor, q: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Mean loss over weighted rows; autograd goes through."""
    losses = plain_loss(rule, plain_log_joint(params, x), q)
    return losses.mean() if weight is None else (weight * losses).sum() / weight.sum()


def plain_gradient(
    rule: str, params: Mixture, x: Tensor, q: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Autograd of the mean loss with respect to w, p and β, each free."""
    leaves = [t.detach().clone().requires_grad_() for t in (params.w, params.p, params.beta)]
    free = params.replace(w=leaves[0], p=leaves[1], beta=leaves[2])
    gw, gp, gb = torch.autograd.grad(plain_mean_loss(rule, free, x, q, weight), leaves)
    return gw, gp, gb


def gradient(stats: Statistics, params: Mixture) -> tuple[Tensor, Tensor, Tensor]:
    """That of the mean loss with respect to w, p and β, read from the statistics of a pass."""
    ratio = stats.p_bar / params.p.clamp_min(torch.finfo(params.p.dtype).tiny)
    of_p = ratio / -stats.count.to(params.p.dtype)[..., None, None]
    return stats.gradient_w(params), of_p, stats.gradient_beta(params)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium; tests that need one are skipped where there is none."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium here: install the package chromium")
    with Browser(program) as found:
        yield found


@pytest.fixture(scope="session")
def problem():
    """The factory of random problems."""
    return random_problem


@pytest.fixture(scope="session")
def oracle():
    """The plain differentiable model."""
    return SimpleNamespace(
        log_omega=log_omega_series, log_joint=plain_log_joint, loss=plain_loss,
        mean_loss=plain_mean_loss, gradient=plain_gradient,
    )  # fmt: skip


@pytest.fixture(scope="module")
def quick_choice():
    """Choices and temperatures from few held-out rows, where no test looks at them closely."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "ROWS", 20)
        patch.setattr(choice, "FOLDS", ((3, 60),))
        yield


@pytest.fixture(scope="module")
def small_pictures():
    """Pictures without layout and of few dots, drawn once, where no test looks at them closely."""
    whole = Figure.savefig

    def savefig(self, path, *, format="png", metadata=None, **_):
        self.set_layout_engine("none")
        self.set_dpi(80)
        with warnings.catch_warnings():
            # Of characters without a picture: it is told of the caller, which is a test here.
            warnings.filterwarnings("ignore", "Glyph", UserWarning)
            if format == "png":
                FigureCanvasAgg(self).print_png(path, metadata=metadata)
            else:
                whole(self, path, format=format, metadata=metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield
