"""Attacks on the package, seeded: what is tried, what came of it, what is a defect.

A campaign draws attempts from a seed. Each attempt ends in an outcome; those in `DEFECTS` must not
happen. The tests run a few attempts of each, `python -m research trust` many, a part of them per
process (`python -m research.trust CAMPAIGN ATTEMPTS SEED FILE`).
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

Attempt = tuple[str, Callable[[], str]]  # what it is, and the attempt itself
DEFECTS = frozenset(
    {"another result", "broken promise", "crash", "destroyed", "hangs", "litter", "not finite",
     "raw exception", "slow"}
)  # fmt: skip
_EXAMPLES = 12  # of each defect that are kept
_SLOW = 30.0  # seconds of the processor for one attempt, all of which are small


@dataclass
class Tally:
    """What came of the attempts of one campaign."""

    outcomes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, outcome: str, what: str) -> None:
        """Count an attempt; of defects, say what it was."""
        self.outcomes[outcome] += 1
        if outcome in DEFECTS:
            known = self.examples.setdefault(outcome, [])
            known += [what[:1000]] if len(known) < _EXAMPLES else []

    @property
    def tried(self) -> int:
        """How many attempts."""
        return sum(self.outcomes.values())

    @property
    def defects(self) -> int:
        """How many of them ended as they must not."""
        return sum(self.outcomes[name] for name in DEFECTS)

    def update(self, other: Tally) -> None:
        """Add the attempts of another part of the campaign."""
        self.outcomes.update(other.outcomes)
        for outcome, examples in other.examples.items():
            known = self.examples.setdefault(outcome, [])
            known += examples[: _EXAMPLES - len(known)]

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Undo `as_dict`."""
        return cls(Counter(content["outcomes"]), dict(content["examples"]))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "tried": self.tried,
            "defects": self.defects,
            "outcomes": dict(sorted(self.outcomes.items())),
            "examples": self.examples,
        }


def attempt(action: Callable[[], str]) -> tuple[str, str]:
    """(outcome, what was said): that of `action`, or how it failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return action(), ""
    except ValueError as error:
        text = str(error)
        clear = bool(text.strip()) and "\n" not in text and len(text) < 600
        return ("clear error" if clear else "raw exception"), f"{type(error).__name__}: {text}"
    except Exception as error:
        return "raw exception", f"{type(error).__name__}: {error}"


def run(attempts: Iterable[Attempt]) -> Tally:
    """Try them all."""
    tally = Tally()
    for what, action in attempts:
        began = time.process_time()
        outcome, said = attempt(action)
        if outcome not in DEFECTS and time.process_time() - began > _SLOW:
            outcome = "slow"
        tally.add(outcome, f"{what}: {said}" if said else what)
    return tally
