"""Small tokenizers of the families that classifiers use, as transformers saves them. Knows nothing of models.

All but BERT's are trained on the demo's texts, so they cut words into more pieces than the real ones.
"""

import io
import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (
    AddedToken,
    ByteLevelBPETokenizer,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer
from transformers import (
    AlbertTokenizer,
    AutoTokenizer,
    BertTokenizer,
    DebertaV2Tokenizer,
    GPT2Tokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from shardsift.producer.local.demo_data import documents
from shardsift.worker.training.base_model import verified_demo_encoder

MAX_TOKENS = 512
LLAMA_3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def save_bert_tokenizer(folder: Path) -> None:
    """Save MiniLM's tokenizer: BERT's uncased WordPiece, with truncation and padding to 128 in its tokenizer.json."""
    AutoTokenizer.from_pretrained(verified_demo_encoder()).save_pretrained(folder)


def save_cased_bert_tokenizer(folder: Path) -> None:
    words = AutoTokenizer.from_pretrained(verified_demo_encoder()).get_vocab()
    BertTokenizer(vocab=words, do_lower_case=False, model_max_length=MAX_TOKENS).save_pretrained(folder)


def save_roberta_tokenizer(folder: Path) -> None:
    """Save a tokenizer of RoBERTa, which BART also uses. `<mask>` includes the spaces before it."""
    vocab, merges = _byte_level_bpe()
    mask = AddedToken("<mask>", lstrip=True, special=True)
    RobertaTokenizer(vocab=vocab, merges=merges, mask_token=mask, model_max_length=MAX_TOKENS).save_pretrained(folder)


def save_gpt2_tokenizer(folder: Path) -> None:
    """Save a tokenizer that adds no special tokens to a text, and has no padding token."""
    vocab, merges = _byte_level_bpe()
    GPT2Tokenizer(vocab=vocab, merges=merges, model_max_length=MAX_TOKENS).save_pretrained(folder)


def save_llama3_tokenizer(folder: Path) -> None:
    vocab, merges = _byte_level_bpe()
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges, ignore_merges=True))
    words = pre_tokenizers.Split(Regex(LLAMA_3_WORDS), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    around = _template(tokenizer, single="<|begin_of_text|> $A", special=["<|begin_of_text|>"])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), around])
    _save(tokenizer, folder, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")


def save_modernbert_tokenizer(folder: Path) -> None:
    """Save a tokenizer in which runs of spaces are separate tokens, as in GPT-NeoX's, the origin of ModernBERT's."""
    vocab, merges = _byte_level_bpe()
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(" " * run, normalized=True) for run in range(2, 25)])
    tokenizer.add_tokens([AddedToken("|||EMAIL_ADDRESS|||", normalized=True)])
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True)])
    tokenizer.post_processor = _template(tokenizer, single="[CLS] $A [SEP]", special=["[CLS]", "[SEP]"])
    mask = AddedToken("[MASK]", lstrip=True, special=True)
    special = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad")}
    _save(tokenizer, folder, mask_token=mask, **special)


def save_xlm_roberta_tokenizer(folder: Path) -> None:
    charsmap, pieces = _sentencepiece()
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces, ("<mask>", 0.0)]
    mask = AddedToken("<mask>", lstrip=True, special=True)
    XLMRobertaTokenizer(
        vocab=vocab, mask_token=mask, _spm_precompiled_charsmap=charsmap, model_max_length=MAX_TOKENS
    ).save_pretrained(folder)


def save_deberta_v3_tokenizer(folder: Path) -> None:
    _, pieces = _sentencepiece()
    vocab = [("[PAD]", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[UNK]", 0.0), *pieces, ("[MASK]", 0.0)]
    DebertaV2Tokenizer(vocab=vocab, model_max_length=MAX_TOKENS).save_pretrained(folder)


def save_albert_tokenizer(folder: Path) -> None:
    charsmap, pieces = _sentencepiece()
    vocab = [("<pad>", 0.0), ("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[MASK]", 0.0), *pieces]
    AlbertTokenizer(vocab=vocab, _spm_precompiled_charsmap=charsmap, model_max_length=MAX_TOKENS).save_pretrained(
        folder
    )


def save_converted_sentencepiece_tokenizer(folder: Path) -> None:
    """Save a tokenizer as transformers 4 converted it from a SentencePiece model. Its normalizer joins spaces."""
    charsmap, pieces = _sentencepiece()
    tokenizer = Tokenizer(Unigram([("<pad>", 0.0), ("<unk>", 0.0), ("</s>", 0.0), *pieces], unk_id=1))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(charsmap),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "<unk>", "</s>"])
    tokenizer.post_processor = _template(tokenizer, single="$A </s>", special=["</s>"])
    _save(tokenizer, folder, pad_token="<pad>", unk_token="<unk>", eos_token="</s>")


def save_llama2_tokenizer(folder: Path) -> None:
    """Save a tokenizer whose pieces are merged across words, as in Gemma's."""
    vocab, merges = _bpe_across_words()
    LlamaTokenizer(
        vocab=vocab, merges=merges, add_bos_token=True, pad_token="<unk>", model_max_length=MAX_TOKENS
    ).save_pretrained(folder)


def _save(tokenizer: Tokenizer, folder: Path, **special: Any) -> None:
    names = ["input_ids", "attention_mask"]
    saved = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=names, model_max_length=MAX_TOKENS, **special
    )
    saved.save_pretrained(folder)


def _template(tokenizer: Tokenizer, *, single: str, special: list[str]) -> Any:
    return processors.TemplateProcessing(
        single=single, special_tokens=[(token, tokenizer.token_to_id(token)) for token in special]
    )


@cache
def _byte_level_bpe() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Train a byte-level BPE with RoBERTa's special tokens first.

    Their ids must be the first, because RoBERTa counts positions from the padding id.
    """
    tokenizer = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(_corpus(), vocab_size=2000, special_tokens=special, show_progress=False)
    return _vocab_and_merges(tokenizer.to_str())


@cache
def _bpe_across_words() -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(BPE(unk_token="<unk>", byte_fallback=True))
    trainer = BpeTrainer(
        vocab_size=1000,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    sentences = (sentence for text in _corpus() for sentence in text.replace(" ", "▁").split("."))
    tokenizer.train_from_iterator(sentences, trainer)
    return _vocab_and_merges(tokenizer.to_str())


def _vocab_and_merges(tokenizer_json: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(tokenizer_json)["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


@cache
def _sentencepiece() -> tuple[bytes, list[tuple[str, float]]]:
    """Train a Unigram model. Returns SentencePiece's own character map, and pieces with their log probabilities."""
    model = _trained_sentencepiece(normalization_rule_name="nmt_nfkc")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = (piece for piece in range(processor.vocab_size()) if not processor.is_control(piece))
    pieces = [(processor.id_to_piece(piece), processor.get_score(piece)) for piece in ids]
    return _character_map(model), [piece for piece in pieces if piece[0] != "<unk>"]


def compiled_character_map(rules: dict[str, str], folder: Path) -> bytes:
    """Compile custom rules to SentencePiece's character map, for normalizers.Precompiled."""
    lines = ["\t".join(" ".join(f"{ord(c):X}" for c in side) for side in rule) for rule in rules.items()]
    (folder / "rules.tsv").write_text("\n".join(lines))
    return _character_map(_trained_sentencepiece(normalization_rule_tsv=str(folder / "rules.tsv")))


def _trained_sentencepiece(**normalization: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in _corpus() for line in text.splitlines() if line),
        model_writer=model,
        model_type="unigram",
        vocab_size=1000,
        num_threads=1,
        minloglevel=2,
        **normalization,
    )
    return model.getvalue()


def _character_map(model: bytes) -> bytes:
    return bytes(sentencepiece_model_pb2.ModelProto.FromString(model).normalizer_spec.precompiled_charsmap)


@cache
def _corpus() -> list[str]:
    return [document.text for document in islice(documents(3), 200)]
