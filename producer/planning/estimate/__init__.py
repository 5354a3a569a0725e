"""What a run will take, told before it starts: rows, tokens, GPU-hours and cost. Reads a bounded sample, and needs no torch."""
