"""Real texts, and random texts from pieces that tokenizers treat in special ways."""

from itertools import islice

from hypothesis import strategies as st

from shardsift.producer.local.demo_data import documents


def real_texts(count: int) -> list[str]:
    return [document.text for document in islice(documents(0), count)]


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
