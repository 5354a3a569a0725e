"""Score and filter a folder of Parquet files on this machine, and check the result.

    python examples/run_local.py ./shards ./kept
    python examples/run_local.py ./shards ./kept ./my-classifier

Stop it whenever you like: the same command resumes it.
"""

import sys

import shardsift

if len(sys.argv) < 3:
    sys.exit(f"Usage: python {sys.argv[0]} SHARDS OUTPUT [MODEL]")
source, output = sys.argv[1:3]
model = sys.argv[3] if len(sys.argv) > 3 else "HuggingFaceFW/fineweb-edu-classifier"

ended = shardsift.run(input=source, output=output, model=model, min_score=3)
print(ended)

checked = shardsift.verify(output, input=source)
print(repr(checked))
sys.exit(0 if checked.is_sound else 1)
