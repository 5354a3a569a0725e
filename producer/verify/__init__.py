"""`producer verify`: is a published dataset whole and right? Read from the output itself, without Redis or a GPU.

`verify` goes through the dataset, `published` reads what it says of itself, `rows` looks into the two files of a shard,
`source` compares them with the input, and `report` holds what was found.
"""
