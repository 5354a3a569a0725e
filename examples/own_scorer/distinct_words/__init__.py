"""The light half of the scorer `distinct-words`: which models there are. The producer imports it."""

from shardsift.scorers import Model, ScorerKind, UsageError

_MODELS = ("lower-case", "as-written")
_REVISION = "1"  # change it when the scores change


def resolve(name: str, revision: str | None) -> Model:
    """Return the model of this name. Raises UsageError if there is none."""
    if name not in _MODELS or revision not in (None, _REVISION):
        raise UsageError(f"distinct-words has no model {name!r} at {revision or 'any revision'}: {', '.join(_MODELS)}.")
    return Model(name=name, revision=_REVISION, labels=("distinct_share",))


KIND = ScorerKind(resolve=resolve, loader="distinct_words.scorer:load", uses_gpu=False)
