"""How many tokens go through the model for a text: of one sequence, several passages, or a pair with each label.

Follows `worker/scoring/tokenizing`, but only counts. The tokenizer is that of the `tokenizers` package, if it is installed:
`pip install 'shardsift[estimate]'`, or with transformers. Otherwise the characters are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleet.scoring import Scoring
from producer.estimate.texts import Text

CHARS_PER_TOKEN = (
    4.2  # BERT's tokenizer makes one of 4.4 characters of English web pages, and of 3.9 of documentation and code
)
CHARACTERS_ERROR = 0.3  # share of the tokens by which that may be off, in languages written with spaces
_CHARS_A_TOKEN_READ = 10  # a text is read this far for each token that the model takes; beyond, it goes on as it began
_CHARS_OF_PASSAGES = 20_000  # and this far if all of it is scored
_FINEPDFS_CHARS = 10_000  # see worker/scoring/tokenizing/finepdfs.py

Lengths = tuple[int, ...]  # the tokens of each sequence of a text, special ones included


class Counter(Protocol):
    """Counts tokens."""

    @property
    def special(self) -> int:
        """The tokens that are added to each text."""

    @property
    def special_of_pair(self) -> int:
        """The tokens that are added to each pair of texts."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text, without special ones."""


@dataclass(frozen=True, kw_only=True)
class CharacterCounter:
    special: int = 2
    special_of_pair: int = 3

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [round(len(text) / CHARS_PER_TOKEN) for text in texts]


class TokenCounter:
    """Raises ImportError without the `tokenizers` package, and ValueError for a file that it cannot read."""

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain Exception
            raise ValueError(f"{file} cannot be read ({error})") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special = self._tokenizer.num_special_tokens_to_add(False)
        self.special_of_pair = self._tokenizer.num_special_tokens_to_add(True)

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


def lengths_of(texts: Sequence[Text], scoring: Scoring, counter: Counter, *, max_tokens: int) -> list[Lengths]:
    """The sequences that each text becomes. `max_tokens` is what the model takes; the scoring may ask for less."""
    most = min(max_tokens, scoring.max_tokens or max_tokens)
    firsts = [text[0] for text in texts]
    if scoring.text_pair_column:
        seconds = _counts([text[1] for text in texts], counter, most)
        both = zip(_counts(firsts, counter, most), seconds, strict=True)
        return [(min(first + second + counter.special_of_pair, most),) for first, second in both]
    hypotheses = scoring.zero_shot.hypotheses if scoring.zero_shot else ()
    beside = max(counter.counts(hypotheses)) + counter.special_of_pair if hypotheses else counter.special
    room = max(1, most - beside)
    if scoring.passages == "finepdfs":
        contents = _top_and_bottom(firsts, counter, room)
    else:
        counts = _counts(firsts, counter, most if scoring.passages == "head" else _CHARS_OF_PASSAGES)
        contents = [_passages(tokens, scoring.passages, room) for tokens in counts]
    return [tuple(tokens + beside for tokens in passages) * max(1, len(hypotheses)) for passages in contents]


def _passages(tokens: int, passages: str, room: int) -> Lengths:
    """The tokens of each passage of a text. As `places_of_passages` places them, all but that of a short text are full."""
    beyond = max(0, tokens - room)
    match passages.partition(":"):
        case _ if not beyond:
            return (tokens,)
        case "head+tail", _, _:
            return 2 * (room,)
        case "head+middle+tail", _, _:
            return (3 if beyond > room else 2) * (room,)
        case "stride", _, stride:
            return (1 - (-beyond // int(stride))) * (room,)
    return (room,)


def _top_and_bottom(texts: Sequence[str], counter: Counter, room: int) -> list[Lengths]:
    tops = counter.counts([text[:_FINEPDFS_CHARS] for text in texts])
    bottoms = counter.counts([text[-_FINEPDFS_CHARS:] if len(text) > 2 * _FINEPDFS_CHARS else "" for text in texts])
    return [
        (min(top, room), *([min(bottom, room)] if len(text) > 2 * _FINEPDFS_CHARS else []))
        for text, top, bottom in zip(texts, tops, bottoms, strict=True)
    ]


def _counts(texts: Sequence[str], counter: Counter, most: int) -> list[int]:
    """The tokens of each text. Of a long one, only the beginning is tokenized."""
    reach = max(1, min(_CHARS_A_TOKEN_READ * most, _CHARS_OF_PASSAGES))
    found = zip(texts, counter.counts([text[:reach] for text in texts]), strict=True)
    return [tokens if len(text) <= reach else round(tokens * len(text) / reach) for text, tokens in found]
