"""`worker doctor`: what the data side needs on this machine, checked before a worker starts or when one does not."""
