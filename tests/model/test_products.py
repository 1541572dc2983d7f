"""Products of bfloat16 operands: what they round and what they leave alone."""

import pytest
import torch

from mnemosphere.model.batch import Batch
from mnemosphere.model.objectives import conditional, joint, marginal
from mnemosphere.model.one_pass import accumulate, memory_shares, operands

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def single(case):
    """The parameters and the rows in float32 on a GPU."""
    to = {"dtype": torch.float32, "device": torch.device("cuda")}
    batch = Batch(case.x.to(**to), case.targets.to(**to))
    return case.params.to(**to), batch


def off(found, expected):
    """Relative error of all of it."""
    found, expected = found.double().cpu(), expected.double().cpu()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("rule", [joint, conditional, marginal], ids=["joint", "conditional", "x"])
@pytest.mark.parametrize(
    ("rows", "memories", "features", "classes"),
    [
        (211, 31, 5, 2),
        (307, 131, 61, 10),
        (509, 257, 331, 17),
        (401, 7, 127, 59),
        (101, 2111, 131, 10),
    ],
)
def test_statistics_are_those_of_double_precision_to_two_digits(
    problem, rows, memories, features, classes, rule
):
    # Where each row has one memory, the conditional likelihood does not depend on it.
    beta = 6.0 if rule is conditional else 60.0
    case = problem(3, rows=rows, memories=memories, features=features, classes=classes,
                   beta=beta, clustered=True)  # fmt: skip
    expected = accumulate(case.params, case.batch, rule)
    with operands("auto"):
        found = accumulate(*single(case), rule)
    plain = accumulate(*single(case), rule)
    # Operands are rounded to 2^-9, and exponents are up to 60.
    assert off(found.w_bar, expected.w_bar) < 0.03
    assert off(found.w_bar, expected.w_bar) > 1e-5
    assert off(found.p_bar, expected.p_bar) < 0.02
    assert off(found.overlap, expected.overlap) < 0.03
    assert abs(float(found.mean_loss - expected.mean_loss)) < 0.01
    assert float(found.count) == rows
    assert off(plain.w_bar, expected.w_bar) < 1e-4


def test_every_row_is_shared_out_whole_whatever_was_rounded(problem):
    case = problem(4, rows=307, memories=131, features=61, classes=10, beta=60.0, labels="full",
                   clustered=True)  # fmt: skip
    params, batch = single(case)
    with operands("auto"):
        assert float(accumulate(params, batch, joint).p_bar.double().sum()) == pytest.approx(
            307, rel=1e-3
        )
        shares = torch.cat([r for _, r in memory_shares(params, batch, joint)])
    assert float(shares.sum(1).amax()) < 1 + 1e-4
    assert float(shares.sum(1).mean()) > 0.9
