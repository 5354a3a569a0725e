"""What the server of FinePDFs computes, and shardsift, on the same long texts.

    python examples/coming_from/finepdfs_server.py --model ./my-classifier --input ./pdfs.parquet

The server takes passages over HTTP, and puts those that have arrived into a batch of 4, padded to the longest. Here there is no
HTTP. A text is read at its beginning and its end, 2,048 tokens each, and the higher score counts. The model's card cuts a little
differently, as `--passages finepdfs` does.
"""

from collections.abc import Callable

import numpy as np
import torch
from side_by_side import Way, arguments, compare, ours
from transformers import AutoModelForSequenceClassification, AutoTokenizer

BATCH = 4

given = arguments(__doc__, model="HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn")
tokenizer = AutoTokenizer.from_pretrained(given.model)
most = min(2048, tokenizer.model_max_length)
reading = {"max_tokens": most, "passages": "head+tail"}
fast, exact = ours(given.model, **reading), ours(given.model, "float32", **reading)
device = "cuda" if torch.cuda.is_available() else "cpu"


def passages(text: str) -> list[list[int]]:
    ids, room = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], most - 2
    parts = [ids[:room], ids[-room:]] if len(ids) > room else [ids]
    return [[tokenizer.cls_token_id, *part, tokenizer.sep_token_id] for part in parts]


def server(dtype: torch.dtype) -> Callable[[list[str]], np.ndarray]:
    model = AutoModelForSequenceClassification.from_pretrained(given.model, dtype=dtype).to(device).eval()

    def score(texts: list[str]) -> np.ndarray:
        parts = [passages(text) for text in texts]
        waiting = [part for parts_of_text in parts for part in parts_of_text]
        scores = []
        for start in range(0, len(waiting), BATCH):
            batch = tokenizer.pad({"input_ids": waiting[start : start + BATCH]}, return_tensors="pt").to(device)
            with torch.inference_mode():
                scores += model(**batch).logits[:, 0].float().tolist()
        ends = np.cumsum([len(parts_of_text) for parts_of_text in parts])
        return np.array([max(of_text) for of_text in np.split(scores, ends[:-1])])

    return score


compare(
    given,
    Way(name="server, batches of 4", dtype="bfloat16", score=server(torch.bfloat16)),
    Way(name="server, batches of 4", dtype="float32", score=server(torch.float32)),
    exact,
    fast,
)
