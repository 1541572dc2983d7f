"""`python -m research reproduce`: the paper's tables and figures, measured again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mnemosphere.base.machine import pick_device
from research import paper
from research.paper import experiment as experiments
from research.paper.experiment import Experiment, MissingPackageError
from research.report import measured_text

ALL = "all"
OWNER = {name: e for e in paper.REGISTRY.values() for name in (e.name, *e.also)}
_WITHIN = {None: "", True: ", agrees", False: ", DIFFERS"}


def parser() -> argparse.ArgumentParser:
    """Names and options."""
    made = argparse.ArgumentParser(prog="python -m research reproduce", description=main.__doc__)
    made.add_argument("names", nargs="+", metavar="NAME", choices=[*OWNER, ALL],
                        help=f"{', '.join(OWNER)}, or {ALL}")  # fmt: skip
    made.add_argument("--quick", action="store_true", help="small, on data inside the package")
    made.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    made.add_argument("--seeds", type=int, help="seeds 0 to N−1; by default its own for each")
    made.add_argument("--out", "-o", type=Path, default=Path("runs/paper"), help="folder")
    made.add_argument("--data", type=Path, help="folder with the IDX files of both data sets")
    return made


def main(argv: list[str]) -> int:
    """Measure tables and figures again and compare the numbers with the published ones.

    Finished runs are not done again and interrupted ones go on: give the same command. Other
    settings, seeds, data or kind of device get a folder of their own.
    """
    args = parser().parse_args(argv)
    pick_device(args.device)
    if args.data is not None and not args.data.is_dir():
        raise ValueError(f"--data {args.data} is not a folder: check the path")
    wanted = {OWNER[name].name for name in args.names if name != ALL}
    chosen = [e for e in paper.REGISTRY.values() if ALL in args.names or e.name in wanted]
    options = {"out": args.out, "quick": args.quick, "device": args.device, "seeds": args.seeds,
               "directory": args.data}  # fmt: skip
    # What is asked for by name must be there; of everything, what can be done is done.
    done = [_run(e, ALL in args.names, options) for e in chosen]
    return 0 if any(done) else 2


def _run(experiment: Experiment, lenient: bool, options: dict[str, Any]) -> bool:
    """Whether it could be done; what there is to say of it is printed."""
    try:
        found = experiments.reproduce(experiment, **options)
    except (FileNotFoundError, MissingPackageError) as error:
        text = str(error).replace("pass directory=DIR", "pass --data DIR")
        if not lenient:
            raise ValueError(text) from error
        print(f"{experiment.name}: skipped, {text}")
        return False
    for remark in found.result["remarks"]:
        print(f"{experiment.name}: {remark}", file=sys.stderr)
    print(f"{experiment.name}: {'finished before' if found.reused else 'done'}, {found.folder}")
    for c in found.result["paper"]:
        published = f" (paper {c['paper']}{_WITHIN[c['within']]})" if c["paper"] else ""
        print(f"    {c['what']}: {measured_text(c)}{published}")
    return True
