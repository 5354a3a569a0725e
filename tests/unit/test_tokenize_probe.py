from pathlib import Path
import sys
import pytest
from hypothesis import given, settings, HealthCheck, example
from hypothesis import strategies as st
from itertools import islice
from transformers import AutoTokenizer
from producer.demo.texts import documents
from worker.demo_encoder import verified_demo_encoder
from worker.scoring.tokenize import TextTokenizer
WORDS=sorted({w for d in islice(documents(0),50) for w in d.text.split()})
SPACES=[" ","\n","\t","\r\n","\x0b","\x0c","\x1c","\x85","\u00a0","\u2003","\u200b","\u2028","\u3000","\ufeff","\x00"]
PIECES=st.one_of(st.sampled_from(WORDS),st.sampled_from(WORDS),st.sampled_from(SPACES),st.sampled_from(SPACES),st.sampled_from(list("...,;!?-_()'\"")),st.sampled_from(list("漢字かなカナ한글")),st.sampled_from(["😀","👩‍👩‍👧","🇩🇪","e\u0301","\u0301"]))
TEXTS=st.lists(st.tuples(PIECES,st.sampled_from([1,1,1,1,2,70,400,6000,9000])).map(lambda p:p[0]*p[1]),min_size=1,max_size=40).map("".join)
bert=lambda:AutoTokenizer.from_pretrained(verified_demo_encoder())
rob=lambda:AutoTokenizer.from_pretrained("/tmp/probe/roberta")
TOK={"bert":(bert(),bert()),"roberta":(rob(),rob())}
@pytest.mark.parametrize("kind",["bert","roberta"])
@settings(max_examples=1500,deadline=None)
@given(TEXTS,st.just(128))
def test_x(kind,text,n):
    a,b=TOK[kind]
    full=b(text,truncation=True,max_length=n)["input_ids"]
    got=TextTokenizer(a,max_tokens=n).encode([text])[0].tolist()
    assert got==full
