"""Build the site from the pages of the repository into build/site/html. `make site` runs it; broken links are errors.

zensical.toml has the order of the pages. Pages keep their folders, so that links between them work as they do in the
repository. Other links lead to the repository. A link to a Python or TOML file shows the file if the link is a
paragraph of its own. The reference of the Python API is written from the docstrings, and llms.txt from the navigation.
"""

import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import shardsift
import shardsift.scorers

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/site"
PAGES, HTML = BUILD / "pages", BUILD / "html"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
SOURCE = URLS["Source"]
CONFIG = tomllib.loads((ROOT / "docs/zensical.toml").read_text())["project"]
API = "docs/api.md"
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_SHOWN = re.compile(r"^\[.+\]\(([\w./]+\.(py|toml))\)$", re.MULTILINE)
# An item of a numbered list. Python-Markdown needs its other lines indented by four spaces, and an empty line before it.
_ITEM = re.compile(r"^\d+\. .*\n(?:(?:   .*)?\n)*", re.MULTILINE)
_UNLISTED = ("docs/decisions/", "examples/")  # not in the navigation, because other pages link to them


def main() -> int:
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = [*(page for page, _ in listed()), *unlisted()]
    for page in pages:
        write(page, api_reference() if page == API else with_links_of_the_site(page, pages))
    shutil.copytree(ROOT / "docs/pictures", PAGES / "docs/pictures")
    config = (ROOT / "docs/zensical.toml").read_text()
    urls = f'site_url = "{URLS["Homepage"]}"\nrepo_url = "{SOURCE}"\n'
    (BUILD / "zensical.toml").write_text(config.replace("[project]\n", f"[project]\n{urls}", 1))
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict"], cwd=BUILD, check=False)
    if not built.returncode:
        shutil.copytree(PAGES, HTML, dirs_exist_ok=True)  # the Markdown of each page, beside it
        (HTML / "llms.txt").write_text("\n".join(llms_txt()) + "\n")
    return built.returncode


def listed() -> Iterator[tuple[str, str]]:
    return ((page, title) for section in CONFIG["nav"] for title, pages in section.items() for page in pages)


def unlisted() -> list[str]:
    known = {page for page, _ in listed()}
    found = [
        str(page.relative_to(ROOT)) for folder in ("docs", "ops", "examples") for page in ROOT.glob(f"{folder}/**/*.md")
    ]
    others = sorted(set(found) - known)
    if lost := [page for page in others if not page.startswith(_UNLISTED)]:
        sys.exit(f"docs/zensical.toml does not list {', '.join(lost)}.")
    return others


def write(page: str, text: str) -> None:
    (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / page).write_text(text)


def with_links_of_the_site(page: str, pages: list[str]) -> str:
    """Return the text of a page. Links to files that are not on the site lead to the repository instead."""

    def shown(found: re.Match[str]) -> str:
        file = (ROOT / page).parent.joinpath(found[1]).resolve()
        return f'```{found[2]} title="{file.relative_to(ROOT)}"\n{file.read_text()}```'

    def link(found: re.Match[str]) -> str:
        if "://" in found[1]:
            return found[0]
        target = (ROOT / page).parent.joinpath(found[1]).resolve()
        name = str(target.relative_to(ROOT))
        if f"{name}/README.md" in pages:
            return f"]({found[1].rstrip('/')}/README.md)"
        if name in pages or name.startswith("docs/pictures/"):
            return found[0]
        if not target.exists():
            sys.exit(f"{page} links to {found[1]}, which does not exist.")
        return f"]({SOURCE}/{'tree' if target.is_dir() else 'blob'}/main/{name}{found[2] or ''})"

    text = _ITEM.sub(lambda item: "\n" + item[0].replace("\n   ", "\n    "), (ROOT / page).read_text())
    return _LINK.sub(link, _SHOWN.sub(shown, text))


def api_reference() -> str:
    """Return a page with every public name, its signature and its docstring.

    It is made from the imported functions, because their docstrings then include the help of the options.
    """
    parts = [
        "# Python API",
        "[Python](python.md) shows how the functions are used. This page has all of their arguments.",
    ]
    for name in sorted(shardsift.__all__, key=lambda name: (name[0].isupper(), name)):
        parts += [f"## `shardsift.{name}`", *described(f"shardsift.{name}", getattr(shardsift, name))]
    parts += ["## `shardsift.scorers`", "[Write a scorer](own_scorer.md) shows how these names are used."]
    for name in shardsift.scorers.__all__:
        if name not in shardsift.__all__:
            parts += [f"### `{name}`", *described(name, getattr(shardsift.scorers, name))]
    return "\n\n".join(parts) + "\n"


def described(name: str, value: object) -> Iterator[str]:
    if inspect.isfunction(value):
        yield f"```python\n{signature(name, value)}\n```"
    if text := inspect.getdoc(value):
        yield from map(as_markdown, re.split(r"\n{2,}", text))
    if inspect.isclass(value) and value.__module__.startswith("shardsift"):
        for member, of_it in vars(value).items():
            if not member.startswith("_") and inspect.isfunction(of_it):
                yield from (f"**`.{member}`**", *described(f".{member}", of_it))


def signature(name: str, function: Callable[..., object]) -> str:
    found = inspect.signature(function)
    arguments = []
    for parameter in found.parameters.values():
        if parameter.kind == parameter.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        if parameter.name != "self":
            arguments.append(_short(str(parameter)))
    returns = inspect.formatannotation(found.return_annotation).strip("'")
    end = ")" if found.return_annotation is found.empty else f") -> {_short(returns)}"
    one_line = f"{name}({', '.join(arguments)}{end}"
    return one_line if len(one_line) <= 100 else "\n".join([f"{name}(", *(f"    {one}," for one in arguments), end])


def _short(text: str) -> str:
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)|[*]?<class '|'>|~", "", text)


def as_markdown(block: str) -> str:
    if block.startswith(">>>"):
        return f"```pycon\n{block}\n```"
    if re.match(r"[a-z_]+(, [a-z_]+)*: ", block):
        return re.sub(r"^([a-z_]+(?:, [a-z_]+)*): ", r"- `\1`: ", block, flags=re.MULTILINE)
    return block


def llms_txt() -> Iterator[str]:
    """Yield the lines of the index for language models. The format is at https://llmstxt.org."""
    yield from (f"# {CONFIG['site_name']}", "", f"> {CONFIG['site_description']}")
    section = None
    for page, title in listed():
        if title != section:
            section = title
            yield from ("", f"## {title}", "")
        (heading,) = re.findall(r"\A(?:<!--.*?-->\s*)?# (.+)", (PAGES / page).read_text())
        yield f"- [{heading}]({page})"


if __name__ == "__main__":
    sys.exit(main())
