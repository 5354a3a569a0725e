"""A classifier that is divided over the devices of one worker, because it is larger than one of them.

`load.py`: accelerate puts whole layers on each device, and on the CPU and the disk those that do not fit. This works for any
model. The devices compute one after another.
`tensor.py`: each device has a part of every matrix, and all compute at once. transformers must have a plan for the family:
Llama, Qwen, Gemma, Mistral and others have one, BERT has none.

`sharding.py` has the options and the choice between the two. `load.py` also compares the scores with the model's own.
On a CPU neither is faster than the plain model.
"""
