"""Score and filter a folder of Parquet files on this machine, and check the result.

    python examples/run_local.py ./shards ./kept
    python examples/run_local.py ./shards ./kept ./my-classifier

Stop it whenever you like: the same command resumes it.
"""

import sys

import shardsift

source, output, *model = sys.argv[1:]
options = {"model": model[0]} if model else {}

ended = shardsift.run(input=source, output=output, min_score=3, **options)
print(ended)

checked = shardsift.verify(output, source=source)
print(repr(checked))
sys.exit(0 if checked.is_sound else 1)
