"""The processes of a worker: a parent that talks to the broker, and a child that owns the device and scores shards."""
