"""Novelty: MNIST test digits against Fashion-MNIST and noise, and the promise of the reject option.

    python -m research novelty --data DIR
    python -m research novelty --device cuda --seeds 3 --data DIR

The threshold is set on one half of the test digits, the share rejected is counted on the other.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from mnemosphere import interpret
from mnemosphere.data import load
from research import report
from research.benchmarks._options import digits_parser
from research.fits import CLASSIFIER, digit_models

RATES = (0.001, 0.01, 0.05)


def main(argv: list[str]) -> None:
    args = digits_parser(__doc__, "novelty", seeds=1).parse_args(argv)
    data = load("mnist", args.data)
    clothes = load("fashion-mnist", args.data).x_test
    digits = data.x_test
    runs = []
    for seed, model in digit_models(data, args):
        rng = np.random.default_rng(seed)
        strange = {
            "fashion-mnist": clothes,
            "digits, pixels shuffled": rng.permuted(digits, axis=1),
            "digits upside down": digits[:, ::-1],
            "uniform noise": rng.random(digits.shape),
        }
        truth = np.repeat([0, 1], [len(digits), len(digits)])
        run: dict[str, Any] = {"seed": seed, "accuracy": model.score(digits, data.y_test)}
        run["auroc"] = {
            name: {
                score: round(
                    float(roc_auc_score(truth, np.concatenate([sign * f(digits), sign * f(rows)]))),
                    5,
                )
                for score, f, sign in (
                    ("novelty_score", model.novelty_score, 1),
                    ("novelty", partial(interpret.novelty, model.model_), 1),
                    ("score_samples", partial(interpret.score_samples, model.model_), -1),
                )
            }
            for name, rows in strange.items()
        }
        run["reject"] = []
        order = rng.permutation(len(digits))
        held, fresh = order[: len(order) // 2], order[len(order) // 2 :]
        model.calibrate(digits[held])
        for rate in RATES:
            kept = ~interpret.is_novel(model.model_, digits[fresh], rate)
            wrong = model.predict(digits[fresh]) != data.y_test[fresh]
            run["reject"].append(
                {
                    "rate": rate,
                    "digits rejected": round(float(1 - kept.mean()), 5),
                    "clothes rejected": round(
                        float(interpret.is_novel(model.model_, clothes, rate).mean()), 5
                    ),
                    "error of digits kept": round(float(wrong[kept].mean()), 5),
                    "error of digits rejected": (
                        round(float(wrong[~kept].mean()), 5) if not kept.all() else None
                    ),
                }
            )
        print(run, flush=True)
        runs.append(run)
    command = report.command_line(["novelty", *argv])
    content = {
        **report.head(command, device=args.device, seeds=range(args.seeds)),
        "settings": {"memories": args.memories, **CLASSIFIER},
        "runs": runs,
    }
    report.write(args.out, content)
