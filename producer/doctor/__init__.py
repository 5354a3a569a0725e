"""`producer doctor`: what the control side needs, checked before a run or when one does not go on."""
