"""The default cases for each device, with enough rows for steady figures in reasonable time."""

from dataclasses import dataclass, replace

from benchmarks.scorer.case import Case, Model, Name
from benchmarks.scorer.texts import Lengths

_ALL = tuple(
    name for name in Name if name is not Name.OURS_SHARD
)  # with few rows, opening and closing files would dominate
_PLAIN = (Name.REFERENCE, Name.REFERENCE_16BIT, Name.OURS, Name.OURS_FORWARD)
_SHORT_OF_TIME = (Name.REFERENCE, Name.OURS, Name.OURS_FORWARD)
_OURS_ALONE = (Name.OURS, Name.OURS_SHARD, Name.OURS_FORWARD)


@dataclass(frozen=True, kw_only=True)
class Plan:
    cases: tuple[Case, ...]
    warmup_rows: int
    other_rows: int  # rows of a combination that the user names and the plan lacks


def _case(model: Model, lengths: Lengths, rows: int, repeats: int, contenders: tuple[Name, ...]) -> Case:
    return Case(model=model, lengths=lengths, rows=rows, repeats=repeats, contenders=contenders)


# Two slow cores do about two rows of BERT-base per second in float32. Fewer than 768 rows are one batch of the reference.
CPU = Plan(
    cases=(
        _case(Model.BERT_BASE, Lengths.FINEWEB, 32, 3, _ALL),
        _case(Model.BERT_BASE, Lengths.FULL, 6, 2, _SHORT_OF_TIME),
        _case(Model.BERT_BASE, Lengths.SHORT, 128, 2, _SHORT_OF_TIME),
        _case(Model.MINILM, Lengths.FINEWEB, 64, 3, (*_PLAIN, Name.CROSS_ENCODER)),
        _case(Model.MINILM, Lengths.FINEWEB, 512, 3, _OURS_ALONE),
        _case(Model.DISTILBERT, Lengths.FINEWEB, 32, 2, _PLAIN),
        _case(Model.BERT_LARGE, Lengths.FINEWEB, 8, 2, _SHORT_OF_TIME),
    ),
    warmup_rows=2,
    other_rows=8,
)

# Ours also runs alone, over enough rows to sort well and to run for seconds; the reference would need too long for them.
GPU = Plan(
    cases=(
        _case(Model.BERT_BASE, Lengths.FINEWEB, 3_072, 3, _ALL),
        _case(Model.BERT_BASE, Lengths.FINEWEB, 32_768, 3, _OURS_ALONE),
        _case(Model.BERT_BASE, Lengths.FULL, 3_072, 3, _PLAIN),
        _case(Model.BERT_BASE, Lengths.SHORT, 12_288, 3, _PLAIN),
        _case(Model.MINILM, Lengths.FINEWEB, 3_072, 3, _ALL),
        _case(Model.MINILM, Lengths.FINEWEB, 32_768, 3, _OURS_ALONE),
        _case(Model.DISTILBERT, Lengths.FINEWEB, 3_072, 3, _ALL),
        _case(Model.DISTILBERT, Lengths.FINEWEB, 32_768, 3, _OURS_ALONE),
        _case(Model.BERT_LARGE, Lengths.FINEWEB, 1_536, 3, _PLAIN),
        _case(Model.BERT_LARGE, Lengths.FINEWEB, 8_192, 3, _OURS_ALONE),
    ),
    warmup_rows=1_536,
    other_rows=1_536,
)


def plan_for(device_type: str) -> Plan:
    return GPU if device_type == "cuda" else CPU


def chosen_cases(
    plan: Plan,
    *,
    models: tuple[Model, ...] = (),
    lengths: tuple[Lengths, ...] = (),
    rows: int = 0,
    repeats: int = 0,
    only: tuple[Name, ...] = (),
) -> list[Case]:
    """Return the selected cases of the plan.

    A model that the user names runs over all selected lengths, even outside the plan.
    """
    cases = [
        case for case in plan.cases if (not models or case.model in models) and (not lengths or case.lengths in lengths)
    ]
    planned = {(case.model, case.lengths) for case in cases}
    cases += [
        _case(model, length, plan.other_rows, 3, _ALL)
        for model in models
        for length in lengths or (Lengths.FINEWEB,)
        if (model, length) not in planned
    ]
    narrowed = [
        replace(
            case,
            rows=rows or case.rows,
            repeats=repeats or case.repeats,
            contenders=tuple(name for name in case.contenders if not only or name in only),
        )
        for case in cases
    ]
    return [case for case in dict.fromkeys(narrowed) if case.contenders]
