"""The dataset card: YAML that the viewer and `load_dataset` read, and what a reader must know of the data."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from huggingface_hub import DatasetCardData
from huggingface_hub.constants import ENDPOINT

from shardsift.fleet.inputs.formats import kind_of, without_ending
from shardsift.fleet.ledger.records import Description
from shardsift.fleet.process.wording import counted, left_out_line, shown_duration
from shardsift.fleet.run.filter import columns_in
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.output_columns import ERROR
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import BUCKET, BestRows, Buckets, RunSpec, disclosed_inputs, disclosed_model
from shardsift.fleet.storage.output import PICTURE_PATH
from shardsift.producer.gpus import TABLE, ListPrices
from shardsift.producer.publishing.card_models import (
    HUB_DATASET,
    cell,
    code,
    hub_link,
    is_classifier,
    kinds_of_models,
    model_name,
    model_rows,
    models_section,
)
from shardsift.producer.publishing.card_usage import how_to_load, how_to_make_it_again
from shardsift.producer.publishing.hub_cards import NO_CARDS, HubCards, hub_dataset, words
from shardsift.producer.scores.distribution import histograms_of, score_table

_SIZES = {  # the Hub's size_categories, by their upper bound
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
    10**8: "10M<n<100M",
    10**9: "100M<n<1B",
    10**10: "1B<n<10B",
    10**11: "10B<n<100B",
}
_FOR_TEX = str.maketrans({**{sign: f"\\{sign}" for sign in "#$%&_"}, **dict.fromkeys("\\^~{}", " ")})
_MARKUP = re.compile(r"[\\`*_\[\]<>#~$&]")  # what Markdown and the Hub's pages read as more than text


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What the card says that is not from the run or its receipts."""

    description: Description = Description()
    cards: HubCards = NO_CARDS
    prices: ListPrices = TABLE
    left_out: int = 0  # shards that failed
    has_picture: bool = False  # of the scores


def dataset_card(spec: RunSpec, receipts: Sequence[Receipt], beside: Beside = Beside()) -> bytes:
    """The README.md to publish."""
    return f"---\n{_yaml(spec, receipts, beside)}\n---\n\n{_text(spec, receipts, beside)}".encode()


def _yaml(spec: RunSpec, receipts: Sequence[Receipt], beside: Beside) -> str:
    source = beside.cards.source
    rows = sum(receipt.rows_in if spec.publishes_only_scores else receipt.rows_kept for receipt in receipts)
    datasets = [found[1] for found in map(HUB_DATASET.match, spec.input_uris) if found]
    carried = {
        **source,
        "task_categories": source.get("task_categories", ["text-generation"]),  # as FineWeb and its kin
        "tags": [*dict.fromkeys(["shardsift", *source.get("tags", ())])],
        **({"license": own, "license_name": None, "license_link": None} if (own := beside.description.license) else {}),
    }
    card = DatasetCardData(
        pretty_name=_title(spec, beside),
        size_categories=[next((name for bound, name in _SIZES.items() if rows < bound), "100B<n<1T")],
        source_datasets=[*dict.fromkeys(datasets)] or None,
        configs=_configs(spec),
        **carried,
    )
    return str(card.to_yaml())


def _configs(spec: RunSpec) -> list[dict[str, object]]:
    """The subsets that the viewer and `load_dataset` know, the default first."""
    folders = {"scores": "scores"} if spec.publishes_only_scores else {"default": "data", "scores": "scores"}
    configs: list[dict[str, object]] = [
        {"config_name": name, "data_files": [{"split": "train", "path": f"{folder}/**/*.parquet"}]}
        for name, folder in folders.items()
    ]
    configs[0]["default"] = True
    return configs


def _text(spec: RunSpec, receipts: Sequence[Receipt], beside: Beside) -> str:
    rows = {
        fate: sum(getattr(receipt, fate) for receipt in receipts)
        for fate in ("rows_in", "rows_kept", "rows_dropped", "rows_errored")
    }
    heading = _MARKUP.sub(r"\\\g<0>", _title(spec, beside))
    return f"""# {heading}

{_summary(spec, rows, beside)}
{how_to_load(spec)}
## Columns

{_columns(spec)}

{_files(spec)}
{_scores(spec, receipts, beside)}
## How it was made

| | |
|---|---|
| Source | {_source(spec)}{_format(receipts)} at revision `{spec.input_revision}`{_changed_files(receipts)} |
{model_rows(spec, receipts)}{_filter(spec)}\
| Shards | {len(receipts):,}{f"; {beside.left_out:,} more failed and are not here" if beside.left_out else ""} |
| Rows in | {rows["rows_in"]:,} |
{_kept(spec, rows)}\
| Not scored | {rows["rows_errored"]:,}{" (the `error` column of `scores/` says why)" if rows["rows_errored"] else ""} |
{_left_out(receipts)}{_work(receipts, rows["rows_in"], beside.prices)}| Run | `{spec.run_id}` |
{models_section(spec, receipts)}{how_to_make_it_again(spec)}
## Limitations

{_limits(spec)}

## Licence and attribution

{_attribution(spec, beside)}

## Citation

{_citation(spec, receipts, beside)}

Made with shardsift, which scores and filters datasets with transformer classifiers.
"""


def _files(spec: RunSpec) -> str:
    manifest = "`manifest.parquet` lists every file with its sha256 and provenance"
    manifest += ", and the first row of each shard in its file." if spec.target_file_bytes else "."
    if spec.publishes_only_scores:
        return f"There is a line for *every* row that was read. {manifest}"
    return f"""The subset `scores` has a line for *every* row that was read, kept or not, so that another threshold needs no new \
scoring: `shard` and `row` say which row it is{_join(spec)}. {manifest}"""


def _left_out(receipts: Sequence[Receipt]) -> str:
    """The table's row about fields that few rows of the source have."""
    fields = Counter[str]()
    for receipt in receipts:
        fields.update(receipt.left_out)
    return f"| Fields left out | {cell(left_out_line(dict(fields.most_common())))} |\n" if fields else ""


def _filter(spec: RunSpec) -> str:
    """The table's row about which rows are kept."""
    if spec.publishes_only_scores:
        return ""
    return f"| Filter | {cell(spec.where) if spec.where else 'none: every scored row is kept'} |\n"


def _kept(spec: RunSpec, rows: dict[str, int]) -> str:
    """The table's rows about how many are kept."""
    if spec.publishes_only_scores:
        return ""
    kept, dropped = (f"{rows[fate]:,}{_share(rows[fate], rows['rows_in'])}" for fate in ("rows_kept", "rows_dropped"))
    return f"| Kept | {kept} |\n| Dropped | {dropped} |\n"


def _title(spec: RunSpec, beside: Beside) -> str:
    """The user's, or such as `fineweb CC-MAIN-2024-10, filtered with fineweb-edu-classifier`."""
    if beside.description.title:
        return " ".join(beside.description.title.split())
    more = len(spec.input_uris) - 1
    source = _first_input(spec) + (f" and {more:,} more" if more and not hub_dataset(spec) else "")
    crawl = f" {spec.crawl}" if spec.crawl else ""
    models = [disclosed_model(scoring.model).rstrip("/").rpartition("/")[2] for scoring in spec.scorings]
    done = "filtered" if spec.where and not spec.publishes_only_scores else "scored"
    return f"{source}{crawl}, {done} with {' and '.join(models)}"


def _first_input(spec: RunSpec) -> str:
    """The name of the first input: a dataset on the Hub, a folder before its wildcards, or a file without its suffix."""
    first = disclosed_inputs(spec)[0]
    if found := HUB_DATASET.match(first):
        return found[1].rpartition("/")[2]
    fixed = re.split(r"/?[^/]*[*?\[]", first)[0].rstrip("/")
    return " ".join(without_ending(fixed.rpartition("/")[2]).split()) or f"{kind_of(first)} files"


def _summary(spec: RunSpec, rows: dict[str, int], beside: Beside) -> str:
    kept, rows_in = rows["rows_kept"], rows["rows_in"]
    missing = ((rows["rows_errored"], "row", "with an error"), (beside.left_out, "shard", "that failed"))
    but = " and ".join(f"{counted(number, what)} {why}" for number, what, why in missing if number)
    why = f": {_best(spec.best)}" if spec.best else f": those for which {code(spec.where)}" if spec.where else ""
    here = "the rows that pass the filter are here" if spec.where else "those that could be scored are here"
    names = [code(name) for name, _ in spec.columns]
    columns = f"these of its columns: {', '.join(names)}" if spec.only_columns else "all its columns"
    read = ("the first " if spec.limit_rows else "") + counted(rows_in, "row")
    if spec.publishes_only_scores:
        return f"""The scores of {read} of {_source_name(spec)}, by {kinds_of_models(spec)}{but and f", but for {but}"}.
The rows themselves are in the source, where `shard` and `row` say."""
    return f"""{kept:,} of {read}{_share(kept, rows_in)} of {_source_name(spec)}{why}. Every row was scored with \
{kinds_of_models(spec)}{but and f", but for {but}"};
{here}, in the source's order and with {columns}."""


def _best(best: BestRows) -> str:
    """Such as "those with the highest `score`, which have 10% of all `token_count`, within each `label`"."""
    scores = ("maximum of " if len(best.columns) > 1 else "") + ", ".join(map(code, best.columns))
    within = f", within each {code(best.within)}" if best.within else ""
    of = f"all {code(best.by)}" if best.by else "the scored rows"
    return f"those with the highest {scores}, which {'have' if best.by else 'are'} {best.share} of {of}{within}"


def _source_name(spec: RunSpec) -> str:
    dataset = hub_dataset(spec)
    if dataset:
        return hub_link(dataset[0], "datasets/")
    return code(_first_input(spec)) if len(spec.input_uris) == 1 else f"{len(spec.input_uris):,} sources"


def _source(spec: RunSpec) -> str:
    dataset = hub_dataset(spec)
    address = ", ".join(map(cell, disclosed_inputs(spec)))
    return f"{hub_link(dataset[0], 'datasets/')}, {address}" if dataset else address


def _format(receipts: Sequence[Receipt]) -> str:
    """Such as ` (JSON Lines)`, or of several formats ` (3 files of Parquet, 2 files of JSON Lines)`; nothing for Parquet."""
    kinds = Counter(map(kind_of, dict.fromkeys(receipt.source_uri for receipt in receipts)))
    if len(kinds) > 1:
        told = [f"{counted(files, 'file')} of {kind}" for kind, files in kinds.most_common()]
        return f" ({', '.join(told)})"
    return "".join(f" ({kind})" for kind in kinds if kind != "Parquet")


def _changed_files(receipts: Sequence[Receipt]) -> str:
    changed = len({receipt.source_uri for receipt in receipts if receipt.source_changed})
    if not changed:
        return ""
    return (
        f", but for {changed:,} of the files, replaced after the run was enqueued and read as they were then "
        "(`source_changed` in the manifest)"
    )


def _work(receipts: Sequence[Receipt], rows: int, prices: ListPrices) -> str:
    """The table's rows about the work of the attempts that finished: interrupted ones leave no receipt."""
    seconds: dict[str, float] = defaultdict(float)
    for receipt in receipts:
        made = receipt.scored_by
        seconds[made.device] += made.finished_at - made.started_at
    times = " and ".join(f"{shown_duration(took)} on {device}" for device, took in sorted(seconds.items()))
    speed = rows / total if (total := sum(seconds.values())) > 0 else 0.0
    tokens = [receipt.scored_by.tokens for receipt in receipts if receipt.rows_in > receipt.rows_errored]
    read = f"| Tokens read | {sum(tokens):,} |\n" if tokens and all(tokens) else ""
    made_by = ((receipt.provenance, receipt.scored_by) for receipt in receipts)
    software = {f"{name} {version}" for both in made_by for made in both for name, version in made.versions.items()}
    told = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
    costs = [took / 3600 * price for device, took in seconds.items() if (price := prices.of(device)) is not None]
    cost = f"| Cost | about ${sum(costs):,.2f}, by the {prices.told} |\n" if len(costs) == len(seconds) else ""
    return f"""| Time | {times}, all workers together, without starts and interrupted attempts; {told} rows/s per worker |
{read}{cost}| Software | {", ".join(sorted(software))} |
"""


def _scores(spec: RunSpec, receipts: Sequence[Receipt], beside: Beside) -> str:
    tables = {column: score_table(histogram) for column, histogram in histograms_of(spec, receipts).items()}
    shown = "".join(f"\n{code(column)}:\n\n```text\n{text}\n```\n" for column, text in tables.items() if text)
    if not shown:
        return ""
    shown = f"""
Rows that were read, by score. The last column is the share of rows with that score or more, whatever else a filter asks.
{shown}"""
    if not beside.has_picture:
        return f"\n## Scores\n{shown}"
    found = HUB_DATASET.match(spec.output_uri)
    folder = f"{ENDPOINT}/datasets/{found[1]}/resolve/{found[2] or 'main'}/" if found else ""
    return f"""
## Scores

![Rows by score, and below the share of rows with that score or more]({folder}{PICTURE_PATH})

<details>
<summary>The same as text</summary>
{shown}
</details>
"""


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.1%})" if whole else ""


def _columns(spec: RunSpec) -> str:
    filtered = columns_in(spec.where)
    lines = [line for scoring in spec.scorings for line in _added_columns(scoring, filtered)]
    if names := RunSpec.row_columns if spec.publishes_only_scores else spec.row_columns:
        shard, row = map(cell, names)
        lines.append(
            f"- {shard} and {row}: the shard of the source that the row is from, and its place in the file, from 0."
        )
    if spec.publishes_only_scores:
        lines.append(f"- `{ERROR.name}`: why a row has no score.")
    return "\n".join(lines) + (_buckets(spec.buckets) if spec.buckets else "")


def _buckets(buckets: Buckets) -> str:
    """The last line of the list of columns, and a table of the edges."""
    scores, numbers = " or ".join(map(code, buckets.columns)), range(1, len(buckets.edges[0][1]) + 1)
    each = f"as much {code(buckets.by)}" if buckets.by else "as many rows"
    within = [cell(buckets.within)] if buckets.within else []
    of_each = "".join(f" of each {name}" for name in within)
    table = [[*within, *numbers], ["---"] * (len(within) + len(numbers))]
    table += [[*(cell(str(value)) for _ in within), *edges] for value, edges in buckets.edges]
    return (
        f"\n- `{BUCKET}`: equal parts of the scored rows{of_each}, from 0 for the lowest {scores} to "
        f"{len(numbers)}: each has {each}, but rows of equal scores are in the same. They begin at:\n\n"
        + "\n".join(f"| {' | '.join(map(str, row))} |" for row in table)
    )


def _added_columns(scoring: Scoring, filtered: set[str]) -> list[str]:
    """`filtered` are the columns that the filter names, in lower case."""
    raw = "raw logit" if is_classifier(scoring.model) else "score"
    made = {"none": raw, "sigmoid": "logit through a sigmoid", "softmax": "probability by softmax"}
    kind, column = made[scoring.function_to_apply], scoring.score_column
    of_label = f" of the label {code(scoring.labels[0])}" if scoring.zero_shot else ""
    said = {column: f"the model's {kind}{of_label}, float32."}
    if scoring.outputs > 1:
        said[column] = f"the highest score of the {scoring.outputs} labels, float32, each a {kind}."
        said[scoring.label_column] = f"the label with that score, of: {', '.join(map(code, scoring.labels))}."
    for name, label in zip(scoring.label_score_columns, scoring.labels, strict=False):
        said[name] = f"the {kind} of the label {code(label)}."
    if scoring.int_score:
        said[scoring.int_score_column] = "the score clipped to 0…5 and rounded, as in FineWeb-Edu."
    compared = " The filter compares this value as it is."
    return [f"- `{name}`: {text}{compared if name.lower() in filtered else ''}" for name, text in said.items()]


def _join(spec: RunSpec) -> str:
    if spec.row_columns in (None, RunSpec.row_columns):
        return ""
    return f", as {' and '.join(map(cell, spec.row_columns))} of the kept rows do"


def _limits(spec: RunSpec) -> str:
    limits = ["Nothing was deduplicated or rewritten, and nothing was removed for privacy, safety or copyright."]
    if spec.where and not spec.publishes_only_scores:
        limits.append(
            "A row close to the edge of the filter could as well be on the other side: models err, and scores differ "
            "slightly between number formats and devices. Read some such rows before you choose a threshold."
        )
    limits.append("The models also scored texts in languages and of kinds that they were not trained for.")
    if any(scoring.passages == "head" for scoring in spec.scorings):
        limits.append("Only the beginning of a text was read if it is longer than the model takes.")
    return "\n".join(f"- {limit}" for limit in limits)


def _attribution(spec: RunSpec, beside: Beside) -> str:
    cards, own = beside.cards, beside.description.license
    named = cards.source.get("license_name") or cards.source.get("license")
    licence = code(words(named)) if named else "unknown: see the source"
    models = dict.fromkeys(_with_licence(scoring.model, cards) for scoring in spec.scorings)
    of_dataset = f"The licence of this dataset is {code(own)}.\n" if own else ""
    rows = "scored rows" if spec.publishes_only_scores else "rows"
    return f"""{of_dataset}The {rows} are from {_source_name(spec)}, and their licence is {licence}.
The scores are by {" and ".join(models)}."""


def _citation(spec: RunSpec, receipts: Sequence[Receipt], beside: Beside) -> str:
    title = _title(spec, beside).translate(_FOR_TEX)
    year = datetime.fromtimestamp(max(receipt.provenance.finished_at for receipt in receipts), UTC).year
    fields = {"title": f"{{{title}}}", "year": year}  # two pairs of braces keep the capitals
    if found := HUB_DATASET.match(spec.output_uri):
        fields |= {"author": found[1].partition("/")[0].translate(_FOR_TEX), "url": f"{ENDPOINT}/datasets/{found[1]}"}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"""```bibtex
@misc{{{found[1] if found else spec.run_id},
{lines}
}}
```

Cite the source and the models as their own cards ask."""


def _with_licence(model: Model, cards: HubCards) -> str:
    licence = cards.model_licences.get(model.name)
    return model_name(model) + (f", whose licence is {code(licence)}" if licence else "")
