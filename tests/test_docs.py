"""The documentation keeps its word: its examples run, its links lead somewhere, its commands exist.

Blocks fenced as ```python are run, each page in one namespace, in order, in a folder of its own.
In ```bash and ```console blocks every line that calls mnemosphere or research is checked
against the options that exist.
"""

import ast
import html
import re
import shlex
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
import typer.main

import mnemosphere as mn
from mnemosphere.cli import app
from research import pages
from research.__main__ import benchmarks
from research.field.command import parse as field_options
from research.pages import marks, prose
from research.pages.formulas import on_page_content
from research.paper import command
from research.theory import commands

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = typer.main.get_command(app)
RESEARCH = {"reproduce": command.parser(), "theory": commands.parser()}
INDEX = ROOT / "docs" / "index.md"
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
KNOWN = {"python", "bash", "console", "text", "toml", "json"}  # a typo would go unnoticed

_FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
# Names that are gone, and words that readers stumbled over.
_STALE = re.compile(
    r"calibrate_novelty|Refinement|\bselection_\b|\bProgressBar\b|a fifth of the rows|\bblanks\b|"
    r"\bclumps?\b|\bstrangers?\b|by heart|\bmended\b|the same bits|\bthe say\b|\bby defaults\b|\bverdicts?\b|\bjudge"
)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")


def blocks(page: Path) -> list[tuple[str, int, str]]:
    """(kind, line of its first line, text) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    return [
        (found["kind"].strip(), text.count("\n", 0, found.start("body")), found["body"])
        for found in _FENCE.finditer(text)
    ]


def headings(page: Path) -> set[str]:
    """The anchors of a page, as the site makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles
    } | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_fence_is_of_a_known_kind(page):
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(blocks(page))
    assert {kind for kind, _, _ in blocks(page)} <= KNOWN


# Blocks of the gallery are the scripts of test_examples.
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name != "gallery"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_python_blocks_run(page, tmp_path, monkeypatch, small_pictures, quick_choice):
    monkeypatch.chdir(tmp_path)
    for package in ("wordllama", "skl2onnx"):
        if any(package in body for kind, _, body in blocks(page) if kind == "python"):
            pytest.importorskip(package)
    namespace = {"__name__": "__main__"}
    failure = None
    for kind, line, body in blocks(page):
        if kind != "python":
            continue
        # Blank lines in front, so that a traceback names the line of the page.
        code = compile("\n" * line + body, str(page), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                exec(code, namespace)
            except Exception:
                failure = traceback.format_exc()
                break
    assert failure is None, failure


def test_there_are_examples():
    counts = {page: sum(kind == "python" for kind, _, _ in blocks(page)) for page in PAGES}
    for page in (ROOT / "README.md", *prose.GUIDE):
        assert counts[page] > 0, page


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_lines_of_code_have_at_most_80_characters(page):
    """In the gallery and the reference of names they are those of scripts and docstrings."""
    if page.parent.name not in ("gallery", "api"):
        lines = [
            row for kind, _, body in blocks(page) if kind == "python" for row in body.split("\n")
        ]
        assert [row for row in lines if len(row) > 80] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_figure_has_a_caption(page):
    text = page.read_text(encoding="utf-8")
    figures = re.findall(r"^!\[.*\n\n(.*)", text, re.M)
    assert [below for below in figures if not re.match(r"\*[^*]", below)] == []


def test_readme_examples_have_at_most_six_lines():
    for kind, _, body in blocks(ROOT / "README.md"):
        if kind == "python":
            assert len(ast.parse(body).body) <= 6


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_relative_links_lead_somewhere(page):
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.is_file(), f"{target} leads nowhere"
        if page.is_relative_to(ROOT / "docs"):
            inside = other.is_relative_to(ROOT / "docs") or name.startswith("../../src/")
            assert inside, f"{target} lies outside of the site"
        if anchor:
            assert anchor in headings(other), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_to_the_source_name_what_is_there(page):
    for name, target in re.findall(
        r"\[`([^`]+)`\]\(((?:\.\./)+src/[^()\s]+)\)", page.read_text("utf-8")
    ):
        source = (page.parent / target).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^ *(?:def|class) {part}\b", source, re.MULTILINE), name


def shell_lines(page: Path) -> list[str]:
    """The commands of a page, comments and prompts cut off."""
    lines = []
    for kind, _, body in blocks(page):
        if kind in ("bash", "console"):
            for line in body.splitlines():
                lines.append(line.partition("  #")[0].removeprefix("$ ").strip())
    return lines


def check_command(root, words: list[str]) -> None:
    """Parse and convert what was typed, as a call would; nothing is run."""
    command, arguments = root, words
    while hasattr(command, "commands"):
        assert arguments, words
        assert arguments[0] in command.commands, words
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(command.name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_exist(page):
    for line in shell_lines(page):
        if line.startswith("mnemosphere"):
            check_command(COMMANDS, shlex.split(line)[1:])


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_research_commands_exist(page):
    text = page.read_text(encoding="utf-8")
    text = marks.filled(text, lambda name: "")  # a table may be of an earlier version
    quoted = re.findall(r"`(python -m research [^`]+)`", text)
    start = ["python", "-m", "research"]
    for line in {line for line in shell_lines(page) if line in text} | {*quoted}:
        words = shlex.split(line) if line.startswith("python -m") else []
        if words[:3] != start or words == start:
            continue
        name, *options = words[3:]
        if name in RESEARCH:
            if options:
                RESEARCH[name].parse_args(options)
        elif name in benchmarks():
            folder = ROOT / "research"
            places = (f"benchmarks/{name}.py", "benchmarks/_options.py", f"{name}.py")
            source = "".join(
                (folder / place).read_text(encoding="utf-8")
                for place in places
                if (folder / place).exists()
            )
            for option in (word for word in options if word.startswith("--")):
                assert f'"{option}"' in source, f"{line}: no option {option}"
        elif name == "field":
            # The parser itself, but for the folder of tables, which stands for one.
            field_options([word for word in options if word not in ("--data", "DIR")])
        else:
            assert words[3:] in (["pages"], ["pages", "--check"]), line


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for line in shell_lines(page):
            if line.startswith("make "):
                assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line


def test_tests_that_the_checks_name_exist():
    for script in (ROOT / ".ci").glob("*"):  # the archive of the sources has none
        named = re.findall(r"tests/[\w/]+\.py", script.read_text(encoding="utf-8"))
        assert [name for name in named if not (ROOT / name).is_file()] == []


def test_pages_are_those_of_the_stored_results():
    assert pages.stale() == [], "run: python -m research pages"


def test_no_measured_number_is_typed_by_hand():
    texts = {str(page): page.read_text(encoding="utf-8") for page in PAGES}
    assert {name: found for name, t in texts.items() if (found := prose.typed_numbers(t))} == {}
    everything = " ".join(map(prose.by_hand, texts.values()))
    assert [
        setting for setting in prose.SETTINGS if setting not in everything
    ] == []  # no leftovers


# What users ask first, and words of the answer: on the page itself or on one that it links to.
QUESTIONS = {
    "How do I classify embeddings and reject what is unknown?": (
        "guide/texts.md",
        "predict_or_reject",
    ),
    "What does a fit cost?": ("reference/cost.md", "seconds of fits"),
    "How do I deploy, and how fast is a prediction?": ("guide/deploy.md", "## Latency"),
    "Can a row have several labels?": ("guide/tables.md", "MultiOutputClassifier"),
    "Can it predict a number?": ("reference/faq.md", "Regression is not supported"),
    "A class is rare.": ("guide/tables.md", 'class_weight="balanced"'),
    "What should I tune?": ("guide/choosing.md", "## What to set"),
    "A memory is wrong.": ("guide/interpretability.md", "relabel_memory"),
    "How does it compare with XGBoost, LightGBM and TabPFN?": ("reference/faq.md", "TabPFN"),
    "What about missing values?": ("guide/tables.md", "## Missing values"),
    "What about categories and dates?": ("guide/tables.md", "categories"),
    "How do I classify texts?": ("guide/texts.md", 'encoder="wordllama"'),
    "Does it use a GPU?": ("guide/large-data.md", "## GPU"),
    "Are results reproducible?": ("guide/large-data.md", "## Reproducibility"),
    "Can I use rows without labels?": ("guide/few-labels.md", "unlabeled=-1"),
    "How do I add a class?": ("guide/texts.md", "add_class"),
    "How do I cite it?": ("reference/faq.md", "2508.19151"),
    "Does it work in pipelines and cross-validation?": ("guide/tables.md", "cross_val_score"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_index_leads_to_the_answer_in_one_click(question):
    page, words = QUESTIONS[question]
    linked = {target.partition("#")[0] for target in _LINK.findall(INDEX.read_text("utf-8"))}
    assert page in linked
    assert words in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_errors_of_model_files_are_those_of_the_page(tmp_path):
    path = tmp_path / "model.safetensors"
    x = np.random.default_rng(0).normal(size=(20, 3))
    whole = mn.DAMClassifier(2, search=None, random_state=0).fit(x, x[:, 0] > 0)
    section = (
        (ROOT / "docs" / "reference" / "errors.md")
        .read_text("utf-8")
        .partition("## Model files")[2]
    )
    lines = dict(re.findall(r"^\| (.+?) \| `(.+?)` \|", section.partition("\n## ")[0], re.M))

    def changed() -> None:
        whole.save(path)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    spoil = {
        "file that is not there": lambda: None,
        "truncated file, text, pickle": lambda: path.write_text("no model"),
        "file that was changed": changed,
    }
    assert lines.keys() == spoil.keys()
    for what, action in spoil.items():
        action()
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            mn.load(path)
        told = re.escape(lines[what]).replace("…", ".*").replace("model\\.safetensors", ".*")
        assert re.fullmatch(told, str(caught.value)), caught.value


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}


def test_every_formula_is_drawn_when_the_site_is_built():
    """No script of elsewhere draws them, so nothing of their source may be left."""
    texts = [p.read_text(encoding="utf-8") for p in PAGES if p.name.startswith("theory")]
    found = [f for text in texts for f in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.DOTALL)]
    assert len(found) > 100
    for block, inline in found:
        kind = "div" if block else "span"
        source = html.escape(f"\\[{block}\\]" if block else f"\\({inline}\\)")
        drawn = on_page_content(f'<{kind} class="arithmatex">{source}</{kind}>')
        assert "<math" in drawn
        left = re.search(r">[^<]*(\\|&)[^<]*<", re.sub("&#x[0-9A-F]+;|&lt;|&gt;", "", drawn))
        assert left is None, (block or inline, left)


def test_nothing_in_the_documentation_names_a_place_on_one_machine():
    for page in PAGES:
        assert not re.search(r"/(?:home|root|tmp|work)/", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_stale_names_or_words(page):
    written = marks.filled(page.read_text(encoding="utf-8"), lambda name: "")  # by hand
    text = re.sub(r"^```text\n.*?^```", "", written, flags=re.MULTILINE | re.DOTALL)
    assert _STALE.findall(text) == []
