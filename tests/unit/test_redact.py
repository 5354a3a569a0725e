"""Redacted texts hold no secret of a URL, and are otherwise unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsift.fleet.process.redact import redacted

SIGNED = (
    "https://bucket.s3.amazonaws.com/a/b.parquet?X-Amz-Algorithm=AWS4&X-Amz-Credential=AKIA%2F1&X-Amz-Signature=s3cret"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"403 Client Error: Forbidden for url: {SIGNED}", "https://bucket.s3.amazonaws.com/a/b.parquet?***"),
        (f"FileNotFoundError: '{SIGNED}'", "'https://bucket.s3.amazonaws.com/a/b.parquet?***'"),
        ("Max retries exceeded with url: /a/b.parquet?X-Amz-Signature=s3cret (Caused by", "/a/b.parquet?*** (Caused"),
        ("https://a.blob.core.windows.net/c/f?sv=2024&sig=s3cret%3D", "https://a.blob.core.windows.net/c/f?***"),
        ("https://cdn-lfs.hf.co/ab/cd?Expires=17&Policy=s3cret&Signature=s3cret&Key-Pair-Id=K", "/ab/cd?***"),
        ("https://storage.googleapis.com/b/o?GoogleAccessId=me&X-Goog-Signature=s3cret", "/b/o?***"),
        ("retrying &X-Amz-Signature=s3cret&x=1", "&X-Amz-Signature=***&x=1"),
        ("ftp://user:s3cret@host/f.parquet", "ftp://***@host/f.parquet"),
        ("ftp://user:s3c@s3cret@host/f", "ftp://***@host/f"),
        ("https://s3cret@github.com/me/repo", "https://***@github.com/me/repo"),
        ("redis://:s3cret@10.0.0.5:6379/0", "redis://***@10.0.0.5:6379/0"),
        ("s3://KEY:s3cret@bucket/data", "s3://***@bucket/data"),
        ("Authorization: Bearer s3cret-t0ken-of-mine", "Bearer ***"),
        ("{'Authorization': 'Basic dTpzM2NyZXQ='}", "{'Authorization': '***'}"),
        ("storage_options={'secret': 's3cret', 'anon': False}", "{'secret': '***', 'anon': False}"),
        ("AccountName=me;AccountKey=s3cret==;EndpointSuffix", "AccountKey=***;EndpointSuffix"),
        ("aws_secret_access_key=s3cret", "aws_secret_access_key=***"),
        ("token hf_abcdefGHIJKLmnopqrstuvwxyz012345 is bad", "token hf_*** is bad"),
    ],
)
def test_a_secret_goes_and_its_place_stays_readable(text: str, shown: str) -> None:
    clean = redacted(text)

    assert shown in clean
    assert not any(secret in clean for secret in ("s3c", "dTpz", "mnopq"))


@pytest.mark.parametrize(
    "text",
    [
        "hf://datasets/HuggingFaceFW/fineweb@0123abc/data/CC-MAIN-2024-10/000_00000.parquet",
        "abfss://container@account.dfs.core.windows.net/folder/f.parquet",
        "s3://bucket/shards/00?.parquet",
        "/data/shards/00?.parquet and what=that, or is it?",
        "https://huggingface.co/datasets/a/b/resolve/main/x.parquet",
        "The filter \"score >= 3 and text like 'a?=b'\" keeps 5 rows",
        '  File "/usr/lib/python3.11/site-packages/fsspec/asyn.py", line 56, in sync\n    raise result\n',
        "HuggingFaceFW/hf_model at revision 0123abc: w1@host/7",
        "",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


@given(st.text(alphabet="ab:/@?=&'* .#hf_-", max_size=60))
def test_what_was_redacted_once_stays_so(text: str) -> None:
    once = redacted(text)

    assert redacted(once) == once
