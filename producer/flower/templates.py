"""Flower's templates and ours: its navigation bar with an entry for the Runs page, and our pages in its layout."""

from importlib import resources

from tornado.template import DictLoader

_FIRST_ENTRY = (
    '<ul class="app-nav navbar-nav">'  # the list that our entry begins; without it the entry is in the note below
)


def template_loader() -> DictLoader:
    """`NAME` is our template if there is one, otherwise Flower's. `flower/NAME` is always Flower's."""
    theirs, ours = _templates("flower"), _templates("producer.flower")
    navbar = theirs["navbar.html"].replace(_FIRST_ENTRY, _FIRST_ENTRY + ours["navbar_entry.html"], 1)
    wrapped = {f"flower/{name}": text for name, text in theirs.items()} | {"flower/navbar.html": navbar}
    return DictLoader({**theirs, **ours, **wrapped})


def _templates(package: str) -> dict[str, str]:
    folder = resources.files(package).joinpath("templates")
    return {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".html")}
