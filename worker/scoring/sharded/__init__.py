"""A classifier that is divided over the devices of one worker, because it is larger than one of them.

`layers`: accelerate puts whole layers on each device, and on the CPU and the disk what does not fit. Works for any model. The
devices compute one after another.
`tensor`: each device has a part of every matrix, and all compute at once. Each has a process of its own, a rank of
`torch.distributed`. Rank 0 is the process that loads the scorer; it starts the others, sends each the same batches, and ends
with them. transformers must have a plan for the family: Llama, Qwen, Gemma, Mistral and others have one, BERT has none.

`processes.py` starts, watches and ends ranks whatever they do, and a training uses it too.

`load.py` loads either. Only one device computes at a time with `layers`, and on a CPU neither is faster than the plain model.
"""
