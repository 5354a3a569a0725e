"""Send a folder of Parquet files to a fleet, and watch it work.

    export REDIS_URL=redis://10.0.0.5:6379/0
    python examples/enqueue_and_watch.py s3://bucket/shards s3://bucket/kept
    python examples/enqueue_and_watch.py /shared/shards /shared/kept /shared/my-classifier

The fleet is `producer finalizer` on one machine and `worker start` on each GPU. Input, output and a model that is a folder must
be reachable from all of them by the same name.
"""

import sys
import time

import shardsift

source, output = sys.argv[1:3]
model = sys.argv[3] if len(sys.argv) > 3 else "HuggingFaceFW/fineweb-edu-classifier"

sent = shardsift.enqueue(input=source, output=output, model=model, min_score=3)
print(sent)

while not (state := shardsift.status(sent.run_id)).is_over:
    print(f"{state.word}: {state.counts.done} of {state.counts.shards} shards, {state.rows_per_second:,.0f} rows/s")
    time.sleep(2)

print(state)
sys.exit(state.exit_code)
