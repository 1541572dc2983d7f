"""The tables on rows without end: files, texts, streams."""

from __future__ import annotations

from research.pages.marks import markdown
from research.pages.stored import read, source


def large_table() -> str:
    """One pass over files that memory does not hold, and beside rows in memory."""
    run = read("large_files")
    whole, both = run["one_pass"], run["both_ways"]
    lines = [
        ["rows, features, memories",
         f"{whole['rows']:,} × {run['features']}, {run['memories']} memories"],
        ["files", f"{whole['gigabytes']:.1f} GB of .npy, {run['dtype']}"],
        ["resident memory in all, at most", f"{whole['resident_megabytes']:,.0f} MB"],
        ["one pass", f"{whole['pass_seconds']:,.0f} s, {whole['rows_per_second']:,.0f} rows per s"],
        ["throughput in units of that of rows in memory, in one run on "
         f"{both['rows']:,} rows", f"{both['throughput_ratio']:.2f}"],
    ]  # fmt: skip
    return f"{markdown(['', ''], lines)}\n\n{source(run)}"


def text_table() -> str:
    """Accuracy beside other models of the same rows."""
    run = read("text")
    names = {"conditional": f"ours, conditional, {run['memories']} memories",
             "joint": f"ours, joint, {run['memories']} memories"}  # fmt: skip
    lines = [
        [names.get(r["model"], r["model"]), f"{r['accuracy']:.1%}",
         f"{r['seconds']:.{0 if r['seconds'] >= 10 else 1}f}",
         f"{r['resident_megabytes_so_far']:,.0f}"]
        for r in run["models"]
    ]  # fmt: skip
    head = ["model", "accuracy", "seconds", "resident memory so far, MB"]
    size = (f"{run['train']:,} packages to train on, {run['test']:,} to judge by, "
            f"{run['sections']} sections, {run['terms']:,} terms.")  # fmt: skip
    return f"{size}\n\n{markdown(head, lines)}\n\n{source(run)}"


def terms_table() -> str:
    """The strongest terms of the memories that answer for most rows."""
    lines = [
        [section, "; ".join(", ".join(f"*{term}*" for term in memory) for memory in memories)]
        for section, memories in read("text")["strongest"].items()
    ]
    return markdown(["section", "strongest terms of its memories"], lines)


def stream_table() -> str:
    """Accuracy before and after classes have stopped coming."""
    run = read("stream")
    lines = [
        ["yes" if r["rehearse"] else "no", f"{r['before']['0-4']:.2%}", f"{r['after']['0-4']:.2%}",
         f"{r['after']['5-9']:.2%}", f"{r['after']['all']:.2%}"]
        for r in run["runs"]
    ]  # fmt: skip
    return (
        f"{markdown(['rehearse', '0–4 before', '0–4 after', '5–9 after', 'all'], lines)}"
        f"\n\n{source(run)}"
    )


TABLES = {
    "large files": large_table,
    "text": text_table,
    "text terms": terms_table,
    "stream": stream_table,
}
