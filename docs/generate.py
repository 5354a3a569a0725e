"""Write docs/cli.md from the commands' own help, docs/recipes.md from the recipes, docs/settings.md from the settings.

`python docs/generate.py` writes them, `python docs/generate.py --check` fails if they are out of date.
"""

import re
import sys
from pathlib import Path

import typer
from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click

from fleet.process.settings import Process, Settings
from fleet.run.recipes import RECIPES, as_arguments
from producer.cli import cli as producer
from worker.cli import cli as worker

DOCS = Path(__file__).parent

WANTED = {
    "Score": {
        "score my own files on this machine": "producer run --input './shards/*.parquet' --output ./kept --min-score 3",
        "score a crawl with the fleet, and wait": "producer enqueue --crawl CC-MAIN-2024-10 --wait",
        "see what a run will do, take and cost, and start nothing": "producer enqueue --crawl CC-MAIN-2024-10 --dry-run",
        "use another classifier, at a fixed revision": "producer run --input ./shards --output ./kept "
        "--model me/my-classifier@v1 --min-score 2",
        "score compressed JSON Lines, of which only some fields are needed": "producer run --input './posts/*.jsonl.zst' "
        "--columns id,title,selftext --text-column title,selftext --output ./kept",
        "score a title and its text together": "producer run --input ./posts --output ./kept --text-column title,selftext",
        "put the text together from columns": "producer run --input ./shards --output ./kept "
        r"--text-column '{url}\n\n{text}'",
        "read long texts to their end": "producer run --input ./papers --output ./kept --max-tokens 512 --passages head+tail",
        "read from a bucket and write to it": "producer enqueue --input 's3://my-bucket/shards/*.parquet' "
        "--output s3://my-bucket/kept",
        "have the reference's scores to four places": "producer run --input ./shards --output ./kept --dtype float32",
    },
    "Choose rows": {
        "use FineWeb-Edu's own rule": "producer run --input ./shards --output ./kept --where 'int_score >= 3'",
        "filter by other columns too": "producer run --input ./shards --output ./kept "
        "--where \"score >= 3 and language = 'en' and token_count > 100\"",
        "keep a label of a classifier with several": "producer run --input ./shards --output ./kept --model me/topics "
        "--where \"label = 'science' and score >= 0.9\"",
        "choose from labels of your own": "producer run --input ./posts --output ./kept "
        "--model facebook/bart-large-mnli --labels 'climate change,technology,health' "
        "--where \"label = 'health' and score >= 0.8\"",
        "score pairs of two columns with a reranker": "producer run --input ./pairs --output ./kept "
        "--model BAAI/bge-reranker-v2-m3 --text-column query --text-pair-column passage --min-score 0",
        "filter on two models in one pass": "producer run --input ./shards --output ./kept "
        "--model edu=HuggingFaceFW/fineweb-edu-classifier --model tox=unitary/toxic-bert "
        "--where 'edu_score >= 3 and tox_score < 0.5'",
        "keep every row, with its score": "producer run --input ./shards --output ./kept --keep-all",
        "see what each threshold would keep": "producer scores RUN --png scores.png",
        "read rows around a threshold": "producer scores RUN --near 3 --sample 10",
        "publish another threshold, without a GPU": "producer refilter RUN --min-score 2.5 --output ./kept-2.5",
    },
    "Watch and repair": {
        "serve that number to an autoscaler": "producer demand --serve 8099 --shards-per-worker 4",
        "pause a run when it has cost 50": "SHARDSIFT_PRICE_PER_GPU_HOUR=1.20 producer set RUN --max-cost 50",
        "let at most 8 workers score a run at once": "producer set RUN --max-workers 8",
        "check a machine and an output before a run": "producer doctor --output ./kept",
        "compare every row with the input": "producer verify ./kept --source './shards/*.parquet'",
        "repair a damaged output": "producer enqueue --crawl CC-MAIN-2024-10 --verify",
    },
    "Publish": {
        "make it public": "producer enqueue --crawl CC-MAIN-2024-10 --output hf://datasets/me/kept --public",
        "leave out the columns shard and row": "producer enqueue --crawl CC-MAIN-2024-10 --row-columns none",
    },
    "Workers": {
        "serve one model only, and load it before a run needs it": "worker start --model ./my-classifier",
        "use two of the GPUs": "worker start --gpus 0,2",
        "switch the machine off when there is nothing to do": "worker start --exit-when-idle 10m --on-idle 'sudo poweroff'",
        "score on the CPU": "worker start --device cpu --threads 8",
        "find it for the texts of a run": "worker tune --input ./papers --max-tokens 512 --passages head+tail "
        "--model HuggingFaceFW/fineweb-edu-classifier",
        "trade a slow start for more rows per second": "worker start --compile",
    },
}
_NOTE = "<!-- Generated by docs/generate.py: change the code and run `make docs`. -->\n\n"


def cli_reference() -> str:
    """What a user wants, then every command and option, as `--help` says them."""
    parts = ["# Commands", commands_wanted()]
    for name, cli in (("producer", producer), ("worker", worker)):
        command = typer.main.get_command(cli)
        command.commands = {name: found for name, found in command.commands.items() if not found.hidden}  # type: ignore[attr-defined]
        context = typer.Context(command, info_name=name)
        reference = get_docs_for_click(obj=command, ctx=context, name=name).strip()
        parts.append(_options_once(re.sub(r"^#", "##", reference, flags=re.MULTILINE)))
    return _NOTE + "\n\n".join(parts) + "\n"


def _options_once(reference: str) -> str:
    """Describe an option that several commands share at the first of them only; the others name it."""
    first: dict[str, str] = {}
    command, lines = "", []
    for line in reference.splitlines():
        if heading := re.match(r"##+ `(.+)`", line):
            command = heading[1]
        option = re.match(r"\* `(--[\w-]+)", line)
        if option and first.setdefault(line, command) != command:
            line = f"* `{option[1]}`: as for `{first[line]}`"
        if not option or option[1] != "--help":
            lines.append(line)
    return "\n".join(lines)


def commands_wanted() -> str:
    """What a user wants → the command."""
    lines = ["## I want to …", ""]
    for wanted, commands in WANTED.items():
        lines += [f"**{wanted}**", "", "| I want to | command |", "|---|---|"]
        lines += [f"| {want} | `{command}` |" for want, command in commands.items()]
        lines += [""]
    return "\n".join([*lines, "`RUN` is a run id, which `enqueue` prints and `producer runs` lists."])


def recipes_reference() -> str:
    """The table that `producer recipes` shows, and the sources."""
    lines = [
        "# Recipes",
        "",
        _ABOUT_RECIPES,
        "",
        "| model | options | checked | source | note |",
        "|---|---|---|---|---|",
    ]
    for recipe in RECIPES:
        options, source = as_arguments(recipe.options), f"[{'code' if recipe.url else 'card'}]({recipe.source})"
        lines.append(f"| `{recipe.model}` | `{options}` | {recipe.checked} | {source} | {recipe.note} |")
    return _NOTE + "\n".join(lines) + "\n"


def settings_reference() -> str:
    """A table for each kind of process, with a line for each of its settings."""
    lines = ["# Settings", "", _HEAD]
    for process, (title, text) in _SECTIONS.items():
        lines += ["", f"## {title}", "", text, "", "| variable | default | |", "|---|---|---|"]
        lines += [_setting(name, field) for name, field in Settings.model_fields.items() if process in field.metadata]
    return _NOTE + "\n".join(lines) + "\n"


_ABOUT_RECIPES = """\
The authors of a classifier often use it with a template, a length or a function of their own. A recipe is a set of such options
that shardsift applies when you name the model:

```sh
producer run --input ./shards --output ./kept --model HuggingFaceFW/finepdfs_edu_classifier_eng_Latn --min-score 2
```

- A recipe sets the options that you do not give. An option of yours wins, also at its default: `--passages head`, or
  `--text-column text` if your rows have no `url`.
- Of several models in one run, each has its own recipe.
- `producer run` prints the options taken from a recipe, and `--dry-run` shows them beforehand. The dataset card
  records the values.
- Only a name on the Hub has a recipe. A folder has none, because it may hold any model: copy the options from this table.
- `shardsift.score` and `load_scorer` use the same recipe, without its template: there, texts are put together already.
- Code from the Hub is never run. If a model asks for its own code, a small adapter of ours loads its weights into the classes of
  transformers (`worker/scoring/adapters.py`).

**checked**: with a small random model of the same architecture, saved in the layout of the model's repository, a test here gets
the scores of the source's code. **from its card**: the options are those of the source, and nothing else was checked. No real
weights of these models were scored here.

`producer recipes` prints this table without the sources. `producer recipes --json` prints all of it for scripts."""

_HEAD = (
    "Each process reads its settings from environment variables when it starts. Libraries read their own variables, such as "
    "`HF_TOKEN`, `HF_HOME` and `AWS_ACCESS_KEY_ID`."
)
_SECTIONS = {
    Process.SEVERAL: (
        "All processes",
        "Read by more than one kind of process. Give every process of a fleet the same values; `SHARDSIFT_STATE_DIR` and "
        "`SHARDSIFT_SCRATCH_DIR` may differ between machines.",
    ),
    Process.PRODUCER: ("Producer", "Read by the commands of `producer`, without the finalizer."),
    Process.FINALIZER: ("Finalizer", "Read by `producer finalizer`, and by the finalizer that `producer run` starts."),
    Process.WORKER: (
        "Worker",
        "Read by `worker start` and `worker tune`, and by the workers that `producer run` starts. The options of these "
        "commands set the variable of the same name.",
    ),
}


def _setting(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    variable = str(alias.choices[0]) if isinstance(alias, AliasChoices) else f"SHARDSIFT_{name.upper()}"
    return f"| `{variable}` | {_default(name, field)} | {field.description} |"


def _default(name: str, field: FieldInfo) -> str:
    """Empty if the description says what "unset" means, which may not be the field's value: that is `worker tune`'s."""
    if field.default is None or "Unset:" in (field.description or ""):
        return ""
    if name == "state_dir":
        return "the user's state folder"  # differs from system to system
    return f"`{field.default}`"


def main() -> int:
    wanted = {
        DOCS / "cli.md": cli_reference(),
        DOCS / "recipes.md": recipes_reference(),
        DOCS / "settings.md": settings_reference(),
    }
    if "--check" not in sys.argv:
        for file, text in wanted.items():
            file.write_text(text)
        return 0
    stale = [file.name for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    if stale:
        sys.stderr.write(f"Out of date: {', '.join(stale)}. Run `make docs`.\n")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
