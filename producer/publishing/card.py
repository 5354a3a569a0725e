"""Write the dataset card: YAML for the Hub's viewer and `load_dataset`, and text about the data for people."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from huggingface_hub import DatasetCardData
from huggingface_hub.constants import ENDPOINT

from shardsift.fleet.inputs.formats import format_name
from shardsift.fleet.process.wording import counted, first_of, left_out_line, shown_duration
from shardsift.fleet.run.filter import columns_in
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.receipt import Receipt, row_totals
from shardsift.fleet.run.scoring import LABELS_FILE, Scoring
from shardsift.fleet.run.spec import BUCKET, Buckets, RunSpec, disclosed_inputs, disclosed_model, disclosed_spec
from shardsift.fleet.storage.output import PICTURE_PATH
from shardsift.producer.evidence.evidence import Evidence
from shardsift.producer.gpus import PRICES_FROM, list_price
from shardsift.producer.publishing.card_contents import Contents, kept_rows, scores_alone, subsets_of, with_subsets
from shardsift.producer.publishing.card_evidence import evidence_section
from shardsift.producer.publishing.card_markdown import (
    HUB_DATASET,
    cell,
    code,
    first_input,
    hub_dataset,
    hub_link,
    longer_fence,
    source_name,
    table,
)
from shardsift.producer.publishing.card_models import is_classifier, model_name, model_rows, models_section
from shardsift.producer.publishing.hub_cards import NO_CARDS, HubCards, words
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
_NAMED_INPUTS = 5
_UNTOUCHED = "Nothing was deduplicated or rewritten"
_FOR_TEX = str.maketrans({**{sign: f"\\{sign}" for sign in "#$%&_"}, **dict.fromkeys("\\^~{}", " ")})
_MARKUP = re.compile(r"[\\`*_\[\]<>#~$&]")  # characters with a meaning in Markdown or on the Hub's pages


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """Facts for the card that are not in the spec or the receipts."""

    run_ids: Sequence[str] = ()  # of the dataset's runs, the latest last
    command: str | None = None  # command that makes the same rows again
    cards: HubCards = NO_CARDS
    left_out: int = 0  # shards that failed
    has_picture: bool = False  # whether a picture of the scores is published
    evidence: Evidence | None = None


def dataset_card(spec: RunSpec, receipts: Sequence[Receipt], facts: CardFacts = CardFacts()) -> bytes:
    rows = row_totals(receipts)
    contents = (scores_alone if spec.publishes_only_scores else kept_rows)(spec, rows, _missing(rows, facts))
    subsets = subsets_of(spec, receipts)
    contents = with_subsets(contents, subsets)
    title = _title(spec, contents, subsets)
    metadata = _yaml(spec, contents, title, facts)
    return f"---\n{metadata}\n---\n\n{_text(spec, receipts, contents, rows, title, facts)}".encode()


def _missing(rows: dict[str, int], facts: CardFacts) -> str:
    """Name what has no scores, for example `, but for 2 rows with an error and 1 shard that failed`. Empty if nothing."""
    missing = ((rows["rows_errored"], "row", "with an error"), (facts.left_out, "shard", "that failed"))
    but = " and ".join(f"{counted(number, what)} {why}" for number, what, why in missing if number)
    return f", but for {but}" if but else ""


def _yaml(spec: RunSpec, contents: Contents, title: str, facts: CardFacts) -> str:
    source = facts.cards.source
    datasets = [found[1] for found in map(HUB_DATASET.match, spec.input_uris) if found]
    carried = {
        **source,
        "task_categories": source.get("task_categories", ["text-generation"]),  # as in FineWeb's card
        "tags": [*dict.fromkeys(["shardsift", *source.get("tags", ())])],
    }
    card = DatasetCardData(
        pretty_name=title,
        size_categories=[next((name for bound, name in _SIZES.items() if contents.rows < bound), "100B<n<1T")],
        source_datasets=[*dict.fromkeys(datasets)] or None,
        configs=_configs(contents.subsets),
        **carried,
    )
    return str(card.to_yaml())


def _configs(folders: Mapping[str, str]) -> list[dict[str, object]]:
    """List the subsets in the form that the Hub's viewer and `load_dataset` read. The first one is the default."""
    configs: list[dict[str, object]] = [
        {"config_name": name, "data_files": [{"split": "train", "path": f"{folder}/**/*.parquet"}]}
        for name, folder in folders.items()
    ]
    configs[0]["default"] = True
    return configs


def _text(
    spec: RunSpec, receipts: Sequence[Receipt], contents: Contents, rows: dict[str, int], title: str, facts: CardFacts
) -> str:
    manifest = "`manifest.parquet` lists every file with its sha256 and provenance"
    manifest += ", and the first row of each shard in its file." if spec.target_file_bytes else "."
    heading = _MARKUP.sub(r"\\\g<0>", title)
    return f"""# {heading}

{contents.summary}
{contents.how_to_load}
## Columns

{_columns(spec, contents)}

{contents.files} {manifest}
{_scores(spec, receipts, facts)}{evidence_section(spec, receipts, facts.evidence)}
## How it was made

| | |
|---|---|
| Source | {_source(spec)}{_format(receipts)}{_revision(spec)}{_changed_files(receipts)} |
{model_rows(spec, receipts)}{contents.filter}\
| Shards | {len(receipts):,}{f"; {facts.left_out:,} more failed and are not here" if facts.left_out else ""} |
| Rows in | {rows["rows_in"]:,} |
{contents.kept}{_drop_lists(spec, receipts)}\
| Not scored | {rows["rows_errored"]:,}{" (the `error` column of `scores/` says why)" if rows["rows_errored"] else ""} |
{_left_out(receipts)}{_work(receipts, rows["rows_in"])}{_runs(spec, facts)}
{models_section(spec, receipts)}{_how_to_make_it_again(spec, facts.command)}
## Limitations

{_limits(spec, contents)}

## Licence and attribution

{_attribution(spec, contents, facts)}

## Citation

{_citation(spec, receipts, title)}

Made with shardsift, which scores and filters datasets with transformer classifiers.
"""


def _drop_lists(spec: RunSpec, receipts: Sequence[Receipt]) -> str:
    """Write a line of the table for each drop list. Counts all rows that match the list, kept by the filter or not."""
    lines = ""
    for number, one in enumerate(disclosed_spec(spec).drop_lists):
        rows = counted(sum(receipt.rows_listed[number] for receipt in receipts), "row")
        file = cell(f"{one.uri}:{one.field}" if one.field else one.uri)
        values = f"{one.values:,} values of {file}, sha256 `{one.sha256}`"
        lines += f"| Drop list | {rows} whose {cell(one.column)}, or the host in it, is one of the {values} |\n"
    return lines


def _left_out(receipts: Sequence[Receipt]) -> str:
    fields = Counter[str]()
    for receipt in receipts:
        fields.update(receipt.left_out)
    return f"| Fields left out | {cell(left_out_line(dict(fields.most_common())))} |\n" if fields else ""


def _title(spec: RunSpec, contents: Contents, subsets: Sequence[str]) -> str:
    """Make a title such as `fineweb CC-MAIN-2024-10, filtered with fineweb-edu-classifier`."""
    more = len(spec.input_uris) - 1
    source = first_input(spec) + (f" and {more:,} more" if more and not hub_dataset(spec) else "")
    named = f" {first_of(subsets, 1)}" if subsets else ""
    models = [disclosed_model(scoring.model).rstrip("/").rpartition("/")[2] for scoring in spec.scorings]
    return f"{source}{named}, {contents.done} with {' and '.join(models)}"


def _source(spec: RunSpec) -> str:
    dataset = hub_dataset(spec)
    address = first_of([*map(cell, disclosed_inputs(spec))], _NAMED_INPUTS)
    return f"{hub_link(dataset[0], 'datasets/')}, {address}" if dataset else address


def _revision(spec: RunSpec) -> str:
    return f" at revision `{spec.input_revision}`" if spec.input_revision else ""


def _runs(spec: RunSpec, facts: CardFacts) -> str:
    first, *others = facts.run_ids or [spec.run_id]
    return f"| Run | `{first}`{''.join(f', extended by `{run_id}`' for run_id in others)} |"


def _format(receipts: Sequence[Receipt]) -> str:
    """Name the formats of the input files, for example ` (JSON Lines)`. Empty if all are Parquet.

    If there are several formats, counts their files: ` (3 files of Parquet, 2 files of JSON Lines)`.
    """
    kinds = Counter(map(format_name, dict.fromkeys(receipt.source_uri for receipt in receipts)))
    if len(kinds) > 1:
        counts = [f"{counted(files, 'file')} of {kind}" for kind, files in kinds.most_common()]
        return f" ({', '.join(counts)})"
    return "".join(f" ({kind})" for kind in kinds if kind != "Parquet")


def _changed_files(receipts: Sequence[Receipt]) -> str:
    changed = len({receipt.source_uri for receipt in receipts if receipt.source_changed})
    if not changed:
        return ""
    return (
        f", but for {changed:,} of the files, replaced after the run was enqueued and read as they were then "
        "(`source_changed` in the manifest)"
    )


def _work(receipts: Sequence[Receipt], rows: int) -> str:
    """Write the table's lines on time, tokens, cost and software.

    Leaves out interrupted attempts, because they have no receipt.
    """
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
    per_second = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
    costs = [took / 3600 * price for device, took in seconds.items() if (price := list_price(device)) is not None]
    cost = f"| Cost | about ${sum(costs):,.2f}, by the {PRICES_FROM} |\n" if len(costs) == len(seconds) else ""
    return f"""| Time | {times}, all workers together, without starts and interrupted attempts; {per_second} rows/s per worker |
{read}{cost}| Software | {", ".join(sorted(software))} |
"""


def _scores(spec: RunSpec, receipts: Sequence[Receipt], facts: CardFacts) -> str:
    tables = {column: score_table(histogram) for column, histogram in histograms_of(spec, receipts).items()}
    shown = "".join(f"\n{code(column)}:\n\n```text\n{text}\n```\n" for column, text in tables.items() if text)
    if not shown:
        return ""
    shown = f"""
Rows that were read, by score. The last column is the share of rows with that score or more, whatever else a filter asks.
{shown}"""
    if not facts.has_picture:
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


def _columns(spec: RunSpec, contents: Contents) -> str:
    filtered = columns_in(spec.where)
    lines = [line for scoring in spec.scorings for line in _added_columns(scoring, filtered)]
    shard, row = map(cell, contents.row_columns)
    lines.append(
        f"- {shard} and {row}: the shard of the source that the row is from, and its place in the file, from 0."
    )
    lines += contents.other_columns
    return "\n".join(lines) + (_buckets(spec.buckets) if spec.buckets else "")


def _buckets(buckets: Buckets) -> str:
    scores, numbers = " or ".join(map(code, buckets.columns)), range(1, len(buckets.edges[0][1]) + 1)
    each = f"as much {code(buckets.by)}" if buckets.by else "as many rows"
    within = [cell(buckets.within)] if buckets.within else []
    of_each = "".join(f" of each {name}" for name in within)
    rows = ([*(cell(str(value)) for _ in within), *edges] for value, edges in buckets.edges)
    return (
        f"\n- `{BUCKET}`: equal parts of the scored rows{of_each}, from 0 for the lowest {scores} to "
        f"{len(numbers)}: each has {each}, but rows of equal scores are in the same. They begin at:\n\n"
        + table([*within, *numbers], rows).rstrip()
    )


def _added_columns(scoring: Scoring, filtered: set[str]) -> list[str]:
    """Describe the columns that a scoring adds. `filtered` has the columns of the filter, in lower case."""
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


def _how_to_make_it_again(spec: RunSpec, command: str | None) -> str:
    if command is None:
        return ""
    labels = f"\nThe file `{LABELS_FILE}` has the labels, one a line.\n" if f"@{LABELS_FILE}" in command else ""
    fence = longer_fence(command, least=3)
    places = [*spec.input_uris, *(one.uri for one in spec.drop_lists)]
    is_whole = all(uri.startswith("hf://") for uri in places) and not any(one.model.is_folder for one in spec.scorings)
    paths = "" if is_whole else " (files and folders are named without their paths: fill in yours)"
    return f"\n## How to make it again\n\nWith shardsift{paths}:\n\n{fence}bash\n{command}\n{fence}\n{labels}"


def _limits(spec: RunSpec, contents: Contents) -> str:
    done = "Only equal texts were deduplicated, not similar ones; nothing was rewritten" if spec.unique else _UNTOUCHED
    limits = [
        f"{done}, and nothing {'else ' if spec.drop_lists else ''}was removed for privacy, safety or copyright.",
        *contents.limits,
        "The models also scored texts in languages and of kinds that they were not trained for.",
    ]
    if any(scoring.passages == "head" for scoring in spec.scorings):
        limits.append("Only the beginning of a text was read if it is longer than the model takes.")
    return "\n".join(f"- {limit}" for limit in limits)


def _attribution(spec: RunSpec, contents: Contents, facts: CardFacts) -> str:
    cards = facts.cards
    named = cards.source.get("license_name") or cards.source.get("license")
    licence = code(words(named)) if named else "unknown: see the source"
    models = dict.fromkeys(_with_licence(scoring.model, cards) for scoring in spec.scorings)
    return f"""The {contents.source_rows} are from {source_name(spec)}, and their licence is {licence}.
The scores are by {" and ".join(models)}."""


def _citation(spec: RunSpec, receipts: Sequence[Receipt], title: str) -> str:
    year = datetime.fromtimestamp(max(receipt.provenance.finished_at for receipt in receipts), UTC).year
    fields = {"title": f"{{{title.translate(_FOR_TEX)}}}", "year": year}  # two pairs of braces keep the capitals
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
