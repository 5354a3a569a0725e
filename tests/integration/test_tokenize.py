"""Token ids equal those of a full encode by the tokenizer itself, for long and odd texts, with a fraction of the work."""

import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import AutoTokenizer, CanineTokenizer

from producer.demo.texts import documents
from support import tokenizers as families
from worker.scoring.tokenizing.precut import WORD_PATTERNS, cut, may_cut, normalizing
from worker.scoring.tokenizing.tokenize import TextTokenizer

MAX_TOKENS = 32  # a text of more than 192 characters is cut, so most of the texts below are cut
CUT: dict[str, Callable[[Path], None]] = {
    "BERT": families.save_bert_tokenizer,
    "BERT cased": families.save_cased_bert_tokenizer,
    "RoBERTa, BART": families.save_roberta_tokenizer,
    "GPT-2": families.save_gpt2_tokenizer,
    "Llama 3": families.save_llama3_tokenizer,
    "ModernBERT": families.save_modernbert_tokenizer,
    "XLM-RoBERTa": families.save_xlm_roberta_tokenizer,
    "DeBERTa v3": families.save_deberta_v3_tokenizer,
    "ALBERT": families.save_albert_tokenizer,
    "SentencePiece, converted": families.save_converted_sentencepiece_tokenizer,
}
NOT_CUT = {"Llama 2": families.save_llama2_tokenizer}
FAMILIES = CUT | NOT_CUT


def real_texts(count: int, *, seed: int = 0) -> list[str]:
    return [document.text for document in islice(documents(seed), count)]


def full_encode(tokenizer: Any, texts: list[str], *, max_tokens: int = MAX_TOKENS) -> list[list[int]]:
    return [list(tokenizer(text, truncation=True, max_length=max_tokens)["input_ids"]) for text in texts]


def encode(ours: TextTokenizer, texts: list[str]) -> list[list[int]]:
    tokens = ours.encode(pa.array(texts, pa.string()))
    assert tokens.ids.dtype == "int32"
    return [tokens[row].tolist() for row in range(len(tokens))]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(FAMILIES[request.param], tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module", params=CUT)
def cut_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(CUT[request.param], tmp_path_factory.mktemp("tokenizer"))


def saved(save: Callable[[Path], None], folder: Path) -> Path:
    save(folder)
    return folder


@pytest.fixture(scope="module")
def encoders(folder: Path) -> tuple[TextTokenizer, Any]:
    """Our tokenizer, and the original."""
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for _ in range(2))
    return TextTokenizer(ours, max_tokens=MAX_TOKENS), theirs


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(families.save_bert_tokenizer, tmp_path_factory.mktemp("tokenizer"))


# --- the ids of a full encode -------------------------------------------------------------------------------------------

WORDS = st.sampled_from(sorted({word for text in real_texts(20) for word in text.split()}))
SPACES = [" ", "  ", "\n", "\t", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"]
INVISIBLE = ["\x00", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u3164", "\uffa0"]
PUNCTUATION = [*".,;!?-_()'\"`", "``", "''", "'s", "'re", "'S", ".\n", "!\n\n", ") \n", "▁", "Ġ", "<0x20>"]
OTHER_SCRIPTS = [*"漢字かなカナ한글กकبا", "😀", "👩‍👩‍👧", "é", "क्ष", "ᄀ", "ᅡ", "ᆨ", "𠀀", "𝐀"]
BINDING = ["e\u0301", "\u0301", "\u0338", "\u037a", "ﾞ", "ｶﾞ", "\u0d4e", "\u0600", "\u06dd", "\u0e33", "\U000111c2"]
CHANGING = ["İ", "ß", "Ǆ", "ﬁ", "²", "½", "①", "１", "ﷺ", "ﹱ", "ﱞ", "1", "23", "456", "7890"]
SPECIAL = ["[SEP]", "</s>", "<mask>", " <mask>", "[MASK] ", "<s>", "<pad>", "<|begin_of_text|>", "|||EMAIL_ADDRESS|||"]
ODD = st.sampled_from([*SPACES, *INVISIBLE, *PUNCTUATION, *OTHER_SCRIPTS, *BINDING, *CHANGING, *SPECIAL])
PIECES = st.tuples(WORDS | WORDS | ODD, st.sampled_from(["", "", " ", " ", "\n"])).map("".join)
TEXTS = st.lists(
    st.tuples(PIECES, st.sampled_from([1, 1, 1, 1, 1, 2, 70, 1500])).map(lambda piece: piece[0] * piece[1]),
    min_size=3,
    max_size=60,
).map("".join)
SHORT_TEXTS = st.lists(PIECES, min_size=2, max_size=40).map("".join)


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_any_text_has_the_ids_of_a_full_encode(encoders: tuple[TextTokenizer, Any], texts: list[str]) -> None:
    ours, theirs = encoders

    ids = encode(ours, texts)

    assert ids == full_encode(theirs, texts)


@pytest.mark.parametrize("max_tokens", [3, 128, 512])
def test_real_texts_have_the_ids_of_a_full_encode(folder: Path, max_tokens: int) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for _ in range(2))
    texts = real_texts(100)

    ids = encode(TextTokenizer(ours, max_tokens=max_tokens), texts)

    assert ids == full_encode(theirs, texts, max_tokens=max_tokens)


def test_the_ids_are_those_of_a_full_encode_for_every_limit(
    encoders: tuple[TextTokenizer, Any],
) -> None:
    ours, theirs = encoders
    sentence = "An over\x0clook at last, [SEP] ``quoted'' it  is <mask> Café 12 345.\n\nAnd  so on; "
    texts = ["x" * shift + " " + sentence * 20 for shift in range(len(sentence))]

    ids = encode(ours, texts)

    assert ids == full_encode(theirs, texts)


def test_long_and_short_texts_of_one_call_do_not_get_mixed_up(encoders: tuple[TextTokenizer, Any]) -> None:
    ours, theirs = encoders
    far = " " * 60_000 + "far"
    texts = [
        "short",
        far,
        "",
        "long " * 5000,
        "\u200b" * 20_000 + "hidden",
        "x" * 20_000,
        *real_texts(3),
        "漢字" * 5000,
    ]

    ids = encode(ours, texts)

    assert ids == full_encode(theirs, texts)


@pytest.mark.parametrize("text", ["", "\x00", "  \n\t ", "\u200b\ufeff", "word", "漢字 and émoji 😀"])
def test_an_odd_text_has_the_ids_of_a_full_encode(encoders: tuple[TextTokenizer, Any], text: str) -> None:
    ours, theirs = encoders

    assert encode(ours, [text]) == full_encode(theirs, [text])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_slice_of_a_column_has_the_ids_of_its_own_texts(bert: Path, kind: pa.DataType) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(bert) for _ in range(2))
    texts = real_texts(50)

    tokens = TextTokenizer(ours, max_tokens=MAX_TOKENS).encode(pa.array(texts, kind).slice(7, 30))

    assert [tokens[row].tolist() for row in range(30)] == full_encode(theirs, texts[7:37])
    assert len(tokens) == 30


def test_no_texts_have_no_ids(encoders: tuple[TextTokenizer, Any]) -> None:
    ours, _ = encoders

    tokens = ours.encode(pa.array([], pa.string()))

    assert (len(tokens), len(tokens.ids)) == (0, 0)


def test_more_texts_than_one_call_takes_keep_their_order(bert: Path) -> None:
    ours = TextTokenizer(AutoTokenizer.from_pretrained(bert), max_tokens=MAX_TOKENS)
    numbers = ours.encode(pa.array([str(number) for number in range(10)]))

    tokens = ours.encode(pa.array([str(number % 10) for number in range(5_000)]))

    assert [tokens[row].tolist() for row in range(5_000)] == [numbers[row % 10].tolist() for row in range(5_000)]


# --- a cut does not show ------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(text=SHORT_TEXTS)
def test_the_tokens_before_every_cut_are_the_first_ones_of_the_text(cut_folder: Path, text: str) -> None:
    backend = bare_backend(cut_folder)

    whole = backend.encode(text, add_special_tokens=False).ids

    for part in parts_of(text, normalizing(backend)):
        ids = backend.encode(part, add_special_tokens=False).ids
        assert ids == whole[: len(ids)], (part[-10:], text[len(part) :][:10])


@cache
def bare_backend(folder: Path) -> Any:
    backend = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def parts_of(text: str, normalize: Callable[[str], str]) -> list[str]:
    """The text cut at every safe place except those near its beginning."""
    parts, limit = [], len(text)
    while limit > 4:
        part = cut(text, limit, normalize)
        parts += [part] if part else []
        limit = len(part) + 2 if part else limit // 2
    return parts


NORMALIZERS = {
    "BERT": normalizers.BertNormalizer(),
    "BERT cased": normalizers.BertNormalizer(lowercase=False, strip_accents=False),
    "NFC": normalizers.NFC(),
    "NFKC": normalizers.NFKC(),
    "NFKD, no accents": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    "NFD": normalizers.NFD(),
    "stripped": normalizers.Strip(),
    "spaces of DeBERTa": normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
    "spaces of XLM-RoBERTa": normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), "▁")]),
    "quotation marks": normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]),
}


@pytest.mark.parametrize("name", NORMALIZERS)
@settings(max_examples=100, deadline=None)
@given(text=SHORT_TEXTS)
def test_a_normalizer_that_allows_a_cut_gives_the_part_the_beginning_of_the_whole(name: str, text: str) -> None:
    backend = tokenizer_of(NORMALIZERS[name], pre_tokenizers.ByteLevel())
    normalize = normalizing(backend)

    whole = normalize(text)

    assert may_cut(backend)
    for part in parts_of(text, normalize):
        beginning = normalize(part)
        assert whole.startswith(beginning)
        assert whole[len(beginning)] == " "


@pytest.fixture(scope="module")
def odd_normalizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Removes some letters, replaces others by spaces, and joins spaces."""
    rules = {"e": " ", "t": "", "s": " x", "n": "n ", "\u0301": " ", "r\u0301": " ", "\u0d4e": " ", "ﾞ": ""}
    charsmap = families.compiled_character_map(rules, tmp_path_factory.mktemp("rules"))
    return normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), "▁")])


@settings(max_examples=100, deadline=None)
@given(text=SHORT_TEXTS)
@example(text="go up \u0d4e1 23 go")
@example(text="go up 1 2ﾞ go")
def test_no_cut_falls_where_a_character_map_removes_letters_or_replaces_them_by_spaces(
    odd_normalizer: Any, text: str
) -> None:
    whole = odd_normalizer.normalize_str(text)

    for part in parts_of(text, odd_normalizer.normalize_str):
        beginning = odd_normalizer.normalize_str(part)
        assert whole.startswith(beginning)
        assert whole[len(beginning)] == " "


def tokenizer_of(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    backend = Tokenizer(BPE())
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer
    return backend


def words_by(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


PRE_TOKENIZERS = {
    "BERT": pre_tokenizers.BertPreTokenizer(),
    "white space": pre_tokenizers.WhitespaceSplit(),
    "words": pre_tokenizers.Whitespace(),
    "GPT-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "RoBERTa with a space in front": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "SentencePiece": pre_tokenizers.Metaspace(),
    "SentencePiece, first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "T5": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    "StarCoder": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "Falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    **{name: words_by(pattern) for name, pattern in WORD_PATTERNS.items()},
}


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(text=SHORT_TEXTS)
def test_a_pre_tokenizer_that_allows_a_cut_gives_the_part_the_first_pieces_of_the_whole(name: str, text: str) -> None:
    backend = tokenizer_of(None, PRE_TOKENIZERS[name])

    whole = backend.pre_tokenizer.pre_tokenize_str(text)

    assert may_cut(backend)
    for part in parts_of(text, str):
        pieces = backend.pre_tokenizer.pre_tokenize_str(part)
        assert [piece for piece, _ in pieces] == [piece for piece, _ in whole[: len(pieces)]]


# --- which tokenizers are cut -------------------------------------------------------------------------------------------


def test_the_known_families_are_cut(cut_folder: Path) -> None:
    assert may_cut(bare_backend(cut_folder))


class EveryCharacter:
    """A pre-tokenizer in Python, whose behaviour is unknown."""

    def pre_tokenize(self, text: Any) -> None:
        text.split(lambda _, piece: [piece[place : place + 1] for place in range(len(str(piece)))])


UNPROVED: dict[str, Callable[[Any], None]] = {
    "no pre-tokenizer": lambda backend: setattr(backend, "pre_tokenizer", None),
    "a pre-tokenizer that keeps words together": lambda backend: setattr(
        backend, "pre_tokenizer", pre_tokenizers.Metaspace(split=False)
    ),
    "an unknown pattern": lambda backend: setattr(backend, "pre_tokenizer", words_by(r"\w+ \w+|\s+|\S+")),
    "a pre-tokenizer in Python": lambda backend: setattr(
        backend, "pre_tokenizer", pre_tokenizers.PreTokenizer.custom(EveryCharacter())
    ),
    "a normalizer that joins words": lambda backend: setattr(backend, "normalizer", normalizers.Replace(" ", "▁")),
    "a pattern that takes spaces": lambda backend: setattr(
        backend, "normalizer", normalizers.Replace(Regex("a b"), " ")
    ),
    "an added token of two words": lambda backend: backend.add_tokens(["New York"]),
    "an added token that ends in a space": lambda backend: backend.add_tokens(["New "]),
    "an added token of two words once normalized": lambda backend: backend.add_tokens([AddedToken("New\tYork")]),
}


@pytest.mark.parametrize("change", UNPROVED.values(), ids=UNPROVED)
def test_a_tokenizer_that_is_not_proved_to_allow_cuts_is_not_cut(bert: Path, change: Callable[[Any], None]) -> None:
    backend = AutoTokenizer.from_pretrained(bert).backend_tokenizer
    assert may_cut(backend)

    change(backend)

    assert not may_cut(backend)


def test_a_tokenizer_that_merges_across_words_is_not_cut(tmp_path: Path) -> None:
    families.save_llama2_tokenizer(tmp_path)

    assert not may_cut(AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer)


# --- work and memory ----------------------------------------------------------------------------------------------------


def test_a_text_of_a_megabyte_costs_little_more_than_its_beginning(cut_folder: Path) -> None:
    ours = TextTokenizer(AutoTokenizer.from_pretrained(cut_folder), max_tokens=128)
    (text,) = real_texts(1)
    beginnings, megabytes = pa.array([text[:1_000]] * 8), pa.array([text * (1_000_000 // len(text))] * 8)

    for_beginnings, for_megabytes = (
        fastest(lambda texts=texts: ours.encode(texts)) for texts in (beginnings, megabytes)
    )

    assert for_megabytes < 100 * for_beginnings  # without a cut it would cost a thousand times as much


def fastest(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(3):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def test_a_text_of_50_megabytes_has_the_ids_of_its_beginning(bert: Path) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(bert) for _ in range(2))
    sentence = real_texts(1)[0][:500] + " "
    huge = sentence * (50_000_000 // len(sentence))

    ids = encode(TextTokenizer(ours, max_tokens=512), ["short", huge])

    assert ids == full_encode(theirs, ["short", huge[:100_000]], max_tokens=512)


@pytest.mark.parametrize("save", [families.save_bert_tokenizer, families.save_roberta_tokenizer])
def test_a_text_that_is_one_word_of_2_million_letters_has_the_ids_of_a_full_encode(
    tmp_path: Path, save: Callable[[Path], None]
) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(saved(save, tmp_path)) for _ in range(2))

    ids = encode(TextTokenizer(ours, max_tokens=512), ["a" * 2_200_000])

    assert ids == full_encode(theirs, ["a" * 2_200_000], max_tokens=512)


class Letters:
    """A tokenizer in Python, whose ids are character codes. It keeps the last ids, and records the texts of its calls."""

    pad_token_id = None
    model_input_names = ("input_ids", "attention_mask")

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Letters":
        return self

    def __call__(self, texts: list[str], *, max_length: int, **options: Any) -> dict[str, list[list[int]]]:
        self.calls.append([len(text) for text in texts])
        return {"input_ids": [[ord(letter) for letter in text[-max_length:]] for text in texts]}


def test_one_call_of_the_tokenizer_gets_a_bounded_number_of_characters_however_long_and_many_the_texts() -> None:
    letters = Letters()
    texts = pa.array(["a" * 1_500_000 + "b"] * 8 + ["c"] * 4_000 + ["d" * 5_000] * 100)

    tokens = TextTokenizer(letters, max_tokens=2).encode(texts)

    assert all(sum(chars) < 7_000_000 and len(chars) <= 1_025 for chars in letters.calls)
    assert len(letters.calls) < 12
    expected = "ab" * 8 + "c" * 4_000 + "dd" * 100
    assert tokens.ids.tolist() == [ord(letter) for letter in expected]


def test_only_the_first_2_mi_characters_of_a_text_are_read() -> None:
    texts = pa.array(["a" * (2**21 - 1) + "bc", "a" * (2**21 - 1) + "b"])

    tokens = TextTokenizer(Letters(), max_tokens=2).encode(texts)

    assert tokens.ids.tolist() == [ord(letter) for letter in "abab"]


# --- other tokenizers ---------------------------------------------------------------------------------------------------


def test_a_tokenizer_in_python_gives_the_ids_that_it_gives_by_itself() -> None:
    ours, theirs = (CanineTokenizer(model_max_length=64) for _ in range(2))
    texts = ["", "漢字 and émoji 😀", *real_texts(3)]

    ids = encode(TextTokenizer(ours, max_tokens=64), texts)

    assert ids == full_encode(theirs, texts, max_tokens=64)


def truncates_left(tokenizer: Any) -> None:
    tokenizer.truncation_side = "left"


def says_a_text_twice(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP] $A", special_tokens=[("[SEP]", tokenizer.sep_token_id)]
    )


def reads_special_tokens_as_text(tokenizer: Any) -> None:
    tokenizer.split_special_tokens = True


def does_as_it_is(tokenizer: Any) -> None:
    """The tokenizer of BERT."""


@pytest.mark.parametrize("change", [truncates_left, says_a_text_twice, reads_special_tokens_as_text, does_as_it_is])
@pytest.mark.parametrize("max_tokens", [2, MAX_TOKENS])
def test_a_tokenizer_changed_by_its_user_gives_the_ids_that_it_gives_by_itself(
    bert: Path, change: Callable[[Any], None], max_tokens: int
) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(bert) for _ in range(2))
    texts = ["", "one [SEP] two", *(text[:300] for text in real_texts(10))]
    change(ours)
    change(theirs)

    ids = encode(TextTokenizer(ours, max_tokens=max_tokens), texts)

    assert ids == full_encode(theirs, texts, max_tokens=max_tokens)


def test_the_tokenizer_that_is_passed_in_does_not_change(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(100)
    before = backend.to_str()

    TextTokenizer(tokenizer, max_tokens=MAX_TOKENS).encode(pa.array(real_texts(3)))

    assert backend.to_str() == before


def test_the_tokenizer_reports_what_its_model_needs(bert: Path, tmp_path: Path) -> None:
    families.save_gpt2_tokenizer(tmp_path)

    of_bert, of_gpt2 = (
        TextTokenizer(AutoTokenizer.from_pretrained(saved), max_tokens=64) for saved in (bert, tmp_path)
    )

    assert (of_bert.max_tokens, of_bert.pad_id, of_bert.takes_token_types) == (64, 0, True)
    assert (of_gpt2.max_tokens, of_gpt2.pad_id, of_gpt2.takes_token_types) == (64, 0, False)
