"""The page "The paper, reproduced", filled from the stored results; measures nothing.

    python -m mnemosphere.experiments.paper.page docs/paper-reproduced.md results/paper
    python -m mnemosphere.experiments.paper.page docs/paper-reproduced.md results/paper --check

What stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->` is replaced by the table and the
pictures of the latest full run of that name, and the pictures are copied to images/paper beside
the page. NAME-cpu is the latest run on a processor, where that of NAME is on a GPU. With --check
nothing is written, and the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mnemosphere.experiments.paper.files import Json, finished_folders, read_result

IMAGES = Path("images") / "paper"
SUMMARY = "summary"
_ON_CPU = "-cpu"
_MARK = re.compile(r"(<!-- begin: ([\w-]+) -->)\n.*?(<!-- end: \2 -->)", re.DOTALL)
_WORDS = {None: "", True: "yes", False: "**no**"}


def latest(results: Path, name: str) -> Path | None:
    """The folder of the last finished full run; of NAME, one on a GPU if there is one."""
    full = {
        path: result
        for path in finished_folders(results, name.removesuffix(_ON_CPU))
        if not (result := read_result(path))["quick"]
    }
    on_cpu = [path for path, result in full.items() if "processor" in result["device"]]
    on_gpu = [path for path in full if path not in on_cpu]
    chosen = on_cpu if name.endswith(_ON_CPU) or not on_gpu else on_gpu
    return chosen[-1] if chosen else None


def _copy_name(name: str, picture: str) -> str:
    """What the picture of a section is called beside the page."""
    return f"cpu-{picture}" if name.endswith(_ON_CPU) else picture


def filled(text: str, results: Path) -> str:
    """The page with everything between its marks made anew."""
    names = [found[2] for found in _MARK.finditer(text) if found[2] != SUMMARY]

    def replace(found: re.Match[str]) -> str:
        body = summary(names, results) if found[2] == SUMMARY else section(found[2], results)
        return f"{found[1]}\n\n{body}\n\n{found[3]}"

    return _MARK.sub(replace, text)


def pictures(text: str, results: Path) -> dict[str, Path]:
    """File name in images/paper: the picture it is a copy of."""
    found: dict[str, Path] = {}
    for mark in _MARK.finditer(text):
        folder = None if mark[2] == SUMMARY else latest(results, mark[2])
        if folder is not None:
            found |= {
                _copy_name(mark[2], picture): folder / picture
                for picture in read_result(folder)["pictures"]
            }
    return found


def section(name: str, results: Path) -> str:
    """Table, source, remarks and pictures of one experiment."""
    folder = latest(results, name)
    if folder is None:
        return f"*No full run is stored yet: `mnemosphere reproduce {name} --data DIR`.*"
    result = read_result(folder)
    parts = []
    if result["paper"]:
        rows = [
            [c["what"], c["paper"], value(c, result["seeds"]), _WORDS[c["within"]], c["note"]]
            for c in result["paper"]
        ]
        head = ["", "paper", "measured", "agrees", ""]
        if not any(row[-1] for row in rows):
            head, rows = head[:-1], [row[:-1] for row in rows]
        parts.append(_markdown(head, rows))
    parts.append(_source(result))
    parts += [f"*{remark}*" for remark in result["remarks"]]
    parts += [
        f"![{result['title']}]({(IMAGES / _copy_name(name, picture)).as_posix()})"
        for picture in result["pictures"]
    ]
    return "\n\n".join(parts)


def summary(names: Iterable[str], results: Path) -> str:
    """One line an experiment: how many numbers agree, what it cost."""
    rows = []
    for name in names:
        folder = latest(results, name)
        if folder is None:
            rows.append([f"[{name}](#{name})", "", "not run", "", ""])
            continue
        result = read_result(folder)
        judged = [c["within"] for c in result["paper"] if c["within"] is not None]
        agree = f"{sum(judged)} of {len(judged)}" if judged else "nothing to hold against"
        label = result["title"].partition(":")[0]
        anchor = name.removesuffix(_ON_CPU)
        rows.append(
            [f"[{anchor}](#{anchor})", label, agree, f"{result['seconds']:,.0f}", result["device"]]
        )
    head = ["name", "in the paper", "numbers that agree", "seconds", "device"]
    return _markdown(head, rows)


def value(compared: Json, seeds: Sequence[int]) -> str:
    """The measured number, with its deviation over seeds."""
    digits = compared["digits"]
    text = f"{compared['measured']:.{digits}f}"
    if compared["spread"] is not None and len(seeds) > 1:
        text += f" ± {compared['spread']:.{digits}f}"
    return f"{text}{compared['unit']}"


def _source(result: Json) -> str:
    n = len(result["seeds"])
    data = "; ".join(result["data"].values())
    facts = [
        f"`{result['command']}`",
        f"{n} seed{'s' if n > 1 else ''}",
        *([data] if data else []),
        result["device"],
        f"{result['seconds']:,.0f} s",
        f"torch {result['versions']['torch']}",
    ]
    return f"Source: {', '.join(facts)}."


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def stale(page: Path, results: Path) -> list[str]:
    """What of a page is out of date."""
    text = page.read_text(encoding="utf-8")
    found = [] if filled(text, results) == text else [str(page)]
    for name, source in pictures(text, results).items():
        copy = page.parent / IMAGES / name
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            found.append(str(copy))
    return found


def write(page: Path, results: Path) -> None:
    """Bring a page up to date."""
    text = page.read_text(encoding="utf-8")
    page.write_text(filled(text, results), encoding="utf-8")
    folder = page.parent / IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in pictures(text, results).items():
        shutil.copyfile(source, folder / name)


def main(arguments: list[str]) -> int:
    """Write the page, or say what of it is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    chosen = parser.parse_args(arguments)
    found = stale(chosen.page, chosen.results)
    for name in found:
        print(f"{name} {'is out of date' if chosen.check else 'brought up to date'}")
    if chosen.check:
        return int(bool(found))
    if found:
        write(chosen.page, chosen.results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
